"""`sizewright calibrate`: measure the constants that another tool's planner assumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sizewright.cli.options import Output, Text, read_count
from sizewright.cli.output import Format
from sizewright.cli.verbs import Verbs, examples

if TYPE_CHECKING:
    from rich.console import Console

    from sizewright.spec import TorchrecCalibration

app = Verbs(
    "Measure the constants that another tool's planner assumes.",
    "sizewright calibrate torchrec --write calibrated_planner.py",
    "sizewright calibrate torchrec --ranks 4 -o json",
)

_MIN_PLANS, _MAX_PLANS = 12, 1000


@app.command("torchrec")
@examples(
    "sizewright calibrate torchrec --write calibrated_planner.py",
    "sizewright calibrate torchrec --python ~/rec/bin/python --plans 24 -o json",
)
def torchrec(
    ranks: Annotated[
        int, typer.Option("--ranks", metavar="N", parser=read_count(1, 64), help="Number of ranks, all on this host.")
    ] = 2,
    plans: Annotated[
        int,
        typer.Option(
            "--plans",
            metavar="N",
            parser=read_count(_MIN_PLANS, _MAX_PLANS),
            help="Number of sharding plans to measure. More of them make the constants more accurate.",
        ),
    ] = 48,
    python: Annotated[
        Text,
        typer.Option("--python", metavar="PATH", help="Python that has TorchRec. Default: the one of this command."),
    ] = None,
    write: Annotated[
        Text,
        typer.Option("--write", metavar="FILE.py", help="Write a Python module with the calibrated planner."),
    ] = None,
    output: Output = Format.table,
) -> None:
    """Calibrate TorchRec's planner on this host: measure steps of sharding plans on CPU, and fit its constants.

    Half of the plans are held out of the fit. The table shows the estimates of these before and after, and the
    measured step: forward, backward and update of the tables. 48 plans take four to ten minutes.
    """
    from sizewright import api
    from sizewright.cli.output import show, stderr
    from sizewright.cli.progress import Bar

    calibrate = api.calibrate_torchrec  # is imported before the bar starts
    with Bar("starting TorchRec"):
        calibration = calibrate(python=python, ranks=ranks, plans=plans, write=write)
    if write:
        stderr().print(f"Wrote {write}: its function `planner` returns a calibrated EmbeddingShardingPlanner.")
    show(calibration, output, lambda console: print_calibration(console, calibration))


def print_calibration(console: Console, calibration: TorchrecCalibration) -> None:
    """Print estimate and measurement of each held-out plan, and the errors."""
    from sizewright.cli.layout import DataTable
    from sizewright.formatting import format_bytes, format_count, format_number, format_percent

    held_out = [plan for plan in calibration.plans if plan.held_out]
    table = DataTable(
        f"TorchRec's planner on this host: {format_count(len(held_out), 'plan')} held out of the fit",
        "plan", "sharding", "ranks", "tables", "batch", "default ms", "calibrated ms", "measured ms",
        "default storage", "calibrated", "measured",
        text=("sharding",),
    )  # fmt: skip
    for plan in held_out:
        times = (plan.default_ms, plan.calibrated_ms, plan.measured_ms)
        storage = (plan.default_storage_bytes, plan.calibrated_storage_bytes, plan.measured_peak_bytes)
        table.add_row(
            str(plan.plan), plan.kind, str(plan.ranks), str(plan.tables), f"{plan.batch_size:,}",
            *map(format_number, times), *map(format_bytes, storage),
        )  # fmt: skip
    console.print(table)
    before, rescaled, after = (
        format_percent(error)
        for error in (calibration.default_error, calibration.rescaled_error, calibration.calibrated_error)
    )
    console.print(
        f"Median error of the step: {before} with TorchRec's constants ({rescaled} if all its estimates are multiplied "
        f"by one factor), {after} with those of this host."
    )
    console.print(
        f"Median error of the storage: {format_percent(calibration.default_storage_error)} before, "
        f"{format_percent(calibration.calibrated_storage_error)} after."
    )
    console.print(
        f"Pairs of plans of the same tables in the right order: {format_percent(calibration.default_order)} before, "
        f"{format_percent(calibration.calibrated_order)} after."
    )
    versions = ", ".join(f"{name} {version}" for name, version in calibration.versions.items())
    console.print(f"assumes: {versions} on CPU, one thread for each rank, all ranks on this host.", style="dim")
