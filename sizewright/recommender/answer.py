"""How a decision is told: the record with its prediction, evidence and reasons, or numbered remedies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials import Trial
from sizewright.models._base import BaseThroughputModel
from sizewright.models._memory import MemoryForecast
from sizewright.models.prior import JobCurve
from sizewright.recommender.caps import Candidates, Ruling, within_measured_range
from sizewright.recommender.reasons import assumptions, foretold, reasons, to_be_surer
from sizewright.recommender.scoring import Scored
from sizewright.recommender.warm_start import WarmStart
from sizewright.spec import Allocation, Alternative, Estimate, Evidence, Job, Prediction, Recommendation, Remedy, Role
from sizewright.spec.units import format_count

_MOST_ALTERNATIVES = 12


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
    lower, upper = _bounds(d)
    uncapped = d.scored.best()
    return Recommendation(
        status="ok",
        job=d.job.name,
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
        ),
    )


def not_enough(
    job: Job,
    trials: Sequence[Trial],
    model: BaseThroughputModel | None,
    why: str,
    remedy: str = "",
    *,
    refused: bool = False,
) -> Recommendation:
    """ "Not enough data", with what would be enough; `refused` by the prior, which is not named as a way out then."""
    account = model.explain() if model else None
    missing = max(1, account.needed - account.distinct_allocations) if account else 9
    missing_in_all = max(9, missing + (account.distinct_allocations if account else 0))
    remedies = [remedy] if remedy else []
    if any(trial.limited_by in ("affinity", "none") for trial in trials):
        remedies.append("Profile as root or in a delegated control group: without one, only whole cores are measured.")
    remedies.append(
        f"Run: sizewright profile JOB --trials {missing_in_all} --fresh "
        f"({format_count(missing, 'distinct allocation')} more)."
    )
    if not trials and not job.command and not refused:
        remedies.append("Or ask the prior that was learned from other jobs: sizewright recommend JOB --prior shipped.")
    remedies.append("Or bring measurements of your own: sizewright trials import FILE --job JOB.")
    if account and account.pinned and not account.enough:
        remedies.append(f"Vary what the trials left alone; without evidence so far: {', '.join(account.pinned)}.")
    return Recommendation(
        status="not_enough_data",
        job=job.name,
        evidence=_about(trials, account.distinct_allocations if account else 0, account.model if account else ""),
        reasons=(f"Not enough data: {why}.",),
        remedies=_numbered(remedies),
    )


def infeasible(job: Job, trials: Sequence[Trial], model: BaseThroughputModel, rulings: list[Ruling]) -> Recommendation:
    """Nothing within the bounds can run; the remedies lift the caps, the last one first."""
    account = model.explain()
    last = rulings[-1]
    return Recommendation(
        status="infeasible",
        job=job.name,
        evidence=_about(trials, account.distinct_allocations, account.model),
        reasons=(f"Infeasible: {last.verdict.reason}.",),
        remedies=_numbered([r.verdict.remedy for r in reversed(rulings) if r.ruled_out]),
    )


def _numbered(texts: Sequence[str]) -> tuple[Remedy, ...]:
    return tuple(Remedy(number=i, text=text) for i, text in enumerate(texts, 1))


def _allocation(d: Decision, i: int) -> Allocation:
    s = d.scored
    return d.job.with_sides(s.grid.allocation(i, s.worker_memory_bytes[i], s.ps_memory_bytes[i]))


def _bounds(d: Decision) -> tuple[Allocation, Allocation]:
    """Componentwise least and greatest over allocations whose objective's interval overlaps the target's.

    The memory of a PS is never less than so many PS need for the tables.
    """
    s = d.scored
    overlap = d.allowed & (s.objective_lower <= s.objective_upper[d.chosen])
    overlap &= s.objective_upper >= s.objective_lower[d.chosen]

    def of(pick: np.ufunc) -> Allocation:
        def value(column: NDArray[np.float64]) -> float:
            return float(pick.reduce(column[overlap]))

        grid = s.grid
        allocation = Allocation.of(
            int(value(grid.workers)),
            int(value(grid.ps)),
            value(grid.worker_cpu),
            value(grid.ps_cpu),
            int(value(grid.batch_size)),
            int(value(s.worker_memory_bytes)),
            _least_ps_memory(d, value(grid.ps), value(grid.workers), value(grid.batch_size), value(s.ps_memory_bytes)),
        )
        return d.job.with_sides(allocation)

    return of(np.minimum), of(np.maximum)


def _least_ps_memory(d: Decision, ps: float, workers: float, batch_size: float, wanted: float) -> int:
    """So many PS must hold the tables, whatever the component alone would say."""
    columns = (np.array([value]) for value in (ps, workers, batch_size))
    return int(max(wanted, np.ceil(d.memory.ps_request_bytes(*columns)[0])))


def _estimate(value: float, lower: float, upper: float) -> Estimate:
    return Estimate(value=float(value), lower=float(lower), upper=float(upper))


def _prediction(d: Decision) -> Prediction:
    s, i, samples = d.scored, d.chosen, d.job.training.samples
    rates = (s.throughput[i], s.lower[i], s.upper[i])
    time = _estimate(samples / rates[0], samples / rates[2], samples / rates[1])
    hourly = s.price_per_hour[i] / 3600
    worker_use, ps_use = _utilization(d)
    worker_bytes = float(d.memory.worker_bytes(s.grid.batch_size[[i]])[0])
    ps_bytes = float(d.memory.ps_bytes(s.grid.ps[[i]], s.grid.workers[[i]], batch_size=s.grid.batch_size[[i]])[0])
    return Prediction(
        throughput=_estimate(*rates),
        completion_time_s=time,
        cost=_estimate(time.value * hourly, time.lower * hourly, time.upper * hourly),
        worker_memory_bytes=int(worker_bytes),
        ps_memory_bytes=int(ps_bytes),
        worker_oom_probability=_oom(d, "worker", s.worker_memory_bytes[i], worker_bytes),
        ps_oom_probability=_oom(d, "ps", s.ps_memory_bytes[i], ps_bytes),
        worker_utilization=worker_use,
        ps_utilization=ps_use,
    )


def _oom(d: Decision, role: Role, limit_bytes: float, predicted_bytes: float) -> float | None:
    if not (limit_bytes > 0 and predicted_bytes > 0):
        return None
    return d.memory.oom_probability(role, float(limit_bytes), predicted_bytes)


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
            completion_time_s=float(d.job.training.samples / s.throughput[i]),
            cost=float(s.cost[i]),
            chosen=i == d.chosen,
        )
        for i in rows
    )


def _evidence(d: Decision) -> Evidence:
    account = d.model.explain()
    memory = d.prior.warm.memory
    measured = within_measured_range(replace(d.candidates, extrapolate=False), d.allowed).allowed
    return _about(d.trials, account.distinct_allocations, account.model).model_copy(
        update={
            "extrapolated": not measured[d.chosen],
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
