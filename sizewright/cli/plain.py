"""Results as plain text, as the verbs print them."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from sizewright.datasets.runs.finished_job import FinishedJob
    from sizewright.datasets.trials.trial import Trial
    from sizewright.spec import Plan

_DEFAULT_SIZE = (120, 24)


def text_of(result: Any) -> str:
    """Return a result as its verb prints it, without colours and without a line break at the end."""
    from sizewright.cli import allocate, apply, calibrate, doctor, place, run, simulate, tables

    printers: dict[str, Callable[[Console, Any], None]] = {
        "Application": partial(apply._print, shown=False),
        "ClusterAllocation": allocate._print,
        "Diagnosis": doctor._print,
        "MemoryReport": tables.print_memory,
        "Outcome": run._print,
        "Plan": _print_plan,
        "PredictionAnswer": tables.print_prediction,
        "Recommendation": tables.print_recommendation,
        "SimulationAnswer": simulate._print,
        "TablePlacement": place.print_placement,
        "TorchrecCalibration": calibrate.print_calibration,
    }
    console = _console()
    printers[type(result).__name__](console, result)
    return _text(console)


def _print_plan(console: Console, plan: Plan) -> None:
    console.print(f"Plan {plan.id}: {plan.kind} {plan.job.name} at {plan.target.describe()}")
    if plan.current:
        console.print(f"Current allocation: {plan.current.describe()}.")
    console.print(plan.reason)


def text_of_trials(trials: Sequence[Trial]) -> str:
    """Return trials as `sizewright trials list` prints them."""
    from sizewright.cli.tables import trials_table

    console = _console()
    console.print(trials_table(trials))
    return _text(console)


def text_of_runs(runs: Sequence[FinishedJob]) -> str:
    """Return finished jobs as `sizewright history list` prints them."""
    from sizewright.cli.tables import history_table

    console = _console()
    console.print(history_table(runs))
    return _text(console)


def _console() -> Console:
    from sizewright.cli.safe_console import SafeConsole

    width = max(60, shutil.get_terminal_size(_DEFAULT_SIZE).columns)
    return SafeConsole(
        file=io.StringIO(), width=width, color_system=None, force_terminal=False, highlight=False, markup=False
    )


def _text(console: Console) -> str:
    buffer = console.file
    assert isinstance(buffer, io.StringIO)
    return "\n".join(line.rstrip() for line in buffer.getvalue().rstrip().splitlines())
