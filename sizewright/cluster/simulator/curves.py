"""From a trace, which tells one size of each job, to a workload, in which jobs have speeds at several sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from sizewright.cluster.problem import Floats, Ints
from sizewright.cluster.simulator.workload import Workload
from sizewright.datasets.tables import read_table
from sizewright.datasets.traces import Trace
from sizewright.errors import InputError
from sizewright.spec import Recommendation
from sizewright.spec._base import load_yaml, parse
from sizewright.spec._paths import absolute

Curve = Callable[[Floats], Floats]
"""Multiples of what the user asked for → speed over that with what the user asked for."""


def power_law(power: float) -> Curve:
    """k^`power` at k times what the user asked for: 1 scales perfectly, 0 not at all."""
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
        told = np.interp(multiples * self.at, self.sizes, self.speeds)
        return np.asarray(told / np.interp(self.at, self.sizes, self.speeds))


def measured(sizes: Floats, speeds: Floats, at: float) -> Curve:
    """A measured table of one job's speeds, linear between its sizes and level beyond; the user asked for size `at`."""
    order = np.argsort(sizes)
    return _Table(sizes[order], speeds[order], at)


def curves_in(path: str | Path) -> list[Curve]:
    """Of a CSV file with `size` and `throughput`, and `job` where there are several; or of a recommendation (JSON),
    whose sizes are the cores of its alternatives. The user of each is taken to have asked for its middle size, or for
    the recommendation's target.

    Raises InputError for a file that is neither, or for a curve of fewer than two sizes.
    """
    if Path(path).suffix.lower() in (".csv", ".tsv", ".txt", ".gz", ".parquet"):
        return _in_table(Path(absolute(path)))
    found = parse(Recommendation, load_yaml(path, "recommendation"), str(path))
    if found.target is None or len(found.alternatives) < 2:
        raise InputError(f"{path} tells no speeds at several sizes.", "Take one that is 'ok', with its alternatives.")
    sizes = np.array([each.allocation.cores() for each in found.alternatives])
    speeds = np.array([each.throughput.value for each in found.alternatives])
    return [measured(sizes, speeds, found.target.cores())]


