"""How a decision is told: the record with its prediction, evidence and reasons, or numbered remedies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials import Trial
from sizewright.models._base import BaseThroughputModel
from sizewright.models._memory import MemoryForecast
from sizewright.models.prior import JobCurve
from sizewright.recommender.caps import AXIS_WORDS, Candidates, Ruling, beyond_measured
from sizewright.recommender.reasons import (
    assumptions,
    foretold,
    memory_reason,
    predicted_bytes,
    reasons,
    to_be_surer,
)
from sizewright.recommender.scoring import Scored
from sizewright.recommender.warm_start import WarmStart
from sizewright.spec import Allocation, Alternative, Estimate, Evidence, Job, Prediction, Recommendation, Remedy, Role
from sizewright.spec.objective import cost_of
from sizewright.spec.units import format_count

_MOST_ALTERNATIVES = 12
_TRIALS = 9  # as `profile` runs by default


class Prior(NamedTuple):
    """What a learned prior tells of the job, or why nothing; neither where none was asked."""

    foretold: JobCurve | None = None
    refused: str = ""
    doubts: tuple[str, ...] = ()
    """Trials of the job that contradict it."""
    warm: WarmStart = WarmStart()
    """What runs of jobs like it tell, which is in the curve."""


@dataclass(frozen=True)
class Decision:
    """All that was known when the target was chosen; `chosen` and `front` are rows of the grid."""

    job: Job
    trials: Sequence[Trial]
    model: BaseThroughputModel
    memory: MemoryForecast
    scored: Scored
    candidates: Candidates
    allowed: NDArray[np.bool_]
    chosen: int
    front: NDArray[np.int64]
    rulings: list[Ruling]
    prior: Prior
    peaks: int = 0
    """Of runs of the job, that memory rests on."""


def ok(d: Decision) -> Recommendation:
    """A recommendation with its target."""
    lower, upper = _range(d)
    uncapped = d.scored.best()
    return Recommendation(
        status="ok",
        job=d.job.name,
        objective=d.job.objective,
        target=_allocation(d, d.chosen),
        lower=lower,
        upper=upper,
        uncapped=_allocation(d, uncapped),
        predicted=_prediction(d),
        alternatives=_alternatives(d),
        evidence=_evidence(d),
        reasons=(
            *foretold(d.prior.foretold, len(d.trials)),
            *(d.prior.warm.told(len(d.trials)) if d.prior.foretold else ()),
            *d.prior.doubts,
            *reasons(d.job, d.model, d.scored, d.allowed, d.chosen, uncapped, d.rulings, d.trials),
            *(f"The target is extrapolated in {axis}." for axis in beyond_measured(d.candidates, d.chosen)),
            memory_reason(d.memory, d.scored, d.chosen),
        ),
    )


def not_enough(
    job: Job,
    trials: Sequence[Trial],
    model: BaseThroughputModel | None,
    why: str,
    remedy: str = "",
    *,
    missing: int = _TRIALS,
    refused: bool = False,
) -> Recommendation:
    """ "Not enough data", with what would be enough; `refused` by the prior, which is not named as a way out then.

    A `model` that was fitted tells how many distinct allocations are `missing`.
    """
    account = model.explain() if model else None
    distinct = account.distinct_allocations if account else 0
    if account:
        missing = max(1, account.needed - distinct)
    remedies = [remedy] if remedy else []
    if any(trial.limited_by in ("affinity", "none") for trial in trials):
        remedies.append("Profile as root or in a delegated control group: without one, only whole cores are measured.")
    more = ""
    if trials and not (account and account.enough):
        more = f" ({format_count(missing, 'more distinct allocation')}; what was measured is kept)"
    remedies.append(f"Run: sizewright profile JOB --trials {max(_TRIALS, distinct + missing)}{more}.")
    if not trials and not job.command and not refused:
        remedies.append("Or ask the prior that was learned from other jobs: sizewright recommend JOB --prior shipped.")
    remedies.append("Or bring measurements of your own: sizewright trials import FILE --job JOB.")
    if trials and (alike := _never_varied(job, trials)):
        remedies.append(f"Vary {' and '.join(alike)}: all trials had the same.")
    return Recommendation(
        status="not_enough_data",
        job=job.name,
        evidence=_about(trials, distinct, account.model if account else ""),
        reasons=(f"Not enough data: {why}.",),
        remedies=Remedy.numbered(remedies),
    )


def _never_varied(job: Job, trials: Sequence[Trial]) -> list[str]:
    """The axes that the bounds leave open and that no two trials differ in, as users call them."""
    bounds = {
        "workers": job.bounds.worker.replicas,
        "worker_cpu": job.bounds.worker.cpu,
        "batch_size": job.bounds.batch_size or (0, 0),
    }
    if job.has_ps:
        bounds |= {"ps": job.bounds.ps.replicas, "ps_cpu": job.bounds.ps.cpu}
    return [
        AXIS_WORDS[axis]
        for axis, (low, high) in bounds.items()
        if low < high and len({getattr(trial, axis) for trial in trials}) == 1
    ]


def infeasible(job: Job, trials: Sequence[Trial], model: BaseThroughputModel, rulings: list[Ruling]) -> Recommendation:
    """Nothing within the bounds can run; the remedies lift the caps, the last one first."""
    account = model.explain()
    last = rulings[-1]
    # A remedy helps where lifting its cap alone leaves something.
    helpful = [
        one for one in reversed(rulings)
        if one.ruled_out and np.all([r.verdict.allowed for r in rulings if r is not one], axis=0).any()
    ]  # fmt: skip
    return Recommendation(
        status="infeasible",
        job=job.name,
        evidence=_about(trials, account.distinct_allocations, account.model),
        reasons=(f"Infeasible: {last.verdict.reason}.",),
        remedies=Remedy.numbered([one.verdict.remedy for one in helpful or [last]]),
    )


def _allocation(d: Decision, i: int) -> Allocation:
    s = d.scored
    return d.job.with_sides(s.grid.allocation(i, s.worker_memory_bytes[i], s.ps_memory_bytes[i]))


def _range(d: Decision) -> tuple[Allocation, Allocation]:
    """The cheapest and the dearest by the hour of the allowed allocations that the evidence cannot tell from the
    target: those whose interval of the objective overlaps the target's."""
    s = d.scored
    overlap = d.allowed & (s.objective_lower <= s.objective_upper[d.chosen])
    rows = np.flatnonzero(overlap & (s.objective_upper >= s.objective_lower[d.chosen]))
    best_first = rows[np.lexsort((-s.throughput[rows], s.objective[rows]))]
    price = s.price_per_hour[best_first]
    return _allocation(d, best_first[np.argmin(price)]), _allocation(d, best_first[np.argmax(price)])


