"""`sizewright history`: list, export and import finished jobs, from files, from Prometheus or from Slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sizewright.cli.options import DescribedBy, DryRun, Output, Store, Text
from sizewright.cli.output import Format
from sizewright.cli.verbs import Verbs, examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sizewright.datasets.runs.finished_job import FinishedJob

app = Verbs(
    "List, export and import finished jobs.",
    "sizewright history list",
    "sizewright history import runs.csv --job job.yaml",
)


@app.command("list")
@examples("sizewright history list", "sizewright history list --store trials.db --output json")
def list_history(store: Store = None, output: Output = Format.table) -> None:
    """Print the finished jobs of the store."""
    from sizewright import api
    from sizewright.cli.output import show_data
    from sizewright.cli.progress import Bar
    from sizewright.cli.tables import history_table

    with Bar("reading"), api.open_store(store) as opened:
        runs = opened.history.finished()
    data = [run.model_dump(mode="json", by_alias=True) for run in runs]
    show_data(data, output, lambda out: out.print(history_table(runs)))


@app.command("export")
@examples("sizewright history export runs.json", "sizewright history export runs.json --store trials.db")
def export_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A .json file.")],
    store: Store = None,
    output: Output = Format.table,
) -> None:
    """Write the finished jobs of the store to a JSON file."""
    from sizewright import api
    from sizewright.cli.output import show_data
    from sizewright.cli.progress import Bar
    from sizewright.datasets.runs.history_files import export_history
    from sizewright.formatting import format_count

    with Bar("reading"), api.open_store(store) as opened:
        runs = opened.history.finished()
    export_history(runs, file)
    text = f"Wrote {format_count(len(runs), 'finished job')} to {file}"
    show_data({"file": file, "finished_jobs": len(runs)}, output, lambda out: out.print(text))


@app.command("import")
@examples(
    "sizewright history import runs.csv --job job.yaml",
    "sizewright history import runs.json --dry-run --output json",
)
def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A .json, .jsonl or .csv file.")],
    store: Store = None,
    job: DescribedBy = None,
    dry_run: DryRun = False,
    output: Output = Format.table,
) -> None:
    """Add finished jobs to the store. Jobs whose id is already in the store are skipped."""
    from sizewright import api
    from sizewright.cli.progress import Bar
    from sizewright.datasets.runs.history_files import import_history

    with Bar("reading"):
        runs = import_history(file, job=api.counted_job(job) if job else None)
        result = _add(runs, store, dry_run)
    _show(result, output)


@app.command("prometheus")
@examples(
    "sizewright history prometheus http://prometheus:9090 --since 7d",
    "sizewright history prometheus http://prometheus:9090 --namespace ads --dry-run",
)
def prometheus(
    url: Annotated[str, typer.Argument(metavar="URL", help="URL of Prometheus, such as http://prometheus:9090.")],
    since: Annotated[str, typer.Option("--since", help="How far to look back, such as 24h or 7d.")] = "24h",
    step: Annotated[str, typer.Option("--step", help="Time between two values of a series.")] = "30s",
    namespace: Annotated[Text, typer.Option("--namespace", help="Only jobs in this namespace.")] = None,
    pod_name: Annotated[
        Text, typer.Option("--pod-name", help="Regular expression for pod names, with the groups job, role and index.")
    ] = None,
    store: Store = None,
    job: DescribedBy = None,
    dry_run: DryRun = False,
    output: Output = Format.table,
) -> None:
    """Add finished jobs from the CPU and memory series of their pods (cAdvisor metrics)."""
    import time

    from sizewright import api
    from sizewright.cli.progress import Bar
    from sizewright.datasets.runs.pod_history import POD_NAME, jobs_of_pods
    from sizewright.datasets.runs.prometheus import Prometheus
    from sizewright.errors import InputError

    end = time.time()
    since_s = _seconds("--since", since, "24h")
    step_s = _seconds("--step", step, "30s")
    if since_s > end:
        raise InputError(f"--since {since} is before 1970.", "Write for example 24h.")
    if step_s > since_s / 2:
        raise InputError(
            f"--step {step} leaves fewer than three values in --since {since}.",
            "Pass a shorter step, such as 30s, or look further back.",
        )
    with Bar("querying"):
        runs = jobs_of_pods(
            Prometheus(url),
            end - since_s,
            end,
            step_s=step_s,
            namespace=namespace,
            pod_name=pod_name or POD_NAME,
            job=api.counted_job(job) if job else None,
        )
        result = _add(runs, store, dry_run)
    _show(result, output)


@app.command("sacct")
@examples(
    "sizewright history sacct sacct.txt",
    "sizewright history sacct sacct.txt --job job.yaml --dry-run",
)
def sacct(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Output of sacct --parsable2 with its header, or of sacct --json."),
    ],
    store: Store = None,
    job: DescribedBy = None,
    dry_run: DryRun = False,
    output: Output = Format.table,
) -> None:
    """Add finished jobs from Slurm's accounting: what they asked for and used."""
    from sizewright import api
    from sizewright.cli.progress import Bar
    from sizewright.datasets.runs.slurm_history import jobs_of_sacct

    with Bar("reading"):
        runs = jobs_of_sacct(files, job=api.counted_job(job) if job else None)
        result = _add(runs, store, dry_run)
    _show(result, output)


def _seconds(option: str, text: str, example: str) -> float:
    from sizewright.errors import InputError
    from sizewright.spec.units import parse_seconds

    remedy = f"Write for example {example}."
    try:
        seconds = parse_seconds(text)
    except ValueError as error:
        raise InputError(f"{option}: {error}.", remedy) from None
    if seconds <= 0:
        raise InputError(f"{option} must be above 0, got {text}.", remedy)
    return seconds


def _add(runs: Sequence[FinishedJob], store: str | None, dry_run: bool) -> dict[str, Any]:
    """Add the finished jobs that are new, and return how many there were."""
    from sizewright import api
    from sizewright.errors import NoTrialsError

    try:
        with api.open_store(store, create=not dry_run) as opened:
            name = opened.name
            if dry_run:
                known = {run.id for run in opened.history.finished()}
                new = sum(run.id not in known for run in runs)
            else:
                new = opened.history.add(runs)
    except NoTrialsError:  # a dry run does not create a store
        name, new = "a new store", len(runs)
    return {"store": name, "added": new, "already_there": len(runs) - new, "dry_run": dry_run}


def _show(result: dict[str, Any], output: Format) -> None:
    from sizewright.cli.output import show_data
    from sizewright.formatting import format_count

    added, known = result["added"], result["already_there"]
    if added:
        verb = "Would add" if result["dry_run"] else "Added"
        text = f"{verb} {format_count(added, 'finished job')} to {result['store']} ({known} were there already)"
    else:
        text = f"Nothing to add: {result['store']} already has all of the {format_count(known, 'finished job')}"
    show_data(result, output, lambda out: out.print(text))
