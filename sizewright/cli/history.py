"""`sizewright history`: finished jobs, listed, exported, and imported from files or from a Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from sizewright.cli.options import Output, Store
from sizewright.cli.output import Format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sizewright.datasets.finished import FinishedJob

app = typer.Typer(help="List, export and import finished jobs.", no_args_is_help=True)

JobOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--job", help="The job file that describes those without a description."),
]


@app.command("list")
def list_history(store: Store = None, output: Output = Format.table) -> None:
    """Print the finished jobs of the store."""
    from sizewright import api
    from sizewright.cli.output import show_data
    from sizewright.cli.tables import history_table

    with api.open_store(store) as opened:
        runs = opened.history.finished()
    told = [run.model_dump(mode="json", by_alias=True) for run in runs]
    show_data(told, output, lambda out: out.print(history_table(runs)))


@app.command("export")
def export_(file: Annotated[str, typer.Argument(metavar="FILE", help="A .json file.")], store: Store = None) -> None:
    """Write the finished jobs of the store to a JSON file."""
    from sizewright import api
    from sizewright.datasets.history_files import export_history

    with api.open_store(store) as opened:
        runs = opened.history.finished()
    export_history(runs, file)
    typer.echo(f"Wrote {len(runs)} finished jobs to {file}")


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A .json, .jsonl or .csv file.")],
    store: Store = None,
    job: JobOption = None,
) -> None:
    """Add finished jobs to the store; those whose id is there already are not added again."""
    from sizewright import api
    from sizewright.datasets.history_files import import_history

    _add(import_history(file, job=api.counted(job) if job else None), store)


@app.command("prometheus")
def prometheus(
    url: Annotated[str, typer.Argument(metavar="URL", help="Such as http://prometheus:9090.")],
    since: Annotated[str, typer.Option("--since", help="How far to look back: 24h, 7d.")] = "24h",
    step: Annotated[str, typer.Option("--step", help="Between two values of a series.")] = "30s",
    namespace: Annotated[Optional[str], typer.Option("--namespace", help="Only this one.")] = None,  # noqa: UP045
    pod_name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--pod-name", help="Regular expression with the groups job, role and index."),
    ] = None,
    store: Store = None,
    job: JobOption = None,
) -> None:
    """Add jobs that ended, from the CPU and memory series of their pods (cAdvisor's metrics)."""
    import time

    from sizewright import api
    from sizewright.datasets.pod_series import POD_NAME, jobs_of_pods
    from sizewright.datasets.prometheus import Prometheus
    from sizewright.errors import InputError

    end = time.time()
    if end - _seconds("--since", since) < 0:
        raise InputError(f"--since {since} is before 1970.", "Write such as 24h.")
    runs = jobs_of_pods(
        Prometheus(url), end - _seconds("--since", since), end, step_s=_seconds("--step", step), namespace=namespace,
        pod_name=pod_name or POD_NAME, job=api.counted(job) if job else None,
    )  # fmt: skip
    _add(runs, store)


def _seconds(option: str, text: str) -> float:
    from sizewright.errors import InputError
    from sizewright.spec.units import parse_seconds

    try:
        seconds = parse_seconds(text)
    except ValueError as error:
        raise InputError(f"{option}: {error}.", "Write such as 24h.") from None
    if seconds <= 0:
        raise InputError(f"{option} {text} is not above 0.", "Write such as 24h.")
    return seconds


def _add(runs: Sequence[FinishedJob], store: str | None) -> None:
    from sizewright import api

    with api.open_store(store, create=True) as opened:
        new = opened.history.add(runs)
        typer.echo(f"Added {new} finished jobs to {opened.name} ({len(runs) - new} were there already)")