def _in_table(path: Path) -> list[Curve]:
    frame = read_table(path, "curves")
    if missing := {"size", "throughput"} - set(frame.columns):
        raise InputError(f"{path} has no column {sorted(missing)[0]}.", "Give size, throughput and, of several, job.")
    numbers = frame[["size", "throughput"]].apply(pd.to_numeric, errors="coerce")
    if frame.empty or not ((numbers > 0) & np.isfinite(numbers)).all(axis=None):
        raise InputError(f"{path} holds a size or throughput that is not above 0.", "Correct it.")
    made = []
    for name, rows in numbers.groupby(frame["job"] if "job" in frame else np.zeros(len(frame))):
        if rows["size"].nunique() < 2 or rows["size"].duplicated().any():
            raise InputError(f"The curve {name} of {path} needs several sizes, each once.", "Measure more sizes.")
        sizes, speeds = rows["size"].to_numpy(float), rows["throughput"].to_numpy(float)
        made.append(measured(sizes, speeds, float(np.sort(sizes)[len(sizes) // 2])))
    return made


@dataclass(frozen=True)
class Elasticity:
    """What jobs of a trace are made to be. Raises InputError for shares, sizes or an error that cannot be."""

    share: float = 1.0
    """Of jobs that are elastic; the others have what their users asked for, or nothing."""
    multiples: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    """Sizes of elastic jobs, over what their users asked for."""
    powers: tuple[float, float] = (0.6, 0.95)
    """Exponents of the power laws that are drawn where no curves are given: invented, no trace tells them."""
    error: float = 0.5
    """Standard deviation of the logarithm by which the known work differs from the true one."""
    change_s: float = 10.0
    """A job stands still so long when it is scaled."""
    restart_s: float = 63.0
    """And so long when it was stopped or failed; that of Aryl's preemptions."""

    def __post_init__(self) -> None:
        if not (np.isfinite(self.error) and self.error >= 0 and 0 <= self.share <= 1):
            raise InputError(
                "An error below 0, or a share that is none.", "Give an error of 0 or more, a share of 0 to 1."
            )
        sizes = self.multiples
        if (
            not all(np.isfinite(sizes))
            or min(sizes, default=0) <= 0
            or 1.0 not in sizes
            or sorted(set(sizes)) != list(sizes)
        ):
            told = ", ".join(f"{size:g}" for size in sizes) or "none"
            raise InputError(f"Jobs cannot be {told} times what was asked for.", "Give rising sizes, 1 among them.")


def workload_of(
    trace: Trace, elasticity: Elasticity | None = None, curves: Sequence[Curve] | None = None, *, seed: int = 0
) -> Workload:
    """The jobs of a trace with speeds; which are elastic, and with which curve, is drawn by `seed`.

    Of each job the resource counts that is the first of GPUs, cores, memory which it has. GPUs stay whole; all
    resources grow alike.
    """
    told, rng, N = elasticity or Elasticity(), np.random.default_rng(seed), len(trace)
    resources = [name for name in ("gpu", "cpu", "memory_bytes") if name in trace.needs]
    amounts = np.stack([trace.needs[name] for name in resources], axis=1)
    first = np.argmax(amounts > 0, axis=1)
    counted = amounts[np.arange(N), first]
    multiples = np.array([0.0, *told.multiples])
    asked = int(np.argmin(np.abs(multiples - 1.0)))
    powers = rng.uniform(*told.powers, N)
    drawn = rng.integers(len(curves), size=N) if curves else np.zeros(N, dtype=np.intp)
    elastic = rng.random(N) < told.share
    sizes = counted[:, None] * multiples
    if resources[0] == "gpu":
        whole = (first == 0) & (counted >= 1)
        sizes = np.where(whole[:, None], np.floor(sizes), sizes)
    relative = np.divide(sizes, counted[:, None], out=np.zeros_like(sizes), where=counted[:, None] > 0)
    speed = _speeds(relative, powers, drawn, curves)
    offered = (relative > 0) & np.concatenate([np.ones((N, 1), bool), np.diff(relative, axis=1) > 0], axis=1)
    offered[~elastic] = False
    offered[:, [0, asked]] = True
    needs = np.stack([relative * trace.needs[name][:, None] for name in resources], axis=2)
    replicas = _replicas(sizes)
    least = np.where(offered & (replicas > 0), replicas, np.iinfo(np.intp).max).min(axis=1)
    return Workload(
        jobs=trace.jobs, resources=resources, arrived_s=trace.arrived_s, work=trace.duration_s,
        known_work=trace.duration_s * rng.lognormal(0.0, told.error, N), speed=speed, needs=needs, offered=offered,
        requested=np.full(N, asked), replicas=replicas, base=least, change_s=np.full(N, told.change_s),
        restart_s=np.full(N, told.restart_s),
    )  # fmt: skip


def _speeds(relative: Floats, powers: Floats, drawn: Ints, curves: Sequence[Curve] | None) -> Floats:
    if not curves:
        return np.where(relative > 0, np.where(relative > 0, relative, 1.0) ** powers[:, None], 0.0)
    speed = np.zeros_like(relative)
    for number, curve in enumerate(curves):
        speed[drawn == number] = np.where(relative[drawn == number] > 0, curve(relative[drawn == number]), 0.0)
    return speed


def _replicas(sizes: Floats) -> Ints:
    """(N, K): one for each whole unit; a job of less than one is one replica."""
    return np.where(sizes > 0, np.maximum(np.floor(sizes), 1), 0).astype(np.intp)


def scaled(trace: Trace, jobs: int, *, seed: int = 0) -> tuple[Trace, float]:
    """So many jobs in the same time, with the trace's own arrivals and jobs, and the factor of its rate.

    Jobs are drawn with replacement where more are wanted than there are; each comes within a minute of its model.
    """
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(len(trace), jobs, replace=jobs > len(trace)))
    arrived = trace.arrived_s[rows] + rng.uniform(0.0, 60.0, jobs)
    order = np.argsort(arrived, kind="stable")
    drawn = trace.pick(rows[order])
    names = tuple(f"{name}-{number}" for number, name in enumerate(drawn.jobs))
    return Trace(names, arrived[order], drawn.duration_s, drawn.needs, drawn.notes), jobs / len(trace)
