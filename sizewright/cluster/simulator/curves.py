"""Build a workload, in which jobs have speeds at several sizes, from a trace, which has one size for each job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sizewright.cluster.problem.candidates import GPU
from sizewright.cluster.problem.problem import Floats, Ints
from sizewright.cluster.simulator.job_candidates import measured_candidates, scaled_candidates
from sizewright.cluster.simulator.kinds import JobKinds, kinds_of_jobs, trace_resources
from sizewright.cluster.simulator.measured_curves import ANY, MeasuredCurve, job_sizes
from sizewright.cluster.simulator.workload import Workload
from sizewright.datasets.traces import Trace
from sizewright.errors import InputError

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
    spread: float = 1.0
    """Factor of a job's speed for each host more than the least that its replicas need; 1 if hosts do not matter."""

    def __post_init__(self) -> None:
        if not (np.isfinite(self.error) and self.error >= 0):
            raise InputError(f"The error must be 0 or more, got {self.error:g}.", "Give 0 or more, such as 0.5.")
        for name in ("start_up_s", "change_s", "restart_s"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0):
                raise InputError(f"{name} must be 0 or more, got {value:g}.", "Give seconds, 0 or more.")
        if not 0 <= self.share <= 1:
            raise InputError(f"The elastic share must lie between 0 and 1, got {self.share:g}.", "Give 0 to 1.")
        if not 0 < self.spread <= 1:
            raise InputError(f"The spread must lie above 0 and up to 1, got {self.spread:g}.", "Give one such as 0.95.")
        sizes = self.multiples
        is_valid = all(np.isfinite(sizes)) and min(sizes, default=0) > 0 and sorted(set(sizes)) == list(sizes)
        if not is_valid or 1.0 not in sizes:
            text = ", ".join(f"{size:g}" for size in sizes) or "none"
            raise InputError(
                f"The sizes must be above 0, rise, and contain 1 (the request), got {text}.",
                "Give some such as 0.5,1,2.",
            )


def workload_of(
    trace: Trace,
    elasticity: Elasticity | None = None,
    curves: Sequence[Curve] | Mapping[str, MeasuredCurve] | None = None,
    *,
    seed: int = 0,
    kinds: Sequence[str] = (),
) -> Workload:
    """Return the jobs of a trace with speeds; `seed` draws which jobs are elastic, and the curves that are dealt out.

    The size of a job is its amount of the first of GPUs, cores and memory that it uses. GPUs stay whole; all resources
    grow in proportion. Jobs with curves of their own (`trace.curves`) have the sizes of these. `kinds` are the kinds of
    GPUs; several are a resource each. A job runs on the kind that it requests, or if its speeds by kind are known, on
    each of these; a job that requests no kind runs on any.

    Raises InputError for a job that requests a kind that is not one of `kinds`, and for a curve that does not match.
    """
    elasticity = elasticity or Elasticity()
    rng = np.random.default_rng(seed)
    N = len(trace)
    powers = rng.uniform(*elasticity.powers, N)
    known: list[Curve] = list(curves.values() if isinstance(curves, Mapping) else curves or ())
    dealt = rng.integers(len(known), size=N) if known else np.zeros(N, dtype=np.intp)
    is_elastic = rng.random(N) < elasticity.share

    size = job_sizes(trace)
    if not (size > 0).all():
        raise InputError(f"Job {trace.jobs[int(size.argmin())]} requests nothing.", "Give it GPUs, cores or memory.")
    if trace.curves:
        assert isinstance(curves, Mapping), "assign_curves finds the curves that a trace names"
        own = [curves[name] for name in trace.curves]
        job_kinds = kinds_of_jobs(trace, kinds, own)
        candidates = measured_candidates(trace, own, size, kinds, job_kinds)
    else:
        measured = [_of_several_sizes(each) if isinstance(each, MeasuredCurve) else None for each in known] or [None]
        job_kinds = kinds_of_jobs(trace, kinds, [measured[number] for number in dealt])
        relative = _relative_sizes(trace, elasticity.multiples, size)
        speed = _relative_speeds(relative, powers, dealt, known, kinds, job_kinds)
        requested = int(np.argmin(np.abs(np.array(elasticity.multiples) - 1.0)))
        candidates = scaled_candidates(relative, size, requested, speed, job_kinds)
    G, M = candidates.sizes.shape[1:]
    at_request = candidates.offered & (np.arange(M) == candidates.requested[:, None])[:, None]
    is_requested_kind = (job_kinds.named < 0)[:, None] | (np.arange(G) == job_kinds.reference[:, None])
    offered = _columns(candidates.offered & (is_elastic[:, None, None] | at_request))
    offered[:, 0] = True
    # one replica per whole unit; a job of less than one unit has one replica
    replicas = _columns(np.where(candidates.sizes > 0, np.maximum(np.floor(candidates.sizes), 1), 0)).astype(np.intp)
    return Workload(
        jobs=trace.jobs,
        resources=trace_resources(trace, kinds),
        arrived_s=trace.arrived_s,
        work=trace.duration_s,
        known_work=trace.duration_s * rng.lognormal(0.0, elasticity.error, N),
        speed=_columns(candidates.speed),
        needs=_needs(trace, candidates.sizes / size[:, None, None], kinds),
        offered=offered,
        requested=1 + job_kinds.reference * M + candidates.requested,
        replicas=replicas,
        base=np.where(offered & (replicas > 0), replicas, np.iinfo(np.intp).max).min(axis=1),
        change_s=trace.pauses_of("change_s", elasticity.change_s),
        restart_s=trace.pauses_of("restart_s", elasticity.restart_s),
        start_up_s=trace.pauses_of("start_up_s", elasticity.start_up_s),
        spread=_spread(trace, elasticity.spread),
        meets_request=_columns(at_request & is_requested_kind[:, :, None]) if G > 1 else None,
    )


