"""The search space: a grid of allocations inside the bounds, refined around the best of them.

Every axis contains the ends of its bounds and the measured values between them. Steps are fine within twice the
supported range (covered by the trials or the prior), from which a target may be chosen, and coarse beyond it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials.trial import Trial
from sizewright.models.table import Columns
from sizewright.spec import Allocation, Bounds

Floats = NDArray[np.float64]
Ranges = Mapping[str, tuple[float, float]]
"""Minimum and maximum of each axis, by its name."""
SharedBatch = Mapping[int, int]
"""The batch per worker of each number of workers that shares a global batch evenly."""

RANGE_FACTOR = 2.0
"""An axis may be extrapolated by this factor beyond its supported range."""
_CORES = ("worker_cpu", "ps_cpu")
_AS_THE_JOB_SAYS = -1.0  # loaders, where the bounds leave their number as it is
_MAX_LOADER_COUNTS = 8
_NOT_LOWERED = (*_CORES, "worker_gpu")
_MAX_GPU_COUNTS = 8


class _Level(NamedTuple):
    """The resolution of a grid."""

    mantissas: tuple[float, ...]
    """Of the sizes in a decade."""
    max_counts: int
    crosses_trials: bool = True
    """True if the values of the trials are combined with all others; if not, trials are single rows only."""


_LEVELS = (
    _Level((1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9), 64),
    _Level((1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9), 16),
    _Level((1, 1.5, 2, 3, 4, 5, 6, 8), 16),
    _Level((1, 1.5, 2, 3, 4, 5, 6, 8), 8),
    _Level((1, 2, 5), 8),
    _Level((1, 3), 5),
    _Level((1, 3), 5, crosses_trials=False),
    _Level((), 3, crosses_trials=False),
)
"""From the finest grid to the coarsest."""
_MAX_ROWS = 30_000  # the default model can predict this many with all of its posterior draws
_MAX_COARSE_VALUES = 6  # of an axis, beyond the range that may be chosen from
_SIZE_STEP = 0.05  # of refined sizes, as a share of the unit of the leading digit
_MIN_SIZE_STEP = 0.01  # cores


@dataclass(frozen=True)
class Grid:
    """Allocations as columns (n,): replicas, cores and GPUs of one replica, batch size and loaders per worker.

    -1 loaders stand for as many as the job says.
    """

    workers: Floats
    ps: Floats
    worker_cpu: Floats
    ps_cpu: Floats
    batch_size: Floats
    worker_gpu: Floats
    loaders: Floats

    def __len__(self) -> int:
        return len(self.workers)

    def columns(self, embedding_bytes: float) -> Columns:
        """Return the columns that a model predicts from, with the size of the job's tables."""
        loaders = np.where(self.loaders < 0, np.nan, self.loaders)
        return {**vars(self), "loaders": loaders, "embedding_bytes": np.full(len(self), float(embedding_bytes))}

    @property
    def rows(self) -> Floats:
        """Allocations as rows (n, 7), rounded so that equal allocations compare equal."""
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
        """Return the bytes of all replicas (n,), given those of one replica of each role."""
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
            loaders=int(self.loaders[i]) if self.loaders[i] >= 0 else None,
        )

    @classmethod
    def of_rows(cls, rows: Floats) -> Grid:
        """Return the grid of distinct rows (n, 7)."""
        rows = rows.reshape(-1, 7)
        _, first = np.unique(_row_codes(rows), return_index=True)
        return cls(*rows[first].T)


def choosable_range(axis: str, supported: tuple[float, float]) -> tuple[float, float]:
    """Return the minimum and maximum that may be chosen on an axis, given its supported range.

    Cores and GPUs that were never varied are not lowered: their effect is unknown, and fewer would look free.
    """
    low, high = supported
    return (low if low == high and axis in _NOT_LOWERED else low / RANGE_FACTOR), high * RANGE_FACTOR


