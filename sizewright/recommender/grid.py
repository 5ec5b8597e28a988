"""The search space: allocations inside the bounds, coarse first, then finer around the best, as columns.

Every axis holds the ends of its bounds and what was measured inside them. Between these, values are fine where the
measured range leaves room to choose, and coarse beyond it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials import Trial
from sizewright.models.table import Columns
from sizewright.spec import Allocation, Bounds

Floats = NDArray[np.float64]
Ranges = Mapping[str, tuple[float, float]]
"""Least and greatest value of an axis, by its name."""

RANGE_FACTOR = 2.0
"""An axis may be extrapolated to twice its measured range."""
_CORES = ("worker_cpu", "ps_cpu")
# Mantissas of sizes in a decade and how many counts there are at most, from the finest grid to the coarsest.
_LEVELS = (
    ((1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9), 64),
    ((1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9), 16),
    ((1, 1.5, 2, 3, 4, 5, 6, 8), 16),
    ((1, 1.5, 2, 3, 4, 5, 6, 8), 8),
    ((1, 2, 5), 8),
    ((1, 3), 5),
)
_MOST_ROWS = 30_000  # the default model predicts so many with all of its draws
_MOST_BEYOND = 6  # values of an axis beyond the room
_SIZE_STEP, _LEAST_SIZE_STEP = 0.05, 0.01  # of refined sizes: share of the leading digit's unit, and cores


@dataclass(frozen=True)
class Grid:
    """Columns (n,) of allocations: replicas, cores and GPUs of one replica, batch size per worker."""

    workers: Floats
    ps: Floats
    worker_cpu: Floats
    ps_cpu: Floats
    batch_size: Floats
    worker_gpu: Floats

    def __len__(self) -> int:
        return len(self.workers)

    def columns(self, embedding_bytes: float) -> Columns:
        """Return the columns as a model takes them, with the tables of the job."""
        return vars(self) | {"embedding_bytes": np.full(len(self), float(embedding_bytes))}

    @property
    def rows(self) -> Floats:
        """The allocations as rows (n, 6), rounded so that equal ones compare equal."""
        return np.column_stack(list(vars(self).values())).round(9)

    @property
    def cores(self) -> Floats:
        """Cores of all replicas (n,)."""
        return self.workers * self.worker_cpu + self.ps * self.ps_cpu

    @property
    def gpus(self) -> Floats:
        """GPUs of all replicas (n,)."""
        return self.workers * self.worker_gpu

    def memory_bytes(self, worker_memory_bytes: Floats, ps_memory_bytes: Floats) -> Floats:
        """Bytes of all replicas (n,), from those of one."""
        return self.workers * worker_memory_bytes + self.ps * ps_memory_bytes

    def allocation(self, i: int, worker_memory_bytes: float = 0.0, ps_memory_bytes: float = 0.0) -> Allocation:
        """Return one row as an allocation."""
        return Allocation.of(
            int(self.workers[i]),
            int(self.ps[i]),
            float(self.worker_cpu[i]),
            float(self.ps_cpu[i]),
            int(self.batch_size[i]),
            int(worker_memory_bytes),
            int(ps_memory_bytes),
            int(self.worker_gpu[i]),
        )

    @classmethod
    def of_rows(cls, rows: Floats) -> Grid:
        """Return the grid of distinct rows (n, 6)."""
        return cls(*np.unique(rows.reshape(-1, 6), axis=0).T)


def room_of(axis: str, measured: tuple[float, float]) -> tuple[float, float]:
    """Return the least and the greatest value that may be chosen on an axis, given its measured range.

    Cores that were never varied are not lowered: their effect is unknown, and fewer would look free.
    """
    low, high = measured
    return (low if low == high and axis in _CORES else low / RANGE_FACTOR), high * RANGE_FACTOR


def make_grid(
    bounds: Bounds,
    batch_size: int,
    *,
    has_ps: bool = True,
    trials: Sequence[Trial] = (),
    measured: Ranges | None = None,
) -> Grid:
    """Return allocations within the bounds: all combinations of the values of the axes, and what the trials had.

    `measured` are ranges around which there is room to choose; without them it is the whole of the bounds. Without PS
    there are 0 of 1 core. At most about 30,000 rows: the axes get coarser until they fit.
    """
    limits: dict[str, tuple[float, float]] = {
        "workers": bounds.worker.replicas,
        "ps": bounds.ps.replicas if has_ps else (0, 0),
        "worker_cpu": bounds.worker.cpu,
        "ps_cpu": bounds.ps.cpu if has_ps else (1.0, 1.0),
        "batch_size": bounds.batch_size or (batch_size, batch_size),
    }
    gpus = sorted({float(trial.worker_gpu) for trial in trials if trial.worker_gpu is not None}) or [0.0]
    own = _measured_rows(trials, limits, gpus)
    for mantissas, most in _LEVELS:
        axes = [
            _axis(name, ends, (measured or {}).get(name), own[:, i], mantissas, most)
            for i, (name, ends) in enumerate(limits.items())
        ]
        if math.prod(map(len, axes)) * len(gpus) <= _MOST_ROWS:
            break
    rows = np.concatenate([_product(*axes, gpus), own])
    rows[rows[:, 1] == 0, 3] = limits["ps_cpu"][0]  # without PS their cores are the same
    return Grid.of_rows(rows)


def finer(grid: Grid, starts: Sequence[int]) -> Grid:
    """Return the rows that lie half-way between some rows and their neighbours on every axis, and are not there yet."""
    axes = [np.unique(column) for column in vars(grid).values()]
    rows = grid.rows
    found = [np.empty((0, rows.shape[1]))]
    for start in starts:
        near = [
            _half_way(name, axis, float(value)) for name, axis, value in zip(vars(grid), axes, rows[start], strict=True)
        ]
        found.append(_product(*near))
    fresh = np.unique(np.concatenate(found).round(9), axis=0)
    known = set(map(tuple, rows.tolist()))
    return Grid.of_rows(np.array([row for row in fresh.tolist() if tuple(row) not in known]))


def counts_between(low: int, high: int, most: int = 64) -> list[float]:
    """Return whole numbers: all of them up to `most`, beyond that so many in even ratios."""
    if high - low < most:
        return [float(count) for count in range(low, high + 1)]
    return sorted({float(low), *(float(round(count)) for count in np.geomspace(max(low, 1), high, most))})


def sizes_between(low: float, high: float, mantissas: Iterable[float] = _LEVELS[0][0]) -> list[float]:
    """Return sizes in plain numbers, as many in each decade as there are mantissas; both ends are among them."""
    decades = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    plain = (float(f"{mantissa * 10.0**decade:.9g}") for decade in decades for mantissa in mantissas)
    return sorted({low, high, *(size for size in plain if low < size < high)})


def _product(*axes: Sequence[float]) -> Floats:
    """All combinations of the values of axes, as rows."""
    return np.column_stack([column.ravel() for column in np.meshgrid(*axes, indexing="ij")])


def _axis(
    name: str,
    ends: tuple[float, float],
    measured: tuple[float, float] | None,
    own: Floats,
    mantissas: Iterable[float],
    most: int,
) -> list[float]:
    """The values of one axis: ends, what was measured, fine ones in the room and a few beyond it."""
    low, high = ends
    if low == high:
        return [float(low)]
    if name == "batch_size":
        return sorted({*_doublings(int(low), int(high)), *own.tolist()})
    least, greatest = room_of(name, measured) if measured else ends
    least, greatest = max(least, low), min(greatest, high)
    values = {float(low), float(high), *own.tolist()}
    if name in _CORES:
        if least < greatest:
            values |= set(sizes_between(least, greatest, mantissas))
        beyond = np.geomspace(low, high, _MOST_BEYOND).round(2)
    else:
        least, greatest = math.ceil(least - 1e-9), math.floor(greatest + 1e-9)
        if least <= greatest:
            values |= set(counts_between(least, greatest, most))
        beyond = np.geomspace(max(low, 1), high, _MOST_BEYOND).round()
    return sorted(values | {float(v) for v in beyond if low <= v <= high and not least <= v <= greatest})


def _measured_rows(trials: Sequence[Trial], limits: Ranges, gpus: Sequence[float]) -> Floats:
    """The allocations (n, 6) of trials that lie within the limits; a trial that tells no GPUs has the most told."""
    rows = []
    for trial in trials:
        row = [
            float(value) if (value := getattr(trial, name)) is not None else float(ends[0])
            for name, ends in limits.items()
        ]
        row[3] = row[3] if trial.ps else float(limits["ps_cpu"][0])
        if all(low <= value <= high for value, (low, high) in zip(row, limits.values(), strict=True)):
            rows.append([*row, float(gpus[-1] if trial.worker_gpu is None else trial.worker_gpu)])
    return np.array(rows, float).reshape(-1, 6)


def _half_way(name: str, axis: Floats, value: float) -> list[float]:
    """A value of an axis and what lies half-way to its neighbours, where that is another."""
    at = int(np.searchsorted(axis, value))
    middles = [(axis[i] + axis[i + 1]) / 2 for i in (at - 1, at) if 0 <= i < len(axis) - 1]
    if name == "worker_gpu":
        return [value]
    if name in _CORES:
        steps = [max(_SIZE_STEP * 10 ** math.floor(math.log10(middle)), _LEAST_SIZE_STEP) for middle in middles]
        middles = [round(middle / step) * step for middle, step in zip(middles, steps, strict=True)]
    else:
        middles = [round(middle) for middle in middles]
    inside = [float(f"{middle:.9g}") for middle in middles if axis[0] < middle < axis[-1]]
    return sorted({value, *inside})


def _doublings(low: int, high: int) -> list[float]:
    sizes = [float(low)]
    while sizes[-1] * 2 <= high:
        sizes.append(sizes[-1] * 2)
    return sizes if sizes[-1] == high else [*sizes, float(high)]
