"""`sizewright report`: the evidence of a recommendation, as one page or as pictures."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from sizewright.cli.options import (
    ClusterFile,
    ColumnMap,
    DataPath,
    Deadline,
    Extrapolate,
    LedgerFile,
    Machine,
    Model,
    Objective,
    Out,
    Output,
    Prior,
    Samples,
    Spot,
    Store,
    Text,
    Tracking,
    TrialsFile,
)
from sizewright.cli.output import Format
from sizewright.cli.sizing_inputs import read_rows
from sizewright.cli.verbs import examples


class Form(str, Enum):
    """The format of a report."""

    html = "html"
    png = "png"
    svg = "svg"


@examples(
    "sizewright report",
    "sizewright report job.yaml --store trials.db --out job.html",
    "sizewright report job.yaml --format svg --out figures --metrics metrics.jsonl",
)
def report(
    job: Annotated[
        Text, typer.Argument(metavar="JOB", help="The job file. Default: the only job of the store.")
    ] = None,
    form: Annotated[Form, typer.Option("--format", help="One HTML page, or a folder of pictures.")] = Form.html,
    out: Out = None,
    output: Output = Format.table,
    store: Store = None,
    trials: TrialsFile = None,
    map_: ColumnMap = None,
    cluster: ClusterFile = None,
    machine: Machine = None,
    spot: Spot = None,
    data: DataPath = None,
    samples: Samples = None,
    model: Model = None,
    prior: Prior = None,
    tracking_uri: Tracking = None,
    objective: Objective = None,
    deadline: Deadline = None,
    metrics: Annotated[
        Text,
        typer.Option("--metrics", metavar="FILE", help="Metrics of a run, written by `sizewright run --metrics`."),
    ] = None,
    decisions: Annotated[
        Text,
        typer.Option(
            "--decisions", metavar="FILE", help="Decisions of a run, written by `sizewright run --decisions`."
        ),
    ] = None,
    ledger: LedgerFile = None,
    extrapolate: Extrapolate = False,
) -> None:
    """Show the evidence of a recommendation: reasons, curves, costs, memory, runs and trials.

    The report is one HTML file that needs no network, by default report.html; pictures are written to the folder
    report.
    """
    from sizewright import api
    from sizewright.cli.output import show_data, stderr
    from sizewright.cli.progress import Bar

    loaded_job = api.load_job(job, data) if job else None
    trial_rows = read_rows(trials, map_, loaded_job)
    with Bar("sizing"):
        files, missing = api.report(
            loaded_job,
            trials=trial_rows,
            store=store,
            cluster=cluster,
            machine=machine,
            spot=spot,
            extrapolate=extrapolate,
            model=model,
            prior=prior,
            tracking_uri=tracking_uri,
            metrics=metrics,
            decisions=decisions,
            ledger=ledger,
            samples=samples,
            objective=objective and objective.value,
            deadline=deadline,
            form=form.value,
            out=out,
        )
    for text in missing:
        stderr().print(f"Not drawn: {text}")
    names = [str(file) for file in files]
    result = {"files": names, "not_drawn": missing}
    show_data(result, output, lambda console: console.print("\n".join(names), soft_wrap=True))