def make_grid(
    bounds: Bounds,
    batch_size: int,
    *,
    has_ps: bool = True,
    trials: Sequence[Trial] = (),
    supported_ranges: Ranges | None = None,
    shared_batch: SharedBatch | None = None,
) -> Grid:
    """Return allocations within the bounds: all combinations of the values of the axes, and those of the trials.

    Steps are fine within twice the `supported_ranges`; without these, within all of the bounds. Without PS, rows have 0
    PS of 1 core. Without bounds for them, the numbers of GPUs are those of the trials. With a `shared_batch`, workers
    and batch per worker are among its pairs. The grid has at most about 30,000 rows: the axes get coarser until they
    fit.
    """
    limits: dict[str, tuple[float, float]] = {
        "workers": bounds.worker.replicas,
        "ps": bounds.ps.replicas if has_ps else (0, 0),
        "worker_cpu": bounds.worker.cpu,
        "ps_cpu": bounds.ps.cpu if has_ps else (1.0, 1.0),
        "batch_size": bounds.batch_size or (batch_size, batch_size),
    }
    gpus = _gpu_counts(bounds, trials)
    any_batch = {"batch_size": (1.0, math.inf)} if shared_batch else {}
    trial_rows = _trial_rows(trials, limits | any_batch, gpus, bounds)
    for level in _LEVELS:
        crossed = trial_rows if level.crosses_trials else trial_rows[:0]
        axes = [
            _axis(name, ends, (supported_ranges or {}).get(name), crossed[:, i], level)
            for i, (name, ends) in enumerate(limits.items())
        ]
        if shared_batch:
            axes[0] = _thinned([float(workers) for workers in shared_batch], level.max_counts)
        loaders = _loader_counts(bounds, level)
        if math.prod(map(len, axes)) * len(gpus) * len(loaders) <= _MAX_ROWS:
            break
    rows = _with_shared_batch(np.concatenate([_product(*axes, gpus, loaders), trial_rows]), shared_batch)
    rows[rows[:, 1] == 0, 3] = limits["ps_cpu"][0]  # without PS, their cores make no difference
    return Grid.of_rows(rows)


def finer(grid: Grid, starts: Sequence[int], shared_batch: SharedBatch | None = None) -> Grid:
    """Return new rows that lie half-way between some rows and their neighbours on every axis.

    With a `shared_batch` those whose workers do not share it evenly are left out.
    """
    axes = {name: np.unique(column) for name, column in vars(grid).items()}
    rows = grid.rows
    blocks = [np.empty((0, rows.shape[1]))]
    for start in starts:
        values = [_half_way(name, axis, float(rows[start][i])) for i, (name, axis) in enumerate(axes.items())]
        blocks.append(_product(*values))
    candidates = _with_shared_batch(np.concatenate(blocks).round(9), shared_batch)
    codes = _row_codes(np.concatenate([rows, candidates]))
    return Grid.of_rows(candidates[~np.isin(codes[len(rows) :], codes[: len(rows)])])


def _row_codes(rows: Floats) -> NDArray[np.int64]:
    """Return a number for each row (n, k), by which rows have their lexical order and equal rows are equal."""
    codes = np.zeros(len(rows), np.int64)
    for column in rows.T:
        values, of_row = np.unique(column, return_inverse=True)
        codes = np.unique(codes * len(values) + of_row, return_inverse=True)[1]  # stays below the number of rows
    return codes


def counts_between(low: int, high: int, max_counts: int = 64) -> list[float]:
    """Return the integers from `low` to `high`, or `max_counts` of them in even ratios where there are more."""
    if high - low < max_counts:
        return [float(count) for count in range(low, high + 1)]
    return sorted({float(low), *(float(round(count)) for count in np.geomspace(max(low, 1), high, max_counts))})


def sizes_between(low: float, high: float, mantissas: Iterable[float] = _LEVELS[0].mantissas) -> list[float]:
    """Return sizes in round numbers, one for each mantissa in each decade, and both ends."""
    decades = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    round_sizes = (float(f"{mantissa * 10.0**decade:.9g}") for decade in decades for mantissa in mantissas)
    return sorted({low, high, *(size for size in round_sizes if low < size < high)})


def _gpu_counts(bounds: Bounds, trials: Sequence[Trial]) -> list[float]:
    """Return the numbers of GPUs of a worker to combine with all other values: within the bounds, or of the trials."""
    measured = {float(trial.worker_gpu) for trial in trials if trial.worker_gpu is not None}
    if bounds.worker.gpu is None:
        return sorted(measured) or [0.0]
    low, high = bounds.worker.gpu.count
    counts = {float(low), *counts_between(max(low, 1), high, _MAX_GPU_COUNTS)}
    return sorted(counts | {count for count in measured if low <= count <= high})


