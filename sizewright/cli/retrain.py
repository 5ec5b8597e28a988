"""`sizewright retrain`: learn a new prior, and promote it if it is better."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sizewright.cli.options import BankFolder, DryRun, Output, Store, Tracking
from sizewright.cli.output import Format
from sizewright.cli.verbs import examples
from sizewright.formatting import format_count
from sizewright.redaction import redacted

if TYPE_CHECKING:
    from rich.console import Console

    from sizewright.retraining.retrain import Retraining

_MAX_FLAGGED = 8


@examples(
    "sizewright retrain --dry-run",
    "sizewright retrain --if-drifted --tracking-uri http://mlflow:5000",
    "sizewright retrain --bank none --store trials.db --output json",
)
def retrain(
    store: Store = None,
    tracking_uri: Tracking = None,
    bank: BankFolder = None,
    dry_run: DryRun = False,
    if_drifted: Annotated[
        bool, typer.Option("--if-drifted", help="Retrain only if runs no longer match the predictions.")
    ] = False,
    margin: Annotated[
        float,
        typer.Option("--margin", min=0, max=1, help="Relative decrease of the median error that promotion requires."),
    ] = 0.02,
    worst_family: Annotated[
        float,
        typer.Option("--worst-family", min=0, help="Relative increase of the median error that one family may have."),
    ] = 0.05,
    output: Output = Format.table,
) -> None:
    """Learn a new prior from the bank and the store's trials and runs, and promote it if it is better.

    Every version is tracked in MLflow. With --bank none only the store is used. A dry run logs and registers nothing.
    """
    from sizewright import api
    from sizewright.cli.output import show, stderr
    from sizewright.cli.progress import Bar

    console = stderr()
    if if_drifted:
        drift = api.drift(store=store, tracking_uri=tracking_uri)
        if not drift.drifted:
            show(drift, output, lambda out: out.print(f"No retraining. {drift.reason}"))
            return
        console.print(drift.reason)
    with Bar("collecting trials") as bar:
        result = api.retrain(
            store=store,
            tracking_uri=tracking_uri,
            bank=None if bank == "none" else bank or "shipped",
            dry_run=dry_run,
            margin=margin,
            worst_family=worst_family,
            progress=lambda text: bar.line(f"{text} …"),
        )
    show(result, output, lambda out: _print(out, result, tracking_uri or api.DEFAULT_TRACKING))


def _print(console: Console, result: Retraining, uri: str) -> None:
    role = "Champion" if result.promoted else "Challenger"
    console.print(f"{role}: version {result.version}" if result.version else "Nothing was registered.", style="bold")
    console.print(result.reason)
    console.print(f"Learned from {format_count(result.trials, 'trial')} of {format_count(result.jobs, 'job')}.")
    for reason, count in result.passed_over.items():
        console.print(f"skipped: {count} × {reason}", style="dim")
    for text in result.flagged[:_MAX_FLAGGED]:
        console.print(f"left out: {text}", style="yellow")
    if len(result.flagged) > _MAX_FLAGGED:
        console.print(f"left out: {len(result.flagged) - _MAX_FLAGGED} more (--output json has all)", style="yellow")
    if result.promoted:
        console.print(f"Next: sizewright recommend JOB --tracking-uri {redacted(uri)}", soft_wrap=True)
