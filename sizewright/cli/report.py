"""`sizewright report`: what a recommendation rests on, as one page or as pictures."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Optional

import typer

from sizewright.cli.options import ClusterFile, DataPath, LedgerFile, Model, Prior, Store, Tracking


class Form(str, Enum):
    """What the report is written as."""

    html = "html"
    png = "png"
    svg = "svg"


def report(
    job: Annotated[
        Optional[str],  # noqa: UP045 (typer reads it at run time)
        typer.Argument(metavar="JOB", help="The job file; absent, the only job of the store."),
    ] = None,
    form: Annotated[Form, typer.Option("--format", help="One page, or a folder of pictures.")] = Form.html,
    out: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--out", help="The file, or for pictures the folder.  [default: report.html, or report]"),
    ] = None,
    store: Store = None,
    trials: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--trials", help="A CSV or Parquet file of trials instead of the store."),
    ] = None,
    cluster: ClusterFile = None,
    data: DataPath = None,
    model: Model = None,
    prior: Prior = None,
    tracking_uri: Tracking = None,
    metrics: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--metrics", help="What `sizewright run --metrics` kept of a run."),
    ] = None,
    decisions: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--decisions", help="What `sizewright run --decisions` kept of a run."),
    ] = None,
    ledger: LedgerFile = None,
    extrapolate: Annotated[
        bool, typer.Option("--extrapolate", help="Allow choices beyond twice the measured range.")
    ] = False,
) -> None:
    """Show what a recommendation rests on: its reasons, curves, costs, memory, runs and trials, in one HTML file that
    needs no network.
    """
    from sizewright import api
    from sizewright.cli.output import stderr

    given = None
    if trials:
        from sizewright.datasets.trial_files import import_trials

        given = import_trials(trials)
    described = api.load_job(job, data) if job else None
    files, why_not = api.report(
        described, trials=given, store=store, cluster=cluster, extrapolate=extrapolate, model=model, prior=prior,
        tracking_uri=tracking_uri, metrics=metrics, decisions=decisions, ledger=ledger, form=form.value, out=out,
    )  # fmt: skip
    for text in why_not:
        stderr().print(f"Not drawn: {text}")
    for file in files:
        typer.echo(file)
