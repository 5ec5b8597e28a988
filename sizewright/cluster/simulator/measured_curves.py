"""Measured speeds of jobs by size and kind of GPU: read from a file, and matched to the jobs of a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from sizewright.cluster.problem.problem import Floats
from sizewright.datasets.files.tables import read_table
from sizewright.datasets.traces import Trace
from sizewright.errors import InputError
from sizewright.spec import Recommendation
from sizewright.spec._base import load_yaml, parse
from sizewright.spec._paths import absolute

ANY = ""
"""The kind of speeds that hold for GPUs of any kind, and of a request for any kind."""


@dataclass(frozen=True)
class MeasuredCurve:
    """Measured speeds of one job by size, and by the kind of its GPUs where they are known for several kinds."""

    name: str
    tables: Mapping[str, tuple[Floats, Floats]]
    """For each kind, or for `ANY`: sizes (n,), which rise, and speeds (n,), such as samples/s."""
    requested: float | None = None
    """The size that the user is taken to have requested, for jobs of other names; absent, the middle one."""

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of GPUs whose speeds are known; empty if the speeds hold for any."""
        return tuple(kind for kind in self.tables if kind != ANY)

    def __call__(self, multiples: Floats) -> Floats:
        """Return speeds relative to that at the request; see `Curve`."""
        first = next(iter(self.tables))
        return self.relative(multiples, first, first)

    def relative(self, multiples: Floats, kind: str, requested_kind: str) -> Floats:
        """Return speeds on a kind at multiples of the request, relative to that of the request on another kind."""
        middle = self.requested
        if middle is None:
            sizes, _ = self._table(requested_kind)
            middle = float(sizes[len(sizes) // 2])
        at_request = self.speed(np.array([middle]), requested_kind)[0]
        return np.asarray(self.speed(multiples * middle, kind) / at_request)

    def speed(self, sizes: Floats, kind: str) -> Floats:
        """Return the speeds at these sizes; they are linear between the measured sizes and constant beyond them."""
        return np.asarray(np.interp(sizes, *self._table(kind)))

    def sizes(self, kind: str) -> Floats:
        """Return the measured sizes on a kind."""
        return self._table(kind)[0]

    def has(self, kind: str) -> bool:
        """Return whether speeds on GPUs of this kind are known."""
        return ANY in self.tables or kind in self.tables

    def _table(self, kind: str) -> tuple[Floats, Floats]:
        return self.tables[kind] if kind in self.tables else self.tables[ANY]

    def request_kind(self, job: str, named: str, kinds: Sequence[str]) -> str:
        """Return the kind of GPU on which a job's duration counts: the one that it named, or the curve's first.

        `kinds` are those of the cluster. Raises InputError if the curve has no speed on that kind, or on none of these.
        """
        if named != ANY:
            if not self.has(named):
                raise InputError(
                    f"Job {job} requests GPUs of kind {named}, on which its curve {self.name} has no speed.",
                    f"The curve has speeds on {', '.join(self.kinds)}: add some on {named}, or correct gpu_kind.",
                )
            return named
        if not self.kinds:
            return ANY
        common = [kind for kind in self.kinds if kind in kinds]
        if not common:
            hosts = f"hosts have {', '.join(kinds)}" if kinds else "neither a cluster nor the trace names kinds of GPUs"
            raise InputError(
                f"The curve {self.name} has speeds on {', '.join(self.kinds)} only, but {hosts}.",
                "Add speeds on kinds that hosts have, or such hosts (--cluster).",
            )
        return common[0]

    def request_speed(self, job: str, size: float, kind: str) -> float:
        """Return the speed of a job at the size that its user requested.

        Raises InputError if the measured sizes do not reach to it.
        """
        sizes = self.sizes(kind)
        if not sizes[0] <= size <= sizes[-1]:
            on = f" on {kind}" if self.kinds else ""
            raise InputError(
                f"Job {job} requests the size {size:g}, but its curve {self.name} goes from {sizes[0]:g} to "
                f"{sizes[-1]:g}{on}.",
                "Add its speed at that size, or correct its request.",
            )
        return float(self.speed(np.array([size]), kind)[0])


def measured_curve(sizes: Floats, speeds: Floats, at: float) -> MeasuredCurve:
    """Return the curve of measured speeds of one job whose user requested size `at`."""
    order = np.argsort(sizes)
    return MeasuredCurve("", {ANY: (sizes[order], speeds[order])}, at)


def read_curves(path: str | Path) -> dict[str, MeasuredCurve]:
    """Read curves by their names from a table (`curves_of`) or a recommendation (JSON).

    Of a recommendation the sizes are the cores of its alternatives, and its target is the request.

    Raises InputError for other files.
    """
    if Path(path).suffix.lower() in (".csv", ".tsv", ".txt", ".gz", ".parquet"):
        return curves_of(read_table(Path(absolute(path)), "curves"), str(path))
    recommendation = parse(Recommendation, load_yaml(path, "recommendation"), str(path))
    if recommendation.target is None or len(recommendation.alternatives) < 2:
        raise InputError(
            f"{path} does not have speeds at several sizes.",
            "Use a recommendation whose status is 'ok' and that has alternatives.",
        )
    sizes = np.array([each.allocation.cores() for each in recommendation.alternatives])
    speeds = np.array([each.throughput.value for each in recommendation.alternatives])
    return {"": measured_curve(sizes, speeds, recommendation.target.cores())}


def curves_of(frame: pd.DataFrame, source: str) -> dict[str, MeasuredCurve]:
    """Return the curves of a table by their names; errors call the table `source`.

    Columns are `size`, `throughput`, `job` if there are several curves, and `gpu_kind` if there are several kinds.

    Raises InputError for a missing column, a wrong number, and a size that is there twice.
    """
    if missing := {"size", "throughput"} - set(frame.columns):
        raise InputError(
            f"{source} has no column {sorted(missing)[0]}.",
            "Give the columns size, throughput, for several curves job, and for several kinds of GPUs gpu_kind.",
        )
    numbers = frame[["size", "throughput"]].apply(pd.to_numeric, errors="coerce")
    if frame.empty or not ((numbers > 0) & np.isfinite(numbers)).all(axis=None):
        raise InputError(f"{source} is empty or holds a size or throughput that is not above 0.", "Correct it.")
    for name in ("job", "gpu_kind"):
        numbers[name] = frame[name].astype(str).str.strip().mask(frame[name].isna(), "") if name in frame else ""
        if name in frame and (numbers[name] == "").any():
            raise InputError(f"{source} has a row without {name}.", f"Give it, or leave out the column {name}.")
    curves: dict[str, MeasuredCurve] = {}
    for job, rows in numbers.groupby("job"):
        tables = {}
        for kind, of_kind in rows.groupby("gpu_kind", sort=False):
            sizes, speeds = (of_kind.sort_values("size")[name].to_numpy(float) for name in ("size", "throughput"))
            if (np.diff(sizes) == 0).any():
                raise InputError(f"{source}: the curve {job} has a size twice{_on(kind)}.", "Give each size once.")
            tables[str(kind)] = (sizes, speeds)
        curves[str(job)] = MeasuredCurve(str(job), tables)
    return curves


def _on(kind: object) -> str:
    return f" on {kind}" if kind != ANY else ""


def assign_curves(trace: Trace, curves: Mapping[str, MeasuredCurve] | None) -> Trace:
    """Return the trace with the name of each job's own curve, or unchanged if no curve belongs to one of its jobs.

    A job's own curve is the one that its column `curve` names, or the one that has its name. Raises InputError for a
    job without a curve where others have one, and for a curve of a job that is not there.
    """
    curves = curves or {}
    if trace.curves:
        for job, name in zip(trace.jobs, trace.curves, strict=True):
            if name not in curves:
                raise InputError(
                    f"Job {job} names the curve {name}, which does not exist."
                    if name
                    else f"Job {job} names no curve.",
                    f"Known: {', '.join(list(curves)[:10])}."
                    if curves
                    else "Give the curves (--curves), or leave out the column: --map curve=.",
                )
        return trace
    without = [job for job in trace.jobs if job not in curves]
    if len(without) == len(trace):
        return trace
    if without:
        raise InputError(
            f"Job {first_of(without)} has no curve, but other jobs of the trace do.",
            "Add their speeds, or name a curve for each job in a column `curve` of the trace.",
        )
    if foreign := sorted(set(curves) - set(trace.jobs)):
        raise InputError(
            f"There is a curve for the job {first_of(foreign)}, which the trace does not have.",
            "Correct the names, or remove these rows.",
        )
    return replace(trace, curves=trace.jobs)


def first_of(names: Sequence[str]) -> str:
    """Return the first of some names, and how many more there are."""
    return f"{names[0]} (and {len(names) - 1:,} more)" if len(names) > 1 else names[0]


def fill_durations(trace: Trace, curves: Mapping[str, MeasuredCurve] | None, kinds: Sequence[str]) -> Trace:
    """Return the trace with all durations: missing ones are the samples over the speed of the request.

    `kinds` are those of the cluster. Raises InputError for a job with neither a duration nor a curve of its own.
    """
    missing = np.flatnonzero(np.isnan(trace.duration_s))
    if not len(missing):
        return trace
    if not trace.curves or not curves:
        raise InputError(
            f"Job {trace.jobs[missing[0]]} has samples but no duration, and no speed of its own.",
            "Give the speeds of each job (--curves, with the names of the jobs), or its duration_s.",
        )
    assert trace.samples is not None  # a job without a duration has samples
    duration_s, size = trace.duration_s.copy(), job_sizes(trace)
    for row in map(int, missing):
        job, curve = trace.jobs[row], curves[trace.curves[row]]
        kind = curve.request_kind(job, trace.gpu_kinds[row] if trace.gpu_kinds else ANY, kinds)
        duration_s[row] = trace.samples[row] / curve.request_speed(job, float(size[row]), kind)
    return replace(trace, duration_s=duration_s)


def job_sizes(trace: Trace) -> Floats:
    """Return the size (N,) that each user requested: the first of GPUs, cores and bytes that the job uses."""
    amounts = np.stack([trace.needs[name] for name in ("gpu", "cpu", "memory_bytes") if name in trace.needs], axis=1)
    return np.asarray(amounts[np.arange(len(trace)), np.argmax(amounts > 0, axis=1)])
