"""Build a workload, in which jobs have speeds at several sizes, from a trace, which has one size for each job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from sizewright.cluster.problem.problem import Floats, Ints
from sizewright.cluster.simulator.workload import Workload
from sizewright.datasets.files.tables import read_table
from sizewright.datasets.traces import Trace
from sizewright.errors import InputError
from sizewright.spec import Recommendation
from sizewright.spec._base import load_yaml, parse
from sizewright.spec._paths import absolute

Curve = Callable[[Floats], Floats]
"""A function from multiples of the user's request to the speed relative to that at the request."""


def power_law(power: float) -> Curve:
    """Return the curve k^`power` at k times the request: 1 scales perfectly, 0 not at all."""
    return _Power(power)


@dataclass(frozen=True)
class _Power:
    power: float

    def __call__(self, multiples: Floats) -> Floats:
        return np.asarray(multiples**self.power)


@dataclass(frozen=True)
class _Table:
    sizes: Floats
    speeds: Floats
    at: float

    def __call__(self, multiples: Floats) -> Floats:
        speeds = np.interp(multiples * self.at, self.sizes, self.speeds)
        return np.asarray(speeds / np.interp(self.at, self.sizes, self.speeds))


def measured_curve(sizes: Floats, speeds: Floats, at: float) -> Curve:
    """Return the curve of measured speeds of one job whose user requested size `at`.

    It is linear between the sizes and constant beyond them.
    """
    order = np.argsort(sizes)
    return _Table(sizes[order], speeds[order], at)


def read_curves(path: str | Path) -> list[Curve]:
    """Read curves from a CSV file or a recommendation (JSON).

    The CSV file has the columns `size` and `throughput`, and `job` if there are several; each user is taken to have
    requested the middle size. Of a recommendation the sizes are the cores of its alternatives, and its target is the
    request.

    Raises InputError for other files, and for a curve of fewer than two sizes.
    """
    if Path(path).suffix.lower() in (".csv", ".tsv", ".txt", ".gz", ".parquet"):
        return _curves_in_table(Path(absolute(path)))
    recommendation = parse(Recommendation, load_yaml(path, "recommendation"), str(path))
    if recommendation.target is None or len(recommendation.alternatives) < 2:
        raise InputError(
            f"{path} does not have speeds at several sizes.",
            "Use a recommendation whose status is 'ok' and that has alternatives.",
        )
    sizes = np.array([each.allocation.cores() for each in recommendation.alternatives])
    speeds = np.array([each.throughput.value for each in recommendation.alternatives])
    return [measured_curve(sizes, speeds, recommendation.target.cores())]


