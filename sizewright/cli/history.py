"""`sizewright history`: finished jobs, listed, exported, and imported from files or from a Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sizewright.cli.options import DescribedBy, DryRun, Output, Store, Text
from sizewright.cli.output import Format
from sizewright.cli.verbs import Verbs, examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sizewright.datasets.finished import FinishedJob

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
    told = [run.model_dump(mode="json", by_alias=True) for run in runs]
    show_data(told, output, lambda out: out.print(history_table(runs)))


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
    from sizewright.datasets.history_files import export_history
    from sizewright.spec.units import format_count

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
    """Add finished jobs to the store; those whose id is there already are not added again."""
    from sizewright import api
    from sizewright.cli.progress import Bar
    from sizewright.datasets.history_files import import_history

    with Bar("reading"):
        runs = import_history(file, job=api.counted(job) if job else None)
        told = _added(runs, store, dry_run)
    _show(told, output)


@app.command("prometheus")
@examples(
    "sizewright history prometheus http://prometheus:9090 --since 7d",
    "sizewright history prometheus http://prometheus:9090 --namespace ads --dry-run",
)
def prometheus(
    url: Annotated[str, typer.Argument(metavar="URL", help="Such as http://prometheus:9090.")],
    since: Annotated[str, typer.Option("--since", help="How far to look back: 24h, 7d.")] = "24h",
    step: Annotated[str, typer.Option("--step", help="Between two values of a series.")] = "30s",
    namespace: Annotated[Text, typer.Option("--namespace", help="Only this one.")] = None,
    pod_name: Annotated[
        Text, typer.Option("--pod-name", help="Regular expression with the groups job, role and index.")
    ] = None,
    store: Store = None,
    job: DescribedBy = None,
    dry_run: DryRun = False,
    output: Output = Format.table,
) -> None:
    """Add jobs that ended, from the CPU and memory series of their pods (cAdvisor's metrics)."""
    import time

    from sizewright import api
    from sizewright.cli.progress import Bar
    from sizewright.datasets.pod_series import POD_NAME, jobs_of_pods
    from sizewright.datasets.prometheus import Prometheus
    from sizewright.errors import InputError

    end = time.time()
    since_s, step_s = _seconds("--since", since, "24h"), _seconds("--step", step, "30s")
    if since_s > end:
        raise InputError(f"--since {since} is before 1970.", "Write such as 24h.")
    if step_s > since_s / 2:
        raise InputError(
            f"--step {step} leaves fewer than three values in --since {since}.",
            "Pass a shorter step, such as 30s, or look further back.",
        )
    with Bar("asking"):
        runs = jobs_of_pods(
            Prometheus(url), end - since_s, end, step_s=step_s,
            namespace=namespace, pod_name=pod_name or POD_NAME, job=api.counted(job) if job else None,
        )  # fmt: skip
        told = _added(runs, store, dry_run)
    _show(told, output)


def _seconds(option: str, text: str, such_as: str) -> float:
    from sizewright.errors import InputError
    from sizewright.spec.units import parse_seconds

    remedy = f"Write such as {such_as}."
    try:
        seconds = parse_seconds(text)
    except ValueError as error:
        raise InputError(f"{option}: {error}.", remedy) from None
    if seconds <= 0:
        raise InputError(f"{option} {text} is not above 0.", remedy)
    return seconds


def _added(runs: Sequence[FinishedJob], store: str | None, dry_run: bool) -> dict[str, Any]:
    """How many were new, and how many were there already."""
    from sizewright import api
    from sizewright.errors import NoTrialsError

    try:
        with api.open_store(store, create=not dry_run) as opened:
            name = opened.name
            if dry_run:
                there = {run.id for run in opened.history.finished()}
                new = sum(run.id not in there for run in runs)
            else:
                new = opened.history.add(runs)
    except NoTrialsError:  # which a dry run does not make
        name, new = "a new store", len(runs)
    return {"store": name, "added": new, "already_there": len(runs) - new, "dry_run": dry_run}


def _show(told: dict[str, Any], output: Format) -> None:
    from sizewright.cli.output import show_data
    from sizewright.spec.units import format_count

    new, there = told["added"], told["already_there"]
    if new:
        verb = "Would add" if told["dry_run"] else "Added"
        text = f"{verb} {format_count(new, 'finished job')} to {told['store']} ({there} were there already)"
    else:
        text = f"Nothing to add: {format_count(there, 'finished job')} found, and {told['store']} has them all"
    show_data(told, output, lambda out: out.print(text))
