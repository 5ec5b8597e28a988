"""`sizewright retrain`: learn the prior anew, and promote it if it is better."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sizewright.cli.options import BankFolder, DryRun, Output, Store, Tracking
from sizewright.cli.output import Format
from sizewright.cli.verbs import examples
from sizewright.redaction import redacted
from sizewright.spec.units import format_count

if TYPE_CHECKING:
    from rich.console import Console

    from sizewright.retraining.retrain import Retraining

_MOST_FLAGGED = 8


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
    if_drifted: Annotated[bool, typer.Option("--if-drifted", help="Only when runs go unlike foretold.")] = False,
    margin: Annotated[
        float, typer.Option("--margin", min=0, max=1, help="Share by which the median error must fall.")
    ] = 0.02,
    worst_family: Annotated[
        float, typer.Option("--worst-family", min=0, help="Share by which that of one family may rise.")
    ] = 0.05,
    output: Output = Format.table,
) -> None:
    """Learn the prior anew from the store's trials and runs; it is tracked in MLflow and promoted only if better.

    With --bank none it learns from the store alone; a dry run logs and registers nothing.
    """
    from sizewright import api
    from sizewright.cli.output import show, stderr
    from sizewright.cli.progress import Bar

    console = stderr()
    if if_drifted:
        drift = api.drift(store=store, tracking_uri=tracking_uri)
        if not drift.drifted:
            show(drift, output, lambda out: out.print(f"Nothing is retrained. {drift.reason}"))
            return
        console.print(drift.reason)
    with Bar("looking at what there is") as bar:
        told = api.retrain(
            store=store, tracking_uri=tracking_uri, bank=_bank(bank), dry_run=dry_run, margin=margin,
            worst_family=worst_family, progress=lambda text: bar.line(f"{text} …"),
        )  # fmt: skip
    show(told, output, lambda out: _print(out, told, tracking_uri or api.DEFAULT_TRACKING))


def _bank(name: str | None) -> str | None:
    return None if name == "none" else name or "shipped"


def _print(console: Console, told: Retraining, uri: str) -> None:
    who = f"{'Champion' if told.promoted else 'Challenger'}: version {told.version}"
    console.print(who if told.version else "Nothing was registered.", style="bold")
    console.print(told.reason)
    console.print(f"Learned from {format_count(told.trials, 'trial')} of {format_count(told.jobs, 'job')}.")
    for why, count in told.passed_over.items():
        console.print(f"passed over: {count} × {why}", style="dim")
    for text in told.flagged[:_MOST_FLAGGED]:
        console.print(f"left out: {text}", style="yellow")
    if len(told.flagged) > _MOST_FLAGGED:
        console.print(f"left out: {len(told.flagged) - _MOST_FLAGGED} more (--output json has all)", style="yellow")
    if told.promoted:
        console.print(f"Next: sizewright recommend JOB --tracking-uri {redacted(uri)}", soft_wrap=True)
