"""Registration of verbs with examples, which appear in `--help` and in the documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from sizewright.cli.ending import ending

F = TypeVar("F", bound=Callable[..., Any])
_HELP = {"help_option_names": ["--help", "-h"]}


def examples(*lines: str) -> Callable[[F], F]:
    """Attach command lines to a verb as examples; each may end with a comment."""

    def keep(function: F) -> F:
        vars(function)["examples"] = lines
        return function

    return keep


class Verbs(typer.Typer):
    """Verbs, or groups of verbs. The epilog of each command holds its examples, one per line."""

    def __init__(self, help: str, *lines: str, **more: Any) -> None:
        super().__init__(
            help=help,
            epilog="\n".join(lines),
            cls=_Group,
            no_args_is_help=True,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
            context_settings=_HELP,
            **more,
        )

    def command(self, name: str | None = None, **more: Any) -> Callable[[F], F]:
        """Register a function with examples, like typer."""

        def register(function: F) -> F:
            epilog = "\n".join(vars(function)["examples"])
            decorate = super(Verbs, self).command(name, cls=_Verb, epilog=epilog, context_settings=_HELP, **more)
            return decorate(function)

        return register


def _write_examples(epilog: str | None, formatter: Any) -> None:
    with formatter.section("Examples"):
        for line in (epilog or "").splitlines():
            formatter.write(f"  {line}\n")


class _Verb(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments like typer, with plain error messages."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            from pydantic import ValidationError

            from sizewright.spec._faults import explain

            if isinstance(error.__cause__, ValidationError):
                error.message = explain(error.__cause__.errors()[0]).rstrip(".") + "."
            raise

    def invoke(self, ctx: Any) -> Any:
        with ending.cleaning_up():
            return super().invoke(ctx)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_examples(self.epilog, formatter)


class _Group(TyperGroup):
    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_examples(self.epilog, formatter)