def _curves_in_table(path: Path) -> list[Curve]:
    frame = read_table(path, "curves")
    if missing := {"size", "throughput"} - set(frame.columns):
        raise InputError(
            f"{path} has no column {sorted(missing)[0]}.",
            "Give the columns size, throughput and, for several curves, job.",
        )
    numbers = frame[["size", "throughput"]].apply(pd.to_numeric, errors="coerce")
    if frame.empty or not ((numbers > 0) & np.isfinite(numbers)).all(axis=None):
        raise InputError(f"{path} is empty or holds a size or throughput that is not above 0.", "Correct it.")
    curves = []
    for name, rows in numbers.groupby(frame["job"] if "job" in frame else np.zeros(len(frame))):
        if rows["size"].nunique() < 2 or rows["size"].duplicated().any():
            raise InputError(f"The curve {name} of {path} needs at least two sizes, each once.", "Measure more sizes.")
        sizes, speeds = rows["size"].to_numpy(float), rows["throughput"].to_numpy(float)
        curves.append(measured_curve(sizes, speeds, float(np.sort(sizes)[len(sizes) // 2])))
    return curves


@dataclass(frozen=True)
class Elasticity:
    """The scaling of the jobs of a trace. Raises InputError for shares, sizes or an error that make no sense."""

    share: float = 1.0
    """Share of jobs that are elastic; the others get their request or nothing."""
    multiples: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    """Sizes of elastic jobs, relative to their requests."""
    powers: tuple[float, float] = (0.6, 0.95)
    """Range of the exponents of power laws if no curves are given; an assumption, since no trace has them."""
    error: float = 0.5
    """Standard deviation of the logarithm of the estimated work over the true work."""
    start_up_s: float = 0.0
    """Time for which a job does not train after its first start. The trace may state its own for a job."""
    change_s: float = 10.0
    """Time for which a job does not train when it is scaled. The trace may state its own for a job."""
    restart_s: float = 63.0
    """Time for which a job does not train after it was stopped or failed; that of Aryl's preemptions. The trace may
    state its own for a job."""

    def __post_init__(self) -> None:
        if not (np.isfinite(self.error) and self.error >= 0):
            raise InputError(f"The error must be 0 or more, got {self.error:g}.", "Give 0 or more, such as 0.5.")
        for name in ("start_up_s", "change_s", "restart_s"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0):
                raise InputError(f"{name} must be 0 or more, got {value:g}.", "Give seconds, 0 or more.")
        if not 0 <= self.share <= 1:
            raise InputError(f"The elastic share must lie between 0 and 1, got {self.share:g}.", "Give 0 to 1.")
        sizes = self.multiples
        is_valid = all(np.isfinite(sizes)) and min(sizes, default=0) > 0 and sorted(set(sizes)) == list(sizes)
        if not is_valid or 1.0 not in sizes:
            text = ", ".join(f"{size:g}" for size in sizes) or "none"
            raise InputError(
                f"The sizes must be above 0, rise, and contain 1 (the request), got {text}.",
                "Give some such as 0.5,1,2.",
            )


def workload_of(
    trace: Trace, elasticity: Elasticity | None = None, curves: Sequence[Curve] | None = None, *, seed: int = 0
) -> Workload:
    """Return the jobs of a trace with speeds; `seed` draws which jobs are elastic, and their curves.

    The size of a job is its amount of the first of GPUs, cores and memory that it uses. GPUs stay whole; all resources
    grow in proportion.
    """
    elasticity = elasticity or Elasticity()
    rng = np.random.default_rng(seed)
    N = len(trace)
    resources = [name for name in ("gpu", "cpu", "memory_bytes") if name in trace.needs]
    amounts = np.stack([trace.needs[name] for name in resources], axis=1)
    first_used = np.argmax(amounts > 0, axis=1)
    requested_size = amounts[np.arange(N), first_used]
    multiples = np.array([0.0, *elasticity.multiples])
    requested = int(np.argmin(np.abs(multiples - 1.0)))
    powers = rng.uniform(*elasticity.powers, N)
    curve_of_job = rng.integers(len(curves), size=N) if curves else np.zeros(N, dtype=np.intp)
    is_elastic = rng.random(N) < elasticity.share

    sizes = requested_size[:, None] * multiples
    if resources[0] == "gpu":
        whole_gpus = (first_used == 0) & (requested_size >= 1)
        sizes = np.where(whole_gpus[:, None], np.floor(sizes), sizes)
    relative = np.divide(sizes, requested_size[:, None], out=np.zeros_like(sizes), where=requested_size[:, None] > 0)
    offered = (relative > 0) & np.concatenate([np.ones((N, 1), bool), np.diff(relative, axis=1) > 0], axis=1)
    offered[~is_elastic] = False
    offered[:, [0, requested]] = True
    # one replica per whole unit; a job of less than one unit has one replica
    replicas = np.where(sizes > 0, np.maximum(np.floor(sizes), 1), 0).astype(np.intp)
    return Workload(
        jobs=trace.jobs,
        resources=resources,
        arrived_s=trace.arrived_s,
        work=trace.duration_s,
        known_work=trace.duration_s * rng.lognormal(0.0, elasticity.error, N),
        speed=_speeds(relative, powers, curve_of_job, curves),
        needs=np.stack([relative * trace.needs[name][:, None] for name in resources], axis=2),
        offered=offered,
        requested=np.full(N, requested),
        replicas=replicas,
        base=np.where(offered & (replicas > 0), replicas, np.iinfo(np.intp).max).min(axis=1),
        change_s=trace.pauses_of("change_s", elasticity.change_s),
        restart_s=trace.pauses_of("restart_s", elasticity.restart_s),
        start_up_s=trace.pauses_of("start_up_s", elasticity.start_up_s),
    )


def _speeds(relative: Floats, powers: Floats, curve_of_job: Ints, curves: Sequence[Curve] | None) -> Floats:
    """Return speeds (N, K) at sizes `relative` (N, K) to the request, by curves or else power laws (N,)."""
    if not curves:
        return np.where(relative > 0, np.where(relative > 0, relative, 1.0) ** powers[:, None], 0.0)
    speed = np.zeros_like(relative)
    for number, curve in enumerate(curves):
        sizes = relative[curve_of_job == number]
        speed[curve_of_job == number] = np.where(sizes > 0, curve(sizes), 0.0)
    return speed


def resample_trace(trace: Trace, jobs: int, *, seed: int = 0) -> tuple[Trace, float]:
    """Return a trace of this number of jobs in the same time, drawn from the trace, and the factor of its rate.

    Jobs are drawn with replacement if more are needed than the trace has; each arrives within a minute of its model.
    """
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(len(trace), jobs, replace=jobs > len(trace)))
    arrived_s = trace.arrived_s[rows] + rng.uniform(0.0, 60.0, jobs)
    order = np.argsort(arrived_s, kind="stable")
    sample = trace.pick(rows[order])
    names = tuple(f"{name}-{number}" for number, name in enumerate(sample.jobs))
    return replace(sample, jobs=names, arrived_s=arrived_s[order]), jobs / len(trace)
