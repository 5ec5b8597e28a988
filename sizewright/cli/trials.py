"""`sizewright trials`: list, export and import measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sizewright.cli.options import ColumnMap, DescribedBy, DryRun, Output, Store, Text
from sizewright.cli.output import Format
from sizewright.cli.verbs import Verbs, examples

if TYPE_CHECKING:
    from sizewright.datasets.trials.files import TrialTable
    from sizewright.spec import Job

app = Verbs(
    "List, export and import trials.",
    "sizewright trials list",
    "sizewright trials import mine.csv --job job.yaml",
)

OfJob = Annotated[Text, typer.Option("--job", help="Only trials of the job in this job file.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="A .csv or .parquet file.")]
Measurements = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="A .csv, .tsv, .json, .jsonl or .parquet file; text files may be compressed (.gz)."
    ),
]


@app.command("list")
@examples("sizewright trials list", "sizewright trials list --job job.yaml --store trials.db --output json")
def list_trials(store: Store = None, job: OfJob = None, output: Output = Format.table) -> None:
    """Print the trials of the store."""
    from sizewright import api
    from sizewright.cli.output import show_data
    from sizewright.cli.tables import trials_table

    with api.open_store(store) as opened:
        trials = opened.trials(job=api.load_job(job) if job else None)
    show_data([t.model_dump(mode="json") for t in trials], output, lambda out: out.print(trials_table(trials)))


@app.command("export")
@examples("sizewright trials export trials.csv", "sizewright trials export trials.parquet --job job.yaml")
def export_(file: File, store: Store = None, job: OfJob = None, output: Output = Format.table) -> None:
    """Write the trials of the store to a CSV or Parquet file."""
    from sizewright import api
    from sizewright.cli.output import show_data
    from sizewright.datasets.trials.files import export_trials
    from sizewright.formatting import format_count

    with api.open_store(store) as opened:
        trials = opened.trials(job=api.load_job(job) if job else None)
    export_trials(trials, file)
    text = f"Wrote {format_count(len(trials), 'trial')} to {file}"
    show_data({"file": file, "trials": len(trials)}, output, lambda out: out.print(text))


@app.command("import")
@examples(
    "sizewright trials import mine.csv --job job.yaml",
    "sizewright trials import mine.csv --job job.yaml --map speed=throughput",
    "sizewright trials import mine.parquet --dry-run --output json",
)
def import_(
    file: Measurements,
    store: Store = None,
    job: DescribedBy = None,
    map_: ColumnMap = None,
    dry_run: DryRun = False,
    output: Output = Format.table,
) -> None:
    """Add your own measurements to the store.

    They need the columns workers, ps (unless the job has no PS) and throughput. Columns that the trial table does not
    have are left out, and the answer names them. Rows that are already in the store, and copies of other rows, are
    skipped.
    """
    from sizewright.cli.output import show_data, stderr
    from sizewright.cli.progress import Bar
    from sizewright.formatting import format_count

    with Bar("reading"):
        result = _add(file, store, job, map_ or [], dry_run)
    if notes := result.pop("notes"):
        stderr().print(notes)
    added, known = result["added"], result["already_there"]
    if added:
        verb = "Would add" if dry_run else "Added"
        text = f"{verb} {format_count(added, 'trial')} to {result['store']} ({known:,} were there already)"
    else:
        text = f"Nothing to add: {result['store']} already has the {format_count(known, 'trial')} of {file}"
    show_data(result, output, lambda out: out.print(text))


def read_trial_file(path: str, mapping: list[str], job: Job | None) -> TrialTable:
    """Read a file of trials."""
    from sizewright.datasets.trials.column_names import read_mapping
    from sizewright.datasets.trials.files import read_trials

    return read_trials(path, columns=read_mapping(mapping), has_ps=job is None or job.has_ps)


def _add(file: str, store: str | None, job: str | None, mapping: list[str], dry_run: bool) -> dict[str, Any]:
    """Add the trials of a file that are new, and return how many there were."""
    from sizewright import api
    from sizewright.errors import NoTrialsError

    table = read_trial_file(file, mapping, api.load_job(job) if job else None)
    trials = api.assign_job(table.trials, job) if job else table.trials
    name, new = "a new store", trials
    try:
        with api.open_store(store, create=not dry_run) as opened:
            known = set(opened.trials())
            name, new = opened.name, [trial for trial in trials if trial not in known]
            if job and not dry_run:
                opened.history.add_job(api.counted_job(job))
            if not dry_run:
                opened.add_all(new)
    except NoTrialsError:  # a dry run does not create a store
        pass
    return {
        "store": name,
        "added": len(new),
        "already_there": len(trials) - len(new),
        "dry_run": dry_run,
        "read_as": table.columns.renamed,
        "left_out": list(table.columns.left_out),
        "notes": table.describe(),
    }
