"""`sizewright models`: how well throughput models tell measured tables."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from sizewright.cli.options import Output
from sizewright.cli.output import Format

app = typer.Typer(help="Throughput models: which there are, and how well they do.", no_args_is_help=True)


@app.command("compare")
def compare(
    tables: Annotated[list[str], typer.Argument(metavar="TABLE...", help="CSV or Parquet files of trials.")],
    trials: Annotated[int, typer.Option("--trials", min=3, help="How many a model learns from.")] = 8,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How often, with other trials each time.")] = 5,
    model: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--model", help="Only this one; may be given again."),
    ] = None,
    output: Output = Format.table,
) -> None:
    """Fit every model to a few trials of each table and compare it with the rest of the table."""
    from sizewright.cli.output import show_data
    from sizewright.cli.tables import models_table
    from sizewright.models.registry import get_model, model_names
    from sizewright.profiler.evaluation import compare_models
    from sizewright.profiler.measured_table import read_tables

    names = model or model_names()
    for name in names:
        get_model(name)
    rows = compare_models(read_tables(tables), names, trials, range(seeds))
    show_data(rows, output, lambda console: console.print(models_table(rows, trials)))


@app.command("list")
def list_models(output: Output = Format.table) -> None:
    """Name the models."""
    from sizewright.cli.output import show_data
    from sizewright.models.registry import model_names

    names = list(model_names())
    show_data(names, output, lambda console: console.print("\n".join(names)))
