"""`sizewright place`: which server holds which embedding table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sizewright.cli.options import DataPath, JobFile, Output, Text, read_count
from sizewright.cli.output import Format
from sizewright.cli.verbs import examples

if TYPE_CHECKING:
    from rich.console import Console

    from sizewright.spec import TablePlacement


@examples(
    "sizewright place job.yaml --servers 4",
    "sizewright place job.yaml --servers 8 --memory 16Gi --loads loads.csv -o json",
)
def place(
    job: JobFile,
    servers: Annotated[
        int, typer.Option("--servers", metavar="N", parser=read_count(1, 100_000), help="Number of servers or ranks.")
    ],
    memory: Annotated[
        Text, typer.Option("--memory", metavar="SIZE", help="Memory of each for weights and optimizer state, as 16Gi.")
    ] = None,
    loads: Annotated[
        Text,
        typer.Option("--loads", metavar="FILE", help="Measured loads in any unit, with the columns table and load."),
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Split no table by rows.")] = False,
    output: Output = Format.table,
    data: DataPath = None,
) -> None:
    """Place the job's embedding tables on servers, so that the largest load is as small as possible.

    Tables stay whole where that balances the servers, and are split by rows otherwise. Without measured loads, the load
    of a table is the floats that a sample reads of it: pooling × dimension.
    """
    from sizewright import api
    from sizewright.cli.output import show
    from sizewright.cli.progress import Bar

    calculate = api.place_tables  # is imported before the bar starts
    with Bar("placing"):
        placement = calculate(job, servers=servers, memory=memory, loads=loads, whole=whole, data=data)
    show(placement, output, lambda console: print_placement(console, placement))


def print_placement(console: Console, placement: TablePlacement) -> None:
    """Print the tables of each server, with the rows of those that are split."""
    from sizewright.cli.layout import DataTable
    from sizewright.formatting import format_bytes, format_count, format_percent

    table = DataTable(
        f"{placement.job}: tables on {format_count(len(placement.servers), 'server')}",
        "server", "load", "memory", "tables", text=("tables",),
    )  # fmt: skip
    for server in placement.servers:
        parts = [
            f"{part.table} (rows {part.first_row:,} to {part.first_row + part.rows - 1:,})"
            if part.table in placement.split
            else str(part.table)
            for part in server.parts
        ]
        load = format_percent(server.load, 1)
        table.add_row(str(server.server), load, format_bytes(server.memory_bytes), ", ".join(parts))
    console.print(table)
    gap = format_percent(max(placement.gap, 1e-3), 1)
    console.print(
        f"The largest load is {format_percent(placement.largest_load, 1)} of all. No placement has one that is lower "
        f"by more than {gap}."
    )
    if placement.split:
        console.print(f"{format_count(len(placement.split), 'table')} split by rows.")
    for text in placement.assumptions:
        console.print(f"assumes: {text}", style="dim")
