"""`sizewright apply`: carry out a plan on a platform, after showing what it changes there."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sizewright.cli.options import (
    EXECUTOR_HELP,
    Base,
    DryRun,
    LedgerFile,
    Out,
    Output,
    RailsFile,
    Roles,
    Text,
    executors,
    of_base,
    read_seconds,
)
from sizewright.cli.output import Format
from sizewright.cli.verbs import examples

if TYPE_CHECKING:
    from rich.console import Console

    from sizewright.spec import Application

_DECLINED = 1


@examples(
    "sizewright apply plan.yaml --executor kubeflow --dry-run",
    "sizewright apply plan.yaml --executor kubeflow --wait 600",
    "sizewright apply plan.yaml --executor slurm --out job.sh --yes",
)
def apply(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="A plan file, or a manifest that was rendered of one.")],
    executor: Annotated[str, typer.Option("--executor", metavar="NAME", help=EXECUTOR_HELP, autocompletion=executors)],
    output: Output = Format.table,
    base: Base = None,
    role: Roles = None,
    context: Annotated[Text, typer.Option("--context", help="Of your kubeconfig, instead of its current one.")] = None,
    version: Annotated[Text, typer.Option("--version", help="Of DLRover: 0.4 and older take ScalePlans.")] = None,
    out: Out = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    rails: RailsFile = None,
    ledger: LedgerFile = None,
    asked_by: Annotated[Text, typer.Option("--asked-by", help="Who asks for it; you, otherwise.")] = None,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="TIME",
            parser=read_seconds(),
            help="How long to wait for the first step after it, such as 5m.",
        ),
    ] = 0.0,
) -> None:
    """Apply a plan: the difference is shown first, and who asked is recorded, in sizewright-plans.jsonl where no ledger
    is named. A plan is carried out once.

    The job's own object is applied by server-side apply, as field manager `sizewright`; other documents of a base
    manifest are not. With --out the manifest is only written, for others to apply, and nothing is recorded. Exits 1
    when you decline.
    """
    from sizewright import api
    from sizewright.cli.output import show, show_data, stderr
    from sizewright.cli.progress import Bar
    from sizewright.errors import InputError

    options: dict[str, Any] = {name: value for name, value in {"context": context, "version": version}.items() if value}
    options |= of_base(base, role)
    if out:
        if wait:
            raise InputError("--wait is for plans that are applied here; --out only writes a file.", "Leave one out.")
        written, remarks = _written(plan, executor, options | {"asked_by": asked_by or ""}, out, rails, dry_run, yes)
        for remark in remarks:
            stderr().print(remark, style="yellow", soft_wrap=True)
        show_data(written, output, lambda console: _print_written(console, written))
        raise typer.Exit(_DECLINED if written["became"] == "declined" else 0)
    with ExitStack() as stack:

        def confirm(changes: str) -> bool:
            if not (yes or _confirmed(changes)):
                return False
            stack.enter_context(Bar("applying"))
            return True

        told = api.apply(
            plan, executor=executor, rails=rails, ledger=ledger, asked_by=asked_by or _user(), dry_run=dry_run,
            confirm=confirm, wait_s=wait, **options,
        )  # fmt: skip
    show(told, output, lambda console: _print(console, told, shown=not (dry_run or yes)))
    raise typer.Exit(_DECLINED if told.became == "declined" else 0)


def _written(
    plan: str, executor: str, options: dict[str, Any], out: str, rails: str | None, dry_run: bool, yes: bool
) -> tuple[dict[str, str], list[str]]:
    """What became of the manifest in a file, and what a person has to look after in it."""
    from pathlib import Path

    from sizewright import api
    from sizewright.cli.output import as_named, write_file
    from sizewright.datasets.whole_files import file_at
    from sizewright.executors.difference import text_difference
    from sizewright.spec._paths import absolute

    out = file_at(out, f"{Path(plan).stem}.{'sh' if executor == 'slurm' else 'yaml'}")
    before = Path(absolute(out)).read_text(encoding="utf-8", errors="replace") if os.path.isfile(absolute(out)) else ""
    text, _, remarks = api.manifest(plan, executor=executor, rails=rails, before=before, **options)
    text = as_named(out, text)
    changes = text_difference(before, text)
    became = "unchanged"
    if changes:
        became = "dry run" if dry_run else "written" if yes or _confirmed(changes) else "declined"
    if became == "written":
        write_file(out, text)
    return {"file": out, "executor": executor, "became": became, "difference": changes}, remarks


def _print_written(console: Console, told: dict[str, str]) -> None:
    if told["became"] == "dry run":
        _show(console, told["difference"])
        return
    sentences = {
        "written": f"The {told['executor']} manifest is in {told['file']}",
        "unchanged": f"{told['file']} is as planned already.",
        "declined": f"{told['file']} is not written.",
    }
    console.print(sentences[told["became"]], soft_wrap=True)


def _user() -> str:
    import getpass
    import os

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number that has no name, as in some containers
        return str(os.getuid())


def _confirmed(changes: str) -> bool:
    import sys

    from sizewright.cli.output import stderr
    from sizewright.errors import InputError

    _show(stderr(), changes)
    if not sys.stdin.isatty():
        raise InputError("Nobody can be asked here whether to go on.", "Pass --yes, or --dry-run to look first.")
    return typer.confirm("Apply this?", err=True)


def _show(console: Console, changes: str) -> None:
    colours = {"+": "green", "-": "red", "@": "cyan"}
    for line in changes.splitlines():
        console.print(line, style=colours.get(line[:1], ""), soft_wrap=True)


def _print(console: Console, told: Application, *, shown: bool) -> None:
    if not shown:
        _show(console, told.difference)
    where = f" as {told.handle.id}" if told.handle else ""
    sentences = {
        "applied": f"Plan {told.plan_id} is applied by {told.executor}{where}.",
        "unchanged": f"Plan {told.plan_id} was carried out before{where}: nothing to do.",
        "declined": f"Plan {told.plan_id} is not applied.",
        "dry run": f"Plan {told.plan_id} would change this." if told.difference else "Nothing would change.",
    }
    console.print(sentences[told.became], style="bold")
    if told.first_step_s is not None:
        console.print(f"Its first step came after {told.first_step_s:.1f} s.")
