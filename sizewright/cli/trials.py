"""`sizewright trials`: list, export and import measurements."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from sizewright.cli.options import Output, Store
from sizewright.cli.output import Format

app = typer.Typer(help="List, export and import trials.", no_args_is_help=True)

JobOption = Annotated[Optional[str], typer.Option("--job", help="Only trials of this job file.")]  # noqa: UP045
File = Annotated[str, typer.Argument(metavar="FILE", help="A .csv or .parquet file.")]


@app.command("list")
def list_trials(store: Store = None, job: JobOption = None, output: Output = Format.table) -> None:
    """Print the trials of the store."""
    from sizewright import api
    from sizewright.cli.output import show_data
    from sizewright.cli.tables import trials_table

    with api.open_store(store) as opened:
        trials = opened.trials(job_hash=api.job_hash(job) if job else None)
    show_data([t.model_dump(mode="json") for t in trials], output, lambda out: out.print(trials_table(trials)))


@app.command("export")
def export_(file: File, store: Store = None, job: JobOption = None, output: Output = Format.table) -> None:
    """Write the trials of the store to a CSV or Parquet file."""
    from sizewright import api
    from sizewright.cli.output import show_data
    from sizewright.datasets.trial_files import export_trials

    with api.open_store(store) as opened:
        trials = opened.trials(job_hash=api.job_hash(job) if job else None)
    export_trials(trials, file)
    told = {"file": file, "trials": len(trials)}
    show_data(told, output, lambda out: out.print(f"Wrote {len(trials)} trials to {file}", soft_wrap=True))


@app.command("import")
def import_(
    file: File,
    store: Store = None,
    job: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--job", help="The job file that these trials measured."),
    ] = None,
    output: Output = Format.table,
) -> None:
    """Add measurements of your own to the store; they need the columns workers, ps and throughput.

    A row that is there already is not added again.
    """
    from sizewright import api
    from sizewright.cli.output import show_data
    from sizewright.datasets.trial_files import import_trials

    trials = import_trials(file)
    if job:
        trials = api.assign_job(trials, job)
    with api.open_store(store, create=True) as opened:
        if job:
            opened.history.add_job(api.counted(job))
        there = set(opened.trials())
        new = [trial for trial in trials if trial not in there]
        for trial in new:
            opened.add(trial)
        told = {"store": opened.name, "added": len(new), "already_there": len(trials) - len(new)}
    text = f"Added {told['added']} trials to {told['store']} ({told['already_there']} were there already)"
    show_data(told, output, lambda out: out.print(text, soft_wrap=True))
