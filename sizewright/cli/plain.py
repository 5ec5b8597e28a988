"""Results as plain text, just as the verbs print them."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from sizewright.datasets.finished import FinishedJob
    from sizewright.datasets.trials import Trial
    from sizewright.spec import Plan

_WIDE = (120, 24)


def text_of(result: Any) -> str:
    """The result as its verb prints it, without colours and line break at the end."""
    from sizewright.cli import allocate, apply, doctor, run, simulate, tables

    printers: dict[str, Callable[[Console, Any], None]] = {
        "Application": partial(apply._print, shown=False),
        "Checkup": doctor._print,
        "Division": allocate._print,
        "MemoryReport": tables.print_memory,
        "Outcome": run._print,
        "Plan": _print_plan,
        "Recommendation": tables.print_recommendation,
        "Simulation": simulate._print,
    }
    console = _console()
    printers[type(result).__name__](console, result)
    return _text(console)


def _print_plan(console: Console, plan: Plan) -> None:
    console.print(f"Plan {plan.id}: {plan.kind} {plan.job.name} at {plan.target.describe()}")
    if plan.current:
        console.print(f"It has {plan.current.describe()}.")
    console.print(plan.reason)


def text_of_trials(trials: Sequence[Trial]) -> str:
    """As `sizewright trials list` prints them."""
    from sizewright.cli.tables import trials_table

    console = _console()
    console.print(trials_table(trials))
    return _text(console)


def text_of_runs(runs: Sequence[FinishedJob]) -> str:
    """As `sizewright history list` prints them."""
    from sizewright.cli.tables import history_table

    console = _console()
    console.print(history_table(runs))
    return _text(console)


def _console() -> Console:
    from sizewright.cli.safe_console import SafeConsole

    width = max(60, shutil.get_terminal_size(_WIDE).columns)
    return SafeConsole(
        file=io.StringIO(), width=width, color_system=None, force_terminal=False, highlight=False, markup=False
    )


def _text(console: Console) -> str:
    written = console.file
    assert isinstance(written, io.StringIO)
    return "\n".join(line.rstrip() for line in written.getvalue().rstrip().splitlines())
