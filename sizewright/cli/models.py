"""`sizewright models`: how well throughput models tell measured tables, and which learned priors are registered."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from sizewright.cli.options import Output, Store, Tracking
from sizewright.cli.output import Format

if TYPE_CHECKING:
    from sizewright.retraining.registry import Version

app = typer.Typer(help="Throughput models and learned priors: which there are, and how well they do.",
                  no_args_is_help=True)  # fmt: skip

_VERSION = re.compile(r"@?(champion|challenger)|\d+")
Which = Annotated[str, typer.Argument(metavar="VERSION", help="Its number, champion or challenger.")]


@app.command("compare")
def compare(
    tables: Annotated[
        list[str],
        typer.Argument(metavar="TABLE...|VERSION...", help="CSV or Parquet files of trials, or registered priors."),
    ],
    trials: Annotated[int, typer.Option("--trials", min=3, help="How many a model learns from.")] = 8,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How often, with other trials each time.")] = 5,
    model: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--model", help="Only this one; may be given again."),
    ] = None,
    store: Store = None,
    tracking_uri: Tracking = None,
    output: Output = Format.table,
) -> None:
    """Compare all models on a few trials of each table; or registered priors on the held-out jobs of bank and store."""
    from sizewright import api
    from sizewright.cli.output import show_data
    from sizewright.cli.tables import models_table, priors_table

    if all(_VERSION.fullmatch(table) for table in tables):
        told = api.compare_priors(tables, store=store, tracking_uri=tracking_uri)
        show_data(told, output, lambda console: console.print(priors_table(told)))
        return
    from sizewright.models.registry import get_model, model_names
    from sizewright.profiler.evaluation import compare_models
    from sizewright.profiler.measured_table import read_tables

    names = model or model_names()
    for name in names:
        get_model(name)
    rows = compare_models(read_tables(tables), names, trials, range(seeds))
    show_data(rows, output, lambda console: console.print(models_table(rows, trials)))


@app.command("list")
def list_models(tracking_uri: Tracking = None, output: Output = Format.table) -> None:
    """Name the throughput models; with a registry, the learned priors in it."""
    from sizewright import api
    from sizewright.cli.output import show_data
    from sizewright.cli.tables import versions_table
    from sizewright.models.registry import model_names

    if tracking_uri is None:
        names = list(model_names())
        show_data(names, output, lambda console: console.print("\n".join(names)))
        return
    versions = api.open_registry(tracking_uri).versions()
    rows = [_told(version) for version in versions]
    show_data(rows, output, lambda console: console.print(versions_table(rows)))


@app.command("show")
def show_version(which: Which = "champion", tracking_uri: Tracking = None, output: Output = Format.table) -> None:
    """Tell all about a registered prior; its file is checked against what was registered."""
    from sizewright import api
    from sizewright.cli.output import show_data

    registry = api.open_registry(tracking_uri)
    version = registry.version(which)
    registry.check(version)
    told = _told(version)
    show_data(told, output, lambda console: console.print("\n".join(f"{k}: {v}" for k, v in told.items())))


@app.command("promote")
def promote(which: Which, tracking_uri: Tracking = None) -> None:
    """Make a version the champion, whatever the gate said."""
    from sizewright import api

    registry = api.open_registry(tracking_uri)
    version = registry.version(which)
    registry.check(version)
    registry.promote(version)
    typer.echo(f"{version.source} is the champion now.")


@app.command("rollback")
def rollback(tracking_uri: Tracking = None) -> None:
    """Make the version that the champion replaced the champion again."""
    from sizewright import api

    typer.echo(f"{api.open_registry(tracking_uri).rollback().source} is the champion again.")


@app.command("drift")
def drift(store: Store = None, tracking_uri: Tracking = None, output: Output = Format.table) -> None:
    """Say whether runs still go as the champion foretold. Exits 5 when they do not."""
    from sizewright import api
    from sizewright.cli.output import show

    told = api.drift(store=store, tracking_uri=tracking_uri)
    word = "Drifted" if told.drifted else "No drift"
    show(told, output, lambda console: console.print(f"{word}: {told.reason}", soft_wrap=True))
    raise typer.Exit(5 if told.drifted else 0)


def _told(version: Version) -> dict[str, Any]:
    from datetime import datetime, timezone

    made = datetime.fromtimestamp(version.created_ms / 1000, timezone.utc).isoformat(timespec="seconds")
    about = {"version": version.number, "aliases": list(version.aliases), "made": made, "run_id": version.run_id}
    return about | {key: value for key, value in sorted(version.tags.items()) if not key.startswith("mlflow.")}