def _loader_counts(bounds: Bounds, level: _Level) -> list[float]:
    """Return the numbers of loaders to combine with all other values: few ones, and then in even ratios."""
    if bounds.loaders is None:
        return [_AS_THE_JOB_SAYS]
    low, high = bounds.loaders
    counts = counts_between(max(low, 1), high, min(level.max_counts, _MAX_LOADER_COUNTS)) if high else []
    return sorted({float(low), *counts})


def _with_shared_batch(rows: Floats, shared_batch: SharedBatch | None) -> Floats:
    """Return the rows whose workers share the batch evenly, with the batch per worker."""
    if shared_batch is None:
        return rows
    kept = rows[np.isin(rows[:, 0], list(shared_batch))]
    kept[:, 4] = [shared_batch[int(workers)] for workers in kept[:, 0]]
    return kept


def _thinned(values: Sequence[float], count: int) -> list[float]:
    """Return at most `count` of ordered values, evenly spaced among them, with both ends."""
    return [values[i] for i in np.unique(np.linspace(0, len(values) - 1, min(count, len(values))).round().astype(int))]


def _product(*axes: Sequence[float]) -> Floats:
    """Return all combinations of the values of the axes, as rows."""
    return np.column_stack([column.ravel() for column in np.meshgrid(*axes, indexing="ij")])


def _axis(
    name: str,
    ends: tuple[float, float],
    supported: tuple[float, float] | None,
    trial_values: Floats,
    level: _Level,
) -> list[float]:
    """Return the values of one axis: its ends, those of trials, fine steps where it may be chosen, coarse beyond."""
    low, high = ends
    if low == high:
        return [float(low)]
    if name == "batch_size":
        return sorted({*_doublings(int(low), int(high)), *trial_values.tolist()})
    fine_low, fine_high = choosable_range(name, supported) if supported else ends
    fine_low, fine_high = max(fine_low, low), min(fine_high, high)
    values = {float(low), float(high), *trial_values.tolist()}
    coarse_count = min(level.max_counts, _MAX_COARSE_VALUES)
    if name in _CORES:
        if fine_low < fine_high:
            values |= set(sizes_between(fine_low, fine_high, level.mantissas))
        coarse = np.geomspace(low, high, coarse_count).round(2)
    else:
        fine_low, fine_high = math.ceil(fine_low - 1e-9), math.floor(fine_high + 1e-9)
        if fine_low <= fine_high:
            values |= set(counts_between(fine_low, fine_high, level.max_counts))
        coarse = np.geomspace(max(low, 1), high, coarse_count).round()
    return sorted(values | {float(v) for v in coarse if low <= v <= high and not fine_low <= v <= fine_high})


def _trial_rows(trials: Sequence[Trial], limits: Ranges, gpus: Sequence[float], bounds: Bounds) -> Floats:
    """Return the allocations (n, 7) of the trials within the limits; those without a GPU count get the largest one."""
    low_loaders, high_loaders = bounds.loaders or (_AS_THE_JOB_SAYS, _AS_THE_JOB_SAYS)
    rows = []
    for trial in (each for each in trials if each.worker_gpu is None or each.worker_gpu in gpus):
        row = [
            float(value) if (value := getattr(trial, name)) is not None else float(ends[0])
            for name, ends in limits.items()
        ]
        row[3] = row[3] if trial.ps else float(limits["ps_cpu"][0])
        if all(low <= value <= high for value, (low, high) in zip(row, limits.values(), strict=True)):
            loaders = low_loaders if trial.loaders is None else min(max(trial.loaders, low_loaders), high_loaders)
            rows.append([*row, float(gpus[-1] if trial.worker_gpu is None else trial.worker_gpu), float(loaders)])
    return np.array(rows, float).reshape(-1, 7)


def _half_way(name: str, axis: Floats, value: float) -> list[float]:
    """Return a value of an axis and the values half-way to its neighbours, where these differ from it."""
    if name == "worker_gpu":
        return [value]
    index = int(np.searchsorted(axis, value))
    middles = [(axis[i] + axis[i + 1]) / 2 for i in (index - 1, index) if 0 <= i < len(axis) - 1]
    if name in _CORES:
        steps = [max(_SIZE_STEP * 10 ** math.floor(math.log10(middle)), _MIN_SIZE_STEP) for middle in middles]
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
