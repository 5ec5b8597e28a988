"""`sizewright models`: compare throughput models, and manage the learned priors in the registry."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from sizewright.cli.choices import MODEL_GROUP, MODELS, VERSIONS, among
from sizewright.cli.options import SEEDS_HELP, ColumnMap, DryRun, Output, Store, Tracking, read_count
from sizewright.cli.output import Format
from sizewright.cli.verbs import Verbs, examples
from sizewright.formatting import format_count

if TYPE_CHECKING:
    from sizewright.retraining.registry import Version

app = Verbs(
    "List and compare throughput models and learned priors.",
    "sizewright models compare measured.csv",
    "sizewright models list --tracking-uri http://mlflow:5000",
)

_DRIFTED = 5
_VERSION = re.compile(r"@?(champion|challenger)|\d+")
Which = Annotated[
    str,
    typer.Argument(
        metavar="VERSION", help="Number of a version, champion or challenger.", autocompletion=among(VERSIONS)
    ),
]


@app.command("compare")
@examples(
    "sizewright models compare measured.csv",
    "sizewright models compare measured.csv --model default --model usl --trials 12",
    "sizewright models compare 3 champion --tracking-uri http://mlflow:5000",
)
def compare(
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE|VERSION", help="CSV or Parquet files of trials, or versions of registered priors."
        ),
    ],
    trials: Annotated[
        int,
        typer.Option(
            "--trials", metavar="N", parser=read_count(3), help="Number of trials that each model is fitted to."
        ),
    ] = 8,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help=SEEDS_HELP)] = 5,
    model: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--model", help="Compare only this model. Repeatable.", autocompletion=among(MODELS, MODEL_GROUP)),
    ] = None,
    map_: ColumnMap = None,
    store: Store = None,
    tracking_uri: Tracking = None,
    output: Output = Format.table,
) -> None:
    """Compare throughput models on a few trials of each table, or registered priors on held-out jobs.

    The held-out jobs are those of the bank and the store.
    """
    from sizewright import api
    from sizewright.cli.output import show_data
    from sizewright.cli.progress import Bar
    from sizewright.cli.tables import models_table, priors_table

    if all(_VERSION.fullmatch(table) for table in tables):
        with Bar("querying the registry"):
            scores = api.compare_priors(tables, store=store, tracking_uri=tracking_uri)
        show_data(scores, output, lambda console: console.print(priors_table(scores)))
        return
    from sizewright.datasets.trials.column_names import read_mapping
    from sizewright.models.registry import get_model, model_names
    from sizewright.profiler.evaluation import compare_models
    from sizewright.profiler.planner.measured_table import read_tables

    names = model or model_names()
    for name in names:
        get_model(name)
    with Bar("comparing"):
        rows = compare_models(read_tables(tables, read_mapping(map_ or [])), names, trials, range(seeds))
    show_data(rows, output, lambda console: console.print(models_table(rows, trials)))


@app.command("list")
@examples("sizewright models list", "sizewright models list --tracking-uri http://mlflow:5000 --output json")
def list_models(tracking_uri: Tracking = None, output: Output = Format.table) -> None:
    """List the throughput models, or with --tracking-uri the learned priors in the registry."""
    from sizewright import api
    from sizewright.cli.output import show_data
    from sizewright.cli.progress import Bar
    from sizewright.cli.tables import versions_table
    from sizewright.models.registry import model_names

    if tracking_uri is None:
        names = list(model_names())
        show_data(names, output, lambda console: console.print("\n".join(names)))
        return
    with Bar("querying the registry"):
        rows = [_as_data(version) for version in api.open_registry(tracking_uri).versions()]
    show_data(rows, output, lambda console: console.print(versions_table(rows)))


@app.command("learn")
@examples(
    "sizewright models learn parameters.json grid.csv other-grid.csv another.csv",
    "sizewright models learn parameters.json grid.csv --with-bank shipped",
)
def learn(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The JSON file to write the prior to.")],
    tables: Annotated[
        list[str], typer.Argument(metavar="TABLE", help="CSV or Parquet files of trials, each of many allocations.")
    ],
    with_bank: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--with-bank", metavar="FOLDER", help="Learn also from the jobs of a bank; `shipped` is our own."),
    ] = None,
    map_: ColumnMap = None,
    output: Output = Format.table,
) -> None:
    """Learn a prior over the parameters of the default model from measured tables."""
    from sizewright.cli.output import show_data
    from sizewright.cli.progress import Bar
    from sizewright.datasets.trials.column_names import read_mapping
    from sizewright.models.default.parameter_prior import learn_parameters
    from sizewright.models.default.predictor import posterior_draws
    from sizewright.profiler.parameter_tables import bank_tables, tables_of_files

    named = tables_of_files(tables, read_mapping(map_ or [])) + (bank_tables(with_bank) if with_bank else [])
    with Bar("learning"):
        prior = learn_parameters(named, posterior_draws)
    prior.save(file)
    data = {"file": file, "parameters": dict(prior.normals), "tables": [*prior.tables]}
    text = f"Learned {file} from {format_count(len(named), 'table')}."
    show_data(data, output, lambda console: console.print(text))


@app.command("show")
@examples("sizewright models show", "sizewright models show 3 --tracking-uri sqlite:///models.db")
def show_version(which: Which = "champion", tracking_uri: Tracking = None, output: Output = Format.table) -> None:
    """Show the details of a registered prior, and verify its file."""
    from sizewright import api
    from sizewright.cli.output import show_data
    from sizewright.cli.progress import Bar

    with Bar("querying the registry"):
        registry = api.open_registry(tracking_uri)
        version = registry.version(which)
        registry.check(version)
    data = _as_data(version)
    show_data(data, output, lambda console: console.print("\n".join(f"{k}: {v}" for k, v in data.items())))


@app.command("promote")
@examples("sizewright models promote 3", "sizewright models promote challenger --dry-run")
def promote(
    which: Which, tracking_uri: Tracking = None, dry_run: DryRun = False, output: Output = Format.table
) -> None:
    """Make a version the champion, regardless of the gate."""
    from sizewright import api
    from sizewright.cli.progress import Bar

    with Bar("querying the registry"):
        registry = api.open_registry(tracking_uri)
        before, version = registry.champion(), registry.version(which)
        registry.check(version)
        if not dry_run:
            registry.promote(version)
    _show_change(before, version, "now", dry_run, output)


@app.command("rollback")
@examples("sizewright models rollback --dry-run", "sizewright models rollback --tracking-uri http://mlflow:5000")
def rollback(tracking_uri: Tracking = None, dry_run: DryRun = False, output: Output = Format.table) -> None:
    """Make the previous champion the champion again."""
    from sizewright import api
    from sizewright.cli.progress import Bar

    with Bar("querying the registry"):
        registry = api.open_registry(tracking_uri)
        before, version = registry.champion(), registry.replaced() if dry_run else registry.rollback()
    _show_change(before, version, "again", dry_run, output)


def _show_change(before: Version | None, now: Version, word: str, dry_run: bool, output: Format) -> None:
    from sizewright.cli.output import show_data

    data = {"champion": now.number, "before": before.number if before else None, "dry_run": dry_run}
    text = f"{now.source} {'would be' if dry_run else 'is'} the champion {word}."
    show_data(data, output, lambda console: console.print(text))


@app.command("drift")
@examples("sizewright models drift", "sizewright models drift --store trials.db --output json")
def show_drift(store: Store = None, tracking_uri: Tracking = None, output: Output = Format.table) -> None:
    """Check whether runs still match the predictions of the champion. Exits with 5 if they do not."""
    from sizewright import api
    from sizewright.cli.output import show
    from sizewright.cli.progress import Bar

    with Bar("querying the registry"):
        drift = api.drift(store=store, tracking_uri=tracking_uri)
    word = "Drifted" if drift.drifted else "No drift"
    show(drift, output, lambda console: console.print(f"{word}: {drift.reason}"))
    raise typer.Exit(_DRIFTED if drift.drifted else 0)


def _as_data(version: Version) -> dict[str, Any]:
    from datetime import datetime, timezone

    made = datetime.fromtimestamp(version.created_ms / 1000, timezone.utc).isoformat(timespec="seconds")
    data = {"version": version.number, "aliases": list(version.aliases), "made": made, "run_id": version.run_id}
    return data | {key: value for key, value in sorted(version.tags.items()) if not key.startswith("mlflow.")}
