"""`sizewright apply`: show what a plan changes on a platform, and carry it out."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sizewright.cli.options import (
    EXECUTOR_HELP,
    Base,
    DryRun,
    KubeContext,
    LedgerFile,
    Out,
    Output,
    RailsFile,
    Roles,
    Text,
    executors,
    manifest_options,
    read_seconds,
)
from sizewright.cli.output import Format
from sizewright.cli.verbs import examples

if TYPE_CHECKING:
    from rich.console import Console

    from sizewright.spec import Application

_DECLINED = 1


@examples(
    "sizewright apply plan.yaml --executor jobset --dry-run",
    "sizewright apply plan.yaml --executor jobset --wait 600",
    "sizewright apply plan.yaml --executor slurm --out job.sh --yes",
)
def apply(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="A plan file, or a manifest rendered from one.")],
    executor: Annotated[str, typer.Option("--executor", metavar="NAME", help=EXECUTOR_HELP, autocompletion=executors)],
    output: Output = Format.table,
    base: Base = None,
    role: Roles = None,
    context: KubeContext = None,
    version: Annotated[
        Text, typer.Option("--version", help="Version of DLRover; 0.4 and older use ScalePlans.")
    ] = None,
    out: Out = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    rails: RailsFile = None,
    ledger: LedgerFile = None,
    asked_by: Annotated[
        Text, typer.Option("--asked-by", help="Name of the requester in the record. Default: your user name.")
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="TIME",
            parser=read_seconds(),
            help="Time to wait for the first training step after the change, such as 5m.",
        ),
    ] = 0.0,
) -> None:
    """Show what a plan changes, and apply it after your confirmation. A plan is carried out once.

    The plan and the requester are recorded in the audit log, by default sizewright-plans.jsonl. The job's own object is
    applied by server-side apply, as field manager `sizewright`; other documents of a base manifest are not applied.
    With --out the manifest is only written to a file, and nothing is recorded. Exits with 1 if you decline.
    """
    from sizewright import api
    from sizewright.cli.output import show, show_data, stderr
    from sizewright.cli.progress import Bar
    from sizewright.errors import InputError

    options: dict[str, Any] = {name: value for name, value in {"context": context, "version": version}.items() if value}
    options |= manifest_options(base, role)
    if out:
        if wait:
            raise InputError("--wait has no effect with --out, which only writes a file.", "Leave one of them out.")
        result, remarks = _write(plan, executor, options | {"asked_by": asked_by or ""}, out, rails, dry_run, yes)
        for remark in remarks:
            stderr().print(remark, style="yellow", soft_wrap=True)
        show_data(result, output, lambda console: _print_written(console, result))
        raise typer.Exit(_DECLINED if result["became"] == "declined" else 0)
    with ExitStack() as stack:

        def confirm(changes: str) -> bool:
            if changes and not (yes or _confirmed(changes)):
                return False
            stack.enter_context(Bar("applying"))
            return True

        application = api.apply(
            plan,
            executor=executor,
            rails=rails,
            ledger=ledger,
            asked_by=asked_by or _user(),
            dry_run=dry_run,
            confirm=confirm,
            wait_s=wait,
            **options,
        )
    show(application, output, lambda console: _print(console, application, shown=not (dry_run or yes)))
    raise typer.Exit(_DECLINED if application.became == "declined" else 0)


def _write(
    plan: str, executor: str, options: dict[str, Any], out: str, rails: str | None, dry_run: bool, yes: bool
) -> tuple[dict[str, str], list[str]]:
    """Write the manifest to a file after confirmation, and return the result and remarks for the user."""
    from pathlib import Path

    from sizewright import api
    from sizewright.cli.output import as_named, write_file
    from sizewright.datasets.files.atomic_write import result_file
    from sizewright.executors.difference import text_difference
    from sizewright.spec._paths import absolute
    from sizewright.spec._text_files import read_text

    out = result_file(out, f"{Path(plan).stem}.{'sh' if executor == 'slurm' else 'yaml'}")
    before = read_text(out, "manifest") if os.path.isfile(absolute(out)) else ""
    text, _, remarks = api.manifest(plan, executor=executor, rails=rails, before=before, **options)
    text = as_named(out, text)
    changes = text_difference(before, text)
    if not changes:
        outcome = "unchanged"
    elif dry_run:
        outcome = "dry run"
    elif yes or _confirmed(changes):
        outcome = "written"
        write_file(out, text)
    else:
        outcome = "declined"
    return {"file": out, "executor": executor, "became": outcome, "difference": changes}, remarks


def _print_written(console: Console, result: dict[str, str]) -> None:
    if result["became"] == "dry run":
        _show_changes(console, result["difference"])
        return
    sentences = {
        "written": f"The {result['executor']} manifest is in {result['file']}",
        "unchanged": f"{result['file']} already matches the plan.",
        "declined": f"{result['file']} was not written.",
    }
    console.print(sentences[result["became"]], soft_wrap=True)


def _user() -> str:
    import getpass
    import os

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in some containers
        return str(os.getuid())


def _confirmed(changes: str) -> bool:
    import sys

    from sizewright.cli.output import stderr
    from sizewright.errors import InputError

    _show_changes(stderr(), changes)
    if not sys.stdin.isatty():
        raise InputError(
            "Cannot ask for confirmation: stdin is not a terminal.",
            "Pass --yes, or --dry-run to see the changes first.",
        )
    return typer.confirm("Apply this?", err=True)


def _show_changes(console: Console, changes: str) -> None:
    colours = {"+": "green", "-": "red", "@": "cyan"}
    for line in changes.splitlines():
        console.print(line, style=colours.get(line[:1], ""), soft_wrap=True)


def _print(console: Console, application: Application, *, shown: bool) -> None:
    if not shown:
        _show_changes(console, application.difference)
    plan = f"Plan {application.plan_id}"
    job = application.handle.id if application.handle else ""
    sentences = {
        "applied": f"{application.executor} accepted plan {application.plan_id}{f' for {job}' if job else ''}.",
        "unchanged": f"{plan} was carried out before as {job}: nothing to do."
        if job  # a plan that keeps the job has no handle
        else f"{plan} keeps the job as it is.",
        "declined": f"{plan} was not applied.",
        "dry run": f"{plan} would make these changes." if application.difference else "Nothing would change.",
    }
    unchanged = application.message if application.became == "unchanged" else ""
    console.print(unchanged or sentences[application.became], style="bold")
    if application.first_step_s is not None:
        console.print(f"The first training step came after {application.first_step_s:.1f} s.")
    elif application.message and not unchanged:
        console.print(application.message, soft_wrap=True)
