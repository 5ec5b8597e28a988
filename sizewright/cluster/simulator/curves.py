"""From a trace, which tells one size of each job, to a workload, in which jobs have speeds at several sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sizewright.cluster.problem import Floats, Ints
from sizewright.cluster.simulator.workload import Workload
from sizewright.datasets.traces import Trace

Curve = Callable[[Floats], Floats]
"""Multiples of what the user asked for → speed over that with what the user asked for."""


def power_law(power: float) -> Curve:
    """k^power: 1 scales perfectly, 0 not at all."""
    return lambda multiples: multiples**power


def measured(sizes: Floats, speeds: Floats, at: float) -> Curve:
    """A measured table of one job's speeds, linear between its sizes and level beyond; the user asked for size `at`."""
    order = np.argsort(sizes)
    sizes, speeds = sizes[order], speeds[order]
    return lambda multiples: np.interp(multiples * at, sizes, speeds) / np.interp(at, sizes, speeds)


@dataclass(frozen=True)
class Elasticity:
    """What jobs of a trace are made to be."""

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


def workload_of(
    trace: Trace, elasticity: Elasticity | None = None, curves: Sequence[Curve] | None = None, *, seed: int = 0
) -> Workload:
    """The jobs of a trace with speeds; which are elastic, and with which curve, is drawn by `seed`.

    The resource that counts is the first of GPUs, cores, memory. GPUs stay whole; all resources grow alike.
    """
    told, rng, N = elasticity or Elasticity(), np.random.default_rng(seed), len(trace)
    resources = [name for name in ("gpu", "cpu", "memory_bytes") if name in trace.needs]
    counted = trace.needs[resources[0]]
    multiples = np.array([0.0, *told.multiples])
    asked = int(np.argmin(np.abs(multiples - 1.0)))
    powers = rng.uniform(*told.powers, N)
    drawn = rng.integers(len(curves), size=N) if curves else np.zeros(N, dtype=np.intp)
    elastic = rng.random(N) < told.share
    sizes = counted[:, None] * multiples
    if resources[0] == "gpu":
        sizes = np.where(counted[:, None] >= 1, np.floor(sizes), sizes)
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