def _of_several_sizes(curve: MeasuredCurve) -> MeasuredCurve:
    """Return a curve that is dealt out. Raises InputError if it has only one size on some kind."""
    for kind, (sizes, _) in curve.tables.items():
        if len(sizes) < 2:
            on = f" on {kind}" if kind != ANY else ""
            raise InputError(
                f"The curve {curve.name} belongs to no job of the trace, and has only one size{on}.",
                "Measure more sizes, or give the curve the name of the job of the trace that it belongs to.",
            )
    return curve


def _spread(trace: Trace, rule: float) -> Floats | None:
    """Return the factor (N,) of a job's speed for each host more than it needs; None if all are 1."""
    spread = np.full(len(trace), rule) if trace.spread is None else np.where(np.isnan(trace.spread), rule, trace.spread)
    return None if (spread == 1).all() else spread


def _relative_sizes(trace: Trace, multiples: Sequence[float], size: Floats) -> Floats:
    """Return sizes (N, M) relative to the request; GPUs stay whole."""
    sizes = size[:, None] * np.array(multiples)
    if "gpu" in trace.needs:
        whole_gpus = (trace.needs["gpu"] > 0) & (size >= 1)
        sizes = np.where(whole_gpus[:, None], np.floor(sizes), sizes)
    return np.asarray(sizes / size[:, None])


def _relative_speeds(
    relative: Floats, powers: Floats, dealt: Ints, curves: Sequence[Curve], kinds: Sequence[str], job_kinds: JobKinds
) -> Floats:
    """Return speeds (N, G, M) at sizes `relative` (N, M) to the request, by curves or else power laws (N,)."""
    speed = np.zeros((len(relative), max(len(kinds), 1), relative.shape[1]))
    if not curves:
        speed[:] = (relative ** powers[:, None])[:, None]
    names = kinds or (ANY,)
    for number, curve in enumerate(curves):
        rows = np.flatnonzero(dealt == number)
        if not isinstance(curve, MeasuredCurve):
            speed[rows] = curve(relative[rows])[:, None]
            continue
        for reference in np.unique(job_kinds.reference[rows]):
            some = rows[job_kinds.reference[rows] == reference]
            for k, name in enumerate(names):
                if curve.has(name):
                    speed[some, k] = curve.relative(relative[some], name, names[reference])
    return np.where(relative[:, None] > 0, speed, 0.0)


def _columns(table: NDArray[Any]) -> NDArray[Any]:
    """Return a table (N, G, M) of G kinds and M sizes as columns (N, 1 + G·M); column 0 is nothing."""
    return np.concatenate([np.zeros((len(table), 1), table.dtype), table.reshape(len(table), -1)], axis=1)


def _needs(trace: Trace, relative: Floats, kinds: Sequence[str]) -> Floats:
    """Return needs (N, K, R) of candidates whose sizes are `relative` (N, G, M) to the request."""
    by_resource = []
    for resource in trace_resources(trace, kinds):
        kind = resource.removeprefix(GPU)
        amounts = relative * trace.needs[resource if kind == resource else "gpu"][:, None, None]
        if kind != resource:
            amounts[:, np.array(kinds) != kind] = 0.0
        by_resource.append(_columns(amounts))
    return np.stack(by_resource, axis=2)


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
