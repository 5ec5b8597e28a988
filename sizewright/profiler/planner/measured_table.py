"""A table of measured trials as a ground truth: allocations, their measurements, and the noise of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sizewright.datasets.trials.files import import_trials
from sizewright.errors import InputError
from sizewright.models.host_state import HostState
from sizewright.models.table import as_columns, successful
from sizewright.profiler.planner.candidates import ALLOCATION_COLUMNS, CandidateSet, log_coordinates

Floats = NDArray[np.float64]
_MIN_ALLOCATIONS = 6
_JOB_COLUMNS = ("job", "job_hash", "sync")


class Smoothed(NamedTuple):
    """The denoised throughput of a table."""

    throughput: Floats
    """Samples/s (n,); 0 where all trials failed."""
    noise: float
    """Standard deviation of the log of one measurement."""
    sd: Floats
    """Standard deviation (n,) of the log of the denoised throughput."""


@dataclass(frozen=True)
class MeasuredTable:
    """One job at n distinct allocations; `measurements` of each in samples/s, empty if all its trials failed."""

    name: str
    allocations: pd.DataFrame
    measurements: tuple[Floats, ...]
    rows: tuple[pd.DataFrame, ...]
    """The successful trials of each allocation, as measured."""

    def __len__(self) -> int:
        return len(self.allocations)

    @cached_property
    def raw(self) -> Floats:
        """Median of each allocation's measurements (n,); 0 if all its trials failed."""
        return np.array([float(np.median(m)) if len(m) else 0.0 for m in self.measurements])

    @cached_property
    def at_mean_state(self) -> tuple[Floats, ...]:
        """The measurements as they would be on a host in its mean state (`models/host_state.py`)."""
        counts = [len(rows) for rows in self.rows]
        if not sum(counts):
            return self.measurements
        trials = pd.concat(self.rows)
        rates = trials["throughput"].to_numpy(float) * np.exp(HostState.of(trials).deviation)
        return tuple(np.split(rates, np.cumsum(counts)[:-1]))

    @cached_property
    def smoothed(self) -> Smoothed:
        """The denoised throughput on a host in its mean state.

        A Gaussian process with a length scale for each axis is fitted to all measurements (its noise, which has heavy
        tails, by marginal likelihood), so that the maximum of a noisy table is not a lucky draw.
        """
        return self._smooth(self.at_mean_state, heavy_tails=True)

    @cached_property
    def smoothed_as_measured(self) -> Smoothed:
        """The same of the measurements as they are, with normal noise."""
        return self._smooth(self.measurements, heavy_tails=False)

    def _smooth(self, measurements: Sequence[Floats], *, heavy_tails: bool) -> Smoothed:
        from sizewright.models.forms.regressors import SmoothRegressor

        points = log_coordinates(as_columns(self.allocations, ALLOCATION_COLUMNS))
        points = points[:, np.ptp(points, axis=0) > 0]
        counts = np.array([len(m) for m in measurements])
        medians = np.array([np.median(m) if len(m) else 0.0 for m in measurements])
        allocation_of = np.repeat(np.arange(len(self)), counts)
        regressor = SmoothRegressor(restarts=3, heavy_tails=heavy_tails)
        gp = regressor.fit(points[allocation_of], np.log(np.concatenate(measurements)))
        # The more often an allocation was measured, the more its own median counts against the curve.
        sd, noise = gp.moments(points)[1], gp.noise_
        curve_variance = np.maximum(sd**2 - noise**2, 1e-12)
        own_variance = noise**2 / np.maximum(counts, 1)
        weight = curve_variance / (curve_variance + own_variance)
        log_rates = (1 - weight) * gp.predict(points) + weight * np.log(np.maximum(medians, 1e-12))
        return Smoothed(np.where(counts > 0, np.exp(log_rates), 0.0), noise, np.sqrt(weight * own_variance))


def without_noise(table: MeasuredTable) -> MeasuredTable:
    """Return the table without noise: each allocation once, at its smoothed throughput."""
    rows = table.allocations.assign(throughput=np.where(table.raw > 0, table.smoothed[0], np.nan))
    return one_table(rows, table.name)


def read_tables(paths: Sequence[str | Path], columns: Mapping[str, str] | None = None) -> list[MeasuredTable]:
    """Return the tables in files of trials; `columns` may rename columns as in `read_trials`.

    Raises StoreError or InputError for a file or table that cannot be used.
    """
    tables: list[MeasuredTable] = []
    for path in paths:
        tables += split_tables(read_frame(path, columns), Path(path).stem)
    if not tables:
        raise InputError(
            f"No table has successful trials of one job at {_MIN_ALLOCATIONS} distinct allocations.",
            "Pass a larger one.",
        )
    for table in tables:
        try:
            CandidateSet(table.allocations)
        except InputError as error:
            raise InputError(f"Table {table.name}: {error.message}", error.remedy) from None
    return tables


def read_frame(path: str | Path, columns: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return the trials of a file, without empty columns."""
    frame = pd.DataFrame([trial.model_dump() for trial in import_trials(path, other_columns=True, columns=columns)])
    return frame.dropna(axis=1, how="all")


def split_tables(frame: pd.DataFrame, name: str) -> list[MeasuredTable]:
    """Split a trial table by job, mode and, where it does not follow from the allocation, batch size."""
    keys = [key for key in _JOB_COLUMNS if key in frame and frame[key].nunique() > 1]
    where = [column for column in ALLOCATION_COLUMNS if column in frame and column != "batch_size"]
    if "batch_size" in frame and frame.groupby([*keys, *where], dropna=False)["batch_size"].nunique().max() > 1:
        groups = frame.groupby([*keys, "batch_size"], dropna=False)
        if groups[where].apply(lambda group: len(group.drop_duplicates())).max() >= _MIN_ALLOCATIONS:
            keys.append("batch_size")
    tables = []
    for key, rows in frame.groupby(keys, dropna=False) if keys else [((), frame)]:
        table = one_table(rows, "-".join([name, *(str(part) for part in key)]))
        if sum(len(m) > 0 for m in table.measurements) >= _MIN_ALLOCATIONS:
            tables.append(table)
    return tables


def one_table(frame: pd.DataFrame, name: str) -> MeasuredTable:
    """Return the rows of a trial table that were measured at its largest tables, as those of one job."""
    if "table_scale" in frame and frame["table_scale"].notna().any():
        frame = frame[frame["table_scale"].isna() | (frame["table_scale"] >= frame["table_scale"].max())]
    where = [column for column in ALLOCATION_COLUMNS if column in frame and frame[column].notna().any()]
    frame = frame.round({column: 9 for column in where if column != "sync"})
    good = successful(frame) & (frame["throughput"].fillna(0).to_numpy() > 0)
    allocations = frame[where].drop_duplicates().reset_index(drop=True)
    number = frame.groupby(where, dropna=False, sort=False).ngroup()
    rows = tuple(frame[(number == i).to_numpy() & good] for i in range(len(allocations)))
    return MeasuredTable(name, allocations, tuple(r["throughput"].to_numpy(float) for r in rows), rows)
