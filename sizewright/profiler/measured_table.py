"""A table of measured trials as a ground truth: which allocations, what each measured, and how noisy that was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sizewright.datasets.trial_files import import_trials
from sizewright.errors import InputError
from sizewright.models.table import as_columns, ended_well
from sizewright.profiler.candidates import ALLOCATION_COLUMNS, Candidates, log_places

Floats = NDArray[np.float64]
_LEAST_ALLOCATIONS = 6
_JOB = ("job", "job_hash", "sync")


@dataclass(frozen=True)
class MeasuredTable:
    """One job at n distinct allocations; `measurements` of each, samples/s, none where all its trials failed."""

    name: str
    allocations: pd.DataFrame
    measurements: tuple[Floats, ...]
    rows: tuple[pd.DataFrame, ...]
    """The trials that ended well of each allocation, as measured."""

    def __len__(self) -> int:
        return len(self.allocations)

    @cached_property
    def raw(self) -> Floats:
        """Median of each allocation's measurements (n,), 0 where all failed."""
        return np.array([float(np.median(m)) if len(m) else 0.0 for m in self.measurements])

    @cached_property
    def smoothed(self) -> tuple[Floats, float]:
        """Samples/s (n,) with the noise taken out, and the noise of one measurement as a standard deviation of the log.

        A Gaussian process with a length for each axis is laid over all measurements (its noise by marginal
        likelihood), so that the greatest of a noisy table is not a lucky draw.
        """
        from sizewright.models.regressors import SmoothRegressor

        places = log_places(as_columns(self.allocations, ALLOCATION_COLUMNS))
        places = places[:, np.ptp(places, axis=0) > 0]
        of = np.repeat(np.arange(len(self)), [len(m) for m in self.measurements])
        logs = np.log(np.concatenate(self.measurements))
        fitted = SmoothRegressor(restarts=3).fit(places[of], logs)
        smooth, raw = np.exp(fitted.predict(places)), self.raw
        # Where an allocation was measured often, its own median is surer than its neighbours.
        spread, noise = fitted.moments(places)[1], fitted.noise_
        of_curve = np.maximum(spread**2 - noise**2, 1e-12)
        counts = np.array([len(m) for m in self.measurements])
        share = of_curve / (of_curve + noise**2 / np.maximum(counts, 1))
        joined = np.exp((1 - share) * np.log(smooth) + share * np.log(np.maximum(raw, 1e-12)))
        return np.where(counts > 0, joined, 0.0), noise


def quiet(table: MeasuredTable) -> MeasuredTable:
    """The table as a host without noise would have measured it: each allocation once, at its smoothed throughput."""
    rows = table.allocations.assign(throughput=np.where(table.raw > 0, table.smoothed[0], np.nan))
    return one_table(rows, table.name)


def read_tables(paths: Sequence[str | Path], columns: Mapping[str, str] | None = None) -> list[MeasuredTable]:
    """The tables in files of trials, whose columns `columns` may map as `read_trials` does.

    Raises StoreError or InputError for what cannot be used.
    """
    found: list[MeasuredTable] = []
    for path in paths:
        found += split_tables(read_frame(path, columns), Path(path).stem)
    if not found:
        raise InputError(
            f"No table has {_LEAST_ALLOCATIONS} distinct allocations of one job that ended well.", "Bring a larger one."
        )
    for table in found:
        _check(table)
    return found


def _check(table: MeasuredTable) -> None:
    """Raises InputError where the allocations cannot be chosen from."""
    try:
        Candidates(table.allocations)
    except InputError as error:
        raise InputError(f"Table {table.name}: {error.message}", error.remedy) from None


def read_frame(path: str | Path, columns: Mapping[str, str] | None = None) -> pd.DataFrame:
    """The trials of a file, without the columns that none of them tells."""
    frame = pd.DataFrame([trial.model_dump() for trial in import_trials(path, other_columns=True, columns=columns)])
    return frame.dropna(axis=1, how="all")


def split_tables(frame: pd.DataFrame, name: str) -> list[MeasuredTable]:
    """One table for each job, mode and, where it does not follow from the allocation, batch size in a trial table."""
    keys = [key for key in _JOB if key in frame and frame[key].nunique() > 1]
    where = [column for column in ALLOCATION_COLUMNS if column in frame and column != "batch_size"]
    if "batch_size" in frame and frame.groupby([*keys, *where], dropna=False)["batch_size"].nunique().max() > 1:
        apart = frame.groupby([*keys, "batch_size"], dropna=False)[where].apply(lambda g: len(g.drop_duplicates()))
        if apart.max() >= _LEAST_ALLOCATIONS:
            keys.append("batch_size")
    groups = frame.groupby(keys, dropna=False) if keys else [((), frame)]
    tables = []
    for key, rows in groups:
        table = one_table(rows, "-".join([name, *(str(part) for part in key)]))
        if sum(len(m) > 0 for m in table.measurements) >= _LEAST_ALLOCATIONS:
            tables.append(table)
    return tables


def one_table(frame: pd.DataFrame, name: str) -> MeasuredTable:
    """All rows of a trial table at its largest tables as one job's."""
    if "table_scale" in frame and frame["table_scale"].notna().any():
        frame = frame[frame["table_scale"].isna() | (frame["table_scale"] >= frame["table_scale"].max())]
    where = [column for column in ALLOCATION_COLUMNS if column in frame and frame[column].notna().any()]
    frame = frame.round({column: 9 for column in where if column != "sync"})
    good = ended_well(frame) & (frame["throughput"].fillna(0).to_numpy() > 0)
    places, number = (
        frame[where].drop_duplicates().reset_index(drop=True),
        frame.groupby(where, dropna=False, sort=False).ngroup(),
    )
    rows = tuple(frame[(number == i).to_numpy() & good] for i in range(len(places)))
    return MeasuredTable(name, places, tuple(r["throughput"].to_numpy(float) for r in rows), rows)
