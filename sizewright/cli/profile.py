"""`sizewright profile`: run trials, with a progress bar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sizewright.cli.options import DataPath, JobFile, Output, Store
from sizewright.cli.output import Format

if TYPE_CHECKING:
    from sizewright.datasets.click_logs import ReadReport
    from sizewright.profiler.series import Progress as Step


def profile(
    job: JobFile,
    output: Output = Format.table,
    store: Store = None,
    data: DataPath = None,
    trials: Annotated[int, typer.Option("--trials", min=1, max=64, help="Allocations to measure.")] = 9,
    accept_drift: Annotated[
        bool,
        typer.Option("--accept-drift", help="Keep a series during which the host's speed changed, with wider errors."),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start a new series instead of going on with the last.")
    ] = False,
) -> None:
    """Measure real trial steps of a job on this host and keep them in the store."""
    import sys
    from contextlib import redirect_stdout

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from sizewright import api
    from sizewright.cli.output import show_data, stderr
    from sizewright.cli.tables import trials_table
    from sizewright.errors import TrialError

    described = api.load_job(job, data)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = stderr()
    if report := api.check_log(described):
        console.print(_describe_log(report))
    with api.open_store(store, create=True) as opened, Progress(*columns, console=console) as bar:
        task = bar.add_task("starting Ray", total=None)

        def advance(step: Step, total: int) -> None:
            bar.update(task, total=total, advance=1, description=_describe(step))

        with redirect_stdout(sys.stderr):  # Ray prints there when a replica dies
            finished = api.profile(
                described, store=opened, trials=trials, fresh=fresh, accept_drift=accept_drift, progress=advance
            )
        where = opened.name
    for told in {t.message for t in finished if t.usable and t.message}:
        console.print(f"{told} Its errors are raised to that.", style="yellow")
    for trial in finished:
        if not trial.usable:
            console.print(f"A trial ended as {trial.status}: {trial.message}", style="yellow")
    show_data([t.model_dump(mode="json") for t in finished], output, lambda out: out.print(trials_table(finished)))
    good = sum(t.usable for t in finished)
    if not good:
        raise TrialError("No trial ended well.", "The lines above say why.")
    console.print(f"{good} trials in {where}. Next: sizewright recommend {job}")


def _describe_log(report: ReadReport) -> str:
    first = f"; the first: {report.faults[0].problem} (line {report.faults[0].line})" if report.faults else ""
    return f"Looked at {report.rows:,} rows of the log: {report.broken:,} are broken{first}."


def _describe(step: Step) -> str:
    a = step.point.allocation
    rate = f"{step.trial.throughput:,.0f} samples/s" if step.trial.throughput else step.trial.status
    shape = f"{a.replicas('worker')}×{a.worker[0].cpu:g} + {a.replicas('ps')}×{a.ps[0].cpu:g}"
    return f"{shape} cores, tables × {step.point.table_scale:g}: {rate}"
