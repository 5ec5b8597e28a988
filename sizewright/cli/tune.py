"""`sizewright tune`: a control loop beside a job that another process runs, or ran, with a live view."""

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
from sizewright.spec.units import format_count

if TYPE_CHECKING:
    from rich.console import Console

    from sizewright.recommender.decisions import Decision

_STOPPED = 130


@examples(
    "sizewright tune criteo-dlrm",
    "sizewright tune criteo-dlrm --pause",
    "sizewright tune job.yaml --replay metrics.jsonl --cluster cluster.yaml",
)
def tune(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name, file or handle id of a job that `run` trains.")],
    output: Output = Format.table,
    pause: Annotated[bool, typer.Option("--pause", help="Pause the run's own loop, and do no more.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Let the run's own loop go on, and do no more.")] = False,
    replay: Annotated[
        Text, typer.Option("--replay", help="Say what would be done on metrics that `run --metrics` recorded.")
    ] = None,
    change_s: Annotated[
        Number,
        typer.Option(
            "--change-s",
            metavar="TIME",
            parser=read_seconds(),
            help="For a replay: time that a change costs, such as 20s or 2m.",
        ),
    ] = None,
    prometheus: Annotated[
        Text, typer.Option("--prometheus", help="URL of a Prometheus that scrapes the run's metrics port; a dry run.")
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
    """Watch a running job and change it where that pays, until it ends. Ctrl-C ends this, and the job trains on.

    Without anything to carry out plans, in a replay or from a Prometheus, it says what it would do. It goes on from the
    decisions that the file holds.
    """
    from pathlib import Path

    from sizewright import api
    from sizewright.cli.live import LiveView
    from sizewright.cli.output import show_data, stderr
    from sizewright.executors.tuning import Tuning

    if pause or resume:
        _pause(job, pause, resume, output)
        return
    told: list[Decision] = []
    code = 0
    with LiveView(stderr()) as view:

        def decided(decision: Decision) -> None:
            told.append(decision)
            view.decided(decision)

        try:
            api.tune(
                job, replay=replay, change_s=change_s, prometheus=prometheus, plans=plans,
                how=Tuning(dry_run=dry_run, decisions=Path(decisions) if decisions else None), store=store,
                prior=prior, tracking_uri=tracking_uri, cluster=cluster, metrics_port=metrics_port,
                metrics_host=metrics_host, progress=view.progressed, decided=decided,
            )  # fmt: skip
        except KeyboardInterrupt:
            code = _STOPPED
    data = [decision.model_dump(mode="json") for decision in told]
    show_data(data, output, lambda console: _print(console, told))
    raise typer.Exit(code)


def _pause(job: str, pause: bool, resume: bool, output: Format) -> None:
    from sizewright.cli.output import show_data
    from sizewright.errors import InputError
    from sizewright.executors.watched import attached_to

    if pause and resume:
        raise InputError("A loop is paused or goes on.", "Leave out --pause or --resume.")
    with attached_to(job) as run:
        run.pause(pause)
        name = run.status.handle.id
    text = f"The loop of {name} {'is paused' if pause else 'goes on'}."
    show_data({"job": name, "paused": pause}, output, lambda console: console.print(text))


def _print(console: Console, decisions: list[Decision]) -> None:
    from collections import Counter

    from sizewright.cli.live import changes_table

    counts = Counter(decision.kind for decision in decisions)
    console.print(
        f"{format_count(len(decisions), 'turn')}: {counts['adjust']} adjust, "
        f" {counts['keep']} keep, {counts['blind']} blind."
    )
    if counts["adjust"]:
        console.print(changes_table(decisions))
