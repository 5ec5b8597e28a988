"""The measured tables that models and planners are judged on, and replays over them on all cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from benchmarks._gavel import gavel
from benchmarks._report import SMOKE, choose
from benchmarks._trimtuner import trimtuner
from sizewright.profiler.planner.measured_table import MeasuredTable, one_table, read_frame, read_tables

TABLES = Path(__file__).parent / "tables"
HELD_OUT = "wide-rows"
"""Not looked at while the default model was made."""
SEEDS = range(choose(10, 2, 1))
T = TypeVar("T")


def own_tables() -> list[MeasuredTable]:
    """One for each grid that was measured here."""
    return [one_table(read_frame(path), path.stem) for path in sorted(TABLES.glob("*.csv"))]


def all_tables() -> list[MeasuredTable]:
    """Those in the files that are named; else the project's own, and those of others where they are at hand; in a smoke
    run one."""
    if SMOKE and not named_tables():
        return own_tables()[:1]
    return read_tables(named_tables()) if named_tables() else own_tables() + trimtuner() + gavel()


def named_tables() -> list[str]:
    """Files on the command line."""
    return sys.argv[1:]


def on_all_cores(work: Callable[..., T], *columns: Sequence[Any]) -> list[T]:
    """`work` of each row of arguments, in order."""
    with ProcessPoolExecutor(os.cpu_count(), initializer=_one_thread) as pool:
        return list(pool.map(work, *columns))


def _one_thread() -> None:
    import threadpoolctl

    threadpoolctl.threadpool_limits(1)
