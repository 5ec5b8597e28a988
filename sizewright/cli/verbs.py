"""Registration of verbs with examples, which appear in `--help` and in the documentation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from sizewright.cli.ending import ending
from sizewright.redaction import hide_in_words, shown

F = TypeVar("F", bound=Callable[..., Any])
_HELP = {"help_option_names": ["--help", "-h"]}
_WORDS = f"{__name__}.words"


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


@contextmanager
def _safe_messages(words: Sequence[str]) -> Iterator[None]:
    """Remove secrets and control characters from errors of the parser, which typer prints itself."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):  # typer does not export the class of these errors
            vars(error)["message"] = _without_secrets(str(vars(error)["message"]), words)
        raise


def _without_secrets(message: str, words: Sequence[str]) -> str:
    """Return a message about the words of a command line; a secret in a word extends to its end, with its spaces."""
    values = [word.partition("=")[2] for word in words]
    hidden = [*hide_in_words(words, "***"), *(next(hide_in_words([value], "***")) for value in values)]
    for word, without in zip([*words, *values], hidden, strict=True):
        if word != without:
            for written in (word, repr(word)[1:-1]):
                message = without.join(re.split(rf"(?<![\w-]){re.escape(written)}(?![\w-])", message))
    return shown(message)


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
    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse arguments like typer, with safe error messages."""
        words = list(args)
        with _safe_messages(words):
            context = super().make_context(info_name, args, parent, **extra)
        context.meta[_WORDS] = words
        return context

    def invoke(self, ctx: Any) -> Any:
        with _safe_messages(ctx.meta[_WORDS]):
            return super().invoke(ctx)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        _write_examples(self.epilog, formatter)
