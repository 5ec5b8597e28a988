"""`sizewright tune`: a control loop for a job that another process runs or ran, with a live view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sizewright.cli.options import (
    ClusterFile,
    DecisionsFile,
    DryRun,
    MetricsHost,
    MetricsPortNumber,
    Number,
    Output,
    Prior,
    Store,
    Text,
    Tracking,
    read_seconds,
)
from sizewright.cli.output import Format
from sizewright.cli.verbs import examples
from sizewright.formatting import format_count

if TYPE_CHECKING:
    from rich.console import Console

    from sizewright.recommender.control.decisions import Decision

_STOPPED = 130


@examples(
    "sizewright tune criteo-dlrm",
    "sizewright tune criteo-dlrm --pause",
    "sizewright tune job.yaml --replay metrics.jsonl --cluster cluster.yaml",
)
def tune(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="Name, job file or handle id of a job that `sizewright run` trains.")
    ],
    output: Output = Format.table,
    pause: Annotated[bool, typer.Option("--pause", help="Only pause the control loop of the run.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Only resume the control loop of the run.")] = False,
    replay: Annotated[
        Text, typer.Option("--replay", help="Show what would be decided on metrics recorded by `run --metrics`.")
    ] = None,
    change_s: Annotated[
        Number,
        typer.Option(
            "--change-s",
            metavar="TIME",
            parser=read_seconds(),
            help="For a replay: time that a change takes, such as 20s or 2m.",
        ),
    ] = None,
    prometheus: Annotated[
        Text,
        typer.Option(
            "--prometheus", help="URL of a Prometheus that scrapes the metrics of the run; implies a dry run."
        ),
    ] = None,
    plans: Annotated[Text, typer.Option("--plans", help="Write the plan of each change into this folder.")] = None,
    dry_run: DryRun = False,
    decisions: DecisionsFile = None,
    store: Store = None,
    prior: Prior = None,
    tracking_uri: Tracking = None,
    cluster: ClusterFile = None,
    metrics_port: MetricsPortNumber = None,
    metrics_host: MetricsHost = "127.0.0.1",
) -> None:
    """Watch a running job until it ends, and adjust it if that pays. After Ctrl-C the job continues to train.

    In a replay or from a Prometheus there is nothing that carries out plans, so the command shows what it would do.
    Decisions that the file of --decisions already holds are continued.
    """
    from pathlib import Path

    from sizewright import api
    from sizewright.cli.live import LiveView
    from sizewright.cli.output import show_data, stderr
    from sizewright.runtime.tuning import Tuning

    if pause or resume:
        _pause(job, pause, resume, output)
        return
    loop_decisions: list[Decision] = []
    code = 0
    with LiveView(stderr()) as view:

        def on_decision(decision: Decision) -> None:
            loop_decisions.append(decision)
            view.on_decision(decision)

        try:
            api.tune(
                job,
                replay=replay,
                change_s=change_s,
                prometheus=prometheus,
                plans=plans,
                how=Tuning(dry_run=dry_run, decisions=Path(decisions) if decisions else None),
                store=store,
                prior=prior,
                tracking_uri=tracking_uri,
                cluster=cluster,
                metrics_port=metrics_port,
                metrics_host=metrics_host,
                progress=view.progressed,
                decided=on_decision,
            )
        except KeyboardInterrupt:
            code = _STOPPED
    data = [decision.model_dump(mode="json") for decision in loop_decisions]
    show_data(data, output, lambda console: _print(console, loop_decisions))
    raise typer.Exit(code)


def _pause(job: str, pause: bool, resume: bool, output: Format) -> None:
    from sizewright.cli.output import show_data
    from sizewright.errors import InputError
    from sizewright.runtime.watched import attached_to

    if pause and resume:
        raise InputError("--pause and --resume exclude each other.", "Leave one of them out.")
    with attached_to(job) as run:
        run.pause(pause)
        name = run.status.handle.id
    text = f"The control loop of {name} is {'paused' if pause else 'resumed'}."
    show_data({"job": name, "paused": pause}, output, lambda console: console.print(text))


def _print(console: Console, decisions: list[Decision]) -> None:
    from collections import Counter

    from sizewright.cli.live import changes_table

    counts = Counter(decision.kind for decision in decisions)
    console.print(
        f"{format_count(len(decisions), 'decision')}: {counts['adjust']} adjust, {counts['keep']} keep, "
        f"{counts['blind']} skipped."
    )
    if counts["adjust"]:
        console.print(changes_table(decisions))