def _estimate(value: float, lower: float, upper: float) -> Estimate:
    return Estimate(value=float(value), lower=float(lower), upper=float(upper))


def _prediction(d: Decision) -> Prediction:
    s, i, samples = d.scored, d.chosen, d.job.samples
    rates = (s.throughput[i], s.lower[i], s.upper[i])
    time = _estimate(samples / rates[0], samples / rates[2], samples / rates[1]) if samples else None
    hourly = float(s.price_per_hour[i])
    worker_use, ps_use = _utilization(d)
    worker_bytes, ps_bytes = (predicted_bytes(d.memory, s, i, role) for role in ("worker", "ps"))
    return Prediction(
        throughput=_estimate(*rates),
        completion_time_s=time,
        cost=_estimate(*(cost_of(end, hourly) for end in (time.value, time.lower, time.upper))) if time else None,
        price_per_hour=hourly,
        worker_memory_bytes=None if worker_bytes is None else int(worker_bytes),
        ps_memory_bytes=None if ps_bytes is None else int(ps_bytes),
        worker_oom_probability=_oom(d, "worker", s.worker_memory_bytes[i], worker_bytes),
        ps_oom_probability=_oom(d, "ps", s.ps_memory_bytes[i], ps_bytes),
        worker_utilization=worker_use,
        ps_utilization=ps_use,
    )


def _oom(d: Decision, role: Role, limit_bytes: float, predicted: float | None) -> float | None:
    if not (limit_bytes > 0 and predicted):
        return None
    return d.memory.oom_probability(role, float(limit_bytes), predicted)


def _utilization(d: Decision) -> tuple[float | None, float | None]:
    """Share of the cores kept busy: CPU seconds per sample, as measured, times the predicted samples/s.

    None where no trial knows its CPU use.
    """

    def share(count: str, used: str, cores: float) -> float | None:
        per_sample = [
            getattr(t, count) * getattr(t, used) / t.throughput
            for t in d.trials
            if t.throughput and getattr(t, used) is not None
        ]
        rate = float(d.scored.throughput[d.chosen])
        if not cores:
            return None
        return min(1.0, float(np.median(per_sample)) * rate / cores) if per_sample else None

    grid, i = d.scored.grid, d.chosen
    return (
        share("workers", "worker_cpu_used", float(grid.workers[i] * grid.worker_cpu[i])),
        share("ps", "ps_cpu_used", float(grid.ps[i] * grid.ps_cpu[i])),
    )


def _alternatives(d: Decision) -> tuple[Alternative, ...]:
    """The Pareto set, thinned evenly where it is long; the chosen row is always there."""
    s, front = d.scored, d.front
    if len(front) > _MOST_ALTERNATIVES:
        front = front[np.unique(np.linspace(0, len(front) - 1, _MOST_ALTERNATIVES).round().astype(int))]
    rows = sorted({*front.tolist(), d.chosen}, key=lambda i: float(s.throughput[i]))
    return tuple(
        Alternative(
            allocation=_allocation(d, i),
            throughput=_estimate(s.throughput[i], s.lower[i], s.upper[i]),
            completion_time_s=float(d.job.samples / s.throughput[i]) if d.job.samples else None,
            cost=float(s.cost[i]) if d.job.samples else None,
            price_per_hour=float(s.price_per_hour[i]),
            chosen=i == d.chosen,
        )
        for i in rows
    )


def _evidence(d: Decision) -> Evidence:
    account = d.model.explain()
    memory = d.prior.warm.memory
    return _about(d.trials, account.distinct_allocations, account.model).model_copy(
        update={
            "extrapolated": bool(beyond_measured(d.candidates, d.chosen)),
            "parameters": account.parameters,
            "pinned": account.pinned,
            "prior": d.prior.foretold.source if d.prior.foretold else "",
            "similar": d.prior.warm.similar,
            "assumptions": (
                *([f"{d.prior.refused}."] if d.prior.refused else []),
                *assumptions(
                    d.job, d.trials, d.candidates.cluster, float(d.scored.throughput[d.chosen]), d.peaks, memory
                ),
            ),
            "to_be_surer": tuple(to_be_surer(d.trials, d.scored, d.chosen, d.scored.best())),
        }
    )


def _about(trials: Sequence[Trial], distinct: int, model: str) -> Evidence:
    return Evidence(
        trials=len(trials),
        distinct_allocations=distinct,
        model=model,
        limited_by=tuple(sorted({t.limited_by for t in trials if t.limited_by})),
        host=tuple(sorted({t.host for t in trials if t.host})),
    )
