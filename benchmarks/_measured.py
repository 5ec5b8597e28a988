"""The measured tables that models and planners are evaluated on, and replays over them on all cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmarks._gavel import gavel
from benchmarks._report import SMOKE, choose
from benchmarks._trimtuner import trimtuner
from sizewright.profiler.planner.measured_table import MeasuredTable, one_table, read_frame, read_tables

TABLES = Path(__file__).parent / "tables"
HELD_OUT = "wide-rows"
"""The table that was not used while the default model was developed."""
SEEDS = range(choose(5, 2, 1))
T = TypeVar("T")


def own_tables() -> list[MeasuredTable]:
    """Return one table for each grid that this project measured."""
    return [one_table(read_frame(path), path.stem) for path in sorted(TABLES.glob("*.csv"))]


def all_tables() -> list[MeasuredTable]:
    """Return the tables of the named files, or this project's tables and those of others if they are available.

    A smoke run returns one table.
    """
    if SMOKE and not named_tables():
        return own_tables()[:1]
    return read_tables(named_tables()) if named_tables() else own_tables() + trimtuner() + gavel()


def family(table: MeasuredTable) -> str:
    """Return the family that a table belongs to: `trimtuner`, `gavel`, `low-noise`, or `own`."""
    families = ("trimtuner", "gavel", "low-noise")
    return next((name for name in families if table.name.startswith(f"{name}-")), "own")


def low_noise_tables() -> list[MeasuredTable]:
    """Return TrimTuner's tables with the median of each allocation's runs as its only measurement.

    The cores of the PS are left out, as in tables of machines of whose PS nobody recorded them.
    """
    tables = []
    for table in [] if SMOKE or named_tables() else trimtuner():
        medians = table.allocations.drop(columns="ps_cpu").assign(throughput=table.raw)
        tables.append(one_table(medians[medians.throughput > 0], table.name.replace("trimtuner", "low-noise")))
    return tables


def repeat_sd(tables: Sequence[MeasuredTable], *, corrected: bool) -> float:
    """Return the standard deviation of log samples/s about the mean of an allocation, over allocations with repeats.

    `corrected` trials are those of a host in its mean state. NaN where nothing was measured twice.
    """
    squares, freedom = 0.0, 0
    for table in tables:
        for rates in table.at_mean_state if corrected else table.measurements:
            if len(rates) > 1:
                squares += float(np.var(np.log(rates)) * len(rates))
                freedom += len(rates) - 1
    return float(np.sqrt(squares / freedom)) if freedom else float("nan")


def named_tables() -> list[str]:
    """Return the files named on the command line."""
    return [word for word in sys.argv[1:] if not word.startswith("-")]


def on_all_cores(work: Callable[..., T], *columns: Sequence[Any]) -> list[T]:
    """Return the results of `work` for each row of arguments, in order."""
    return list(each_on_all_cores(work, *columns))


def each_on_all_cores(work: Callable[..., T], *columns: Sequence[Any]) -> Iterator[T]:
    """Yield the results of `work` for each row of arguments, in order."""
    with ProcessPoolExecutor(os.cpu_count(), initializer=one_thread) as pool:
        yield from pool.map(work, *columns)


def one_thread() -> None:
    """Let this process compute with one thread; the others have the other cores."""
    import threadpoolctl

    threadpoolctl.threadpool_limits(1)
