"""Build the recommendation: a target with its prediction and evidence, or numbered remedies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from sizewright.datasets.trials.trial import Trial
from sizewright.formatting import format_count
from sizewright.models._base import BaseThroughputModel
from sizewright.models.axes import column_imputer, count_distinct
from sizewright.recommender.sizing.caps import Ruling, beyond_supported
from sizewright.recommender.sizing.expected import deadline_probability, estimate, machines_of, time_and_cost
from sizewright.recommender.sizing.pareto import thinned
from sizewright.recommender.sizing.reasons import assumptions, next_trials, reasons
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.recommender.sizing.result import PriorEvidence, Selection
from sizewright.spec import (
    Allocation,
    Alternative,
    Evidence,
    Job,
    Prediction,
    PredictionAnswer,
    Recommendation,
    Remedy,
    Role,
)
from sizewright.spec.reason import Reason
from sizewright.spec.wording import AXIS_WORDS, infeasible_because, not_enough_because, sentence

SizingAnswer = TypeVar("SizingAnswer", Recommendation, PredictionAnswer)
_MAX_ALTERNATIVES = 12
_DEFAULT_TRIALS = 9  # of `sizewright profile`


def build_recommendation(selection: Selection) -> Recommendation:
    """Return a recommendation with its target."""
    lower, upper = _range(selection)
    why = tuple(reasons(selection))
    return Recommendation(
        status="ok",
        job=selection.job.name,
        objective=selection.job.objective,
        target=selection.allocation(selection.chosen),
        lower=lower,
        upper=upper,
        uncapped=selection.allocation(selection.scored.best()),
        predicted=prediction_of(selection),
        alternatives=_alternatives(selection),
        machines=tuple(machines_of(option, chosen=number == 0) for number, option in enumerate(selection.options)),
        evidence=evidence_of_selection(selection).model_copy(update={"to_be_surer": tuple(next_trials(selection))}),
        reasons=tuple(map(sentence, why)),
        reason_details=why,
    )


def usable_trials(trials: Sequence[Trial], job: Job) -> list[Trial]:
    """Return the successful trials with the roles of the job."""
    return [trial for trial in trials if trial.usable and (trial.ps > 0) == job.has_ps]


def not_enough_data(
    request: SizingRequest,
    trials: Sequence[Trial],
    model: BaseThroughputModel | None,
    prior: PriorEvidence,
    why: Reason,
    remedy: str = "",
    *,
    missing: int = _DEFAULT_TRIALS,
) -> Recommendation:
    """Return "not enough data", with remedies that say how many more trials are enough.

    A fitted `model` overrides the number of `missing` distinct allocations.
    """
    job, commands = request.job, request.commands
    explanation = model.explain() if model else None
    distinct = explanation.distinct_allocations if explanation else _count_distinct(usable_trials(trials, job))
    if explanation:
        missing = max(1, explanation.needed - distinct)
    remedies = [remedy] if remedy else []
    if any(trial.limited_by in ("affinity", "none") for trial in trials):
        remedies.append("Profile as root or in a delegated control group: without one, only whole cores are measured.")
    failed = [trial for trial in request.trials if trial.status == "failed"]
    if failed and distinct:
        count = format_count(len(failed), "failed trial")
        cause = failed[-1].cause.rstrip(".")
        remedies.append(f"Remove the cause of {count}, or exclude these allocations by the bounds: {cause}.")
    more = ""
    if trials and not (explanation and explanation.enough):
        verb = "is" if missing == 1 else "are"
        more = f" At least {format_count(missing, 'more distinct allocation')} {verb} needed; existing trials are kept."
    remedies.append(f"Run: {commands.profile(max(_DEFAULT_TRIALS, distinct + missing))}.{more}")
    if not trials and not job.command and not prior.was_given:
        remedies.append(f"Or use the prior learned from other jobs: {commands.recommend('shipped')}.")
    remedies.append(f"Or import measurements of your own: {commands.import_trials()}.")
    if trials and (unvaried := _unvaried_axes(job, trials)):
        remedies.append(f"Vary {' and '.join(unvaried)}: all trials have the same.")
    return Recommendation(
        status="not_enough_data",
        job=job.name,
        evidence=_trial_evidence(trials, distinct, explanation.model if explanation else ""),
        reasons=(not_enough_because(why), *map(sentence, prior.doubts)),
        reason_details=(why, *prior.doubts),
        remedies=Remedy.numbered(remedies),
    )


def _count_distinct(trials: Sequence[Trial]) -> int:
    """Return the number of distinct allocations of usable trials, as models count them."""
    return count_distinct(column_imputer(trials).axes(trials, trials=True)) if trials else 0


def _unvaried_axes(job: Job, trials: Sequence[Trial]) -> list[str]:
    """Return the names of the axes that the bounds leave open and in which no two trials differ."""
    bounds = {
        "workers": job.bounds.worker.replicas,
        "worker_cpu": job.bounds.worker.cpu,
        "batch_size": job.bounds.batch_size or (0, 0),
    }
    if job.bounds.worker.gpu:
        bounds["worker_gpu"] = job.bounds.worker.gpu.count
    if job.bounds.loaders:
        bounds["loaders"] = job.bounds.loaders
    if job.has_ps:
        bounds |= {"ps": job.bounds.ps.replicas, "ps_cpu": job.bounds.ps.cpu}
    return [
        AXIS_WORDS[axis]
        for axis, (low, high) in bounds.items()
        if low < high and len({getattr(trial, axis) for trial in trials}) == 1
    ]


def infeasible(
    request: SizingRequest,
    trials: Sequence[Trial],
    model: BaseThroughputModel,
    prior: PriorEvidence,
    rulings: Sequence[Ruling],
) -> Recommendation:
    """Return "infeasible": nothing within the bounds can run.

    Each remedy lifts one cap, the last one first. There is at least one: the caps before the last allowed something.
    """
    explanation = model.explain()
    why = rulings[-1].result.reason
    remedies = []
    for ruling in reversed(rulings):
        others = [other.result.allowed for other in rulings if other is not ruling]
        if ruling.ruled_out and np.all(others, axis=0).any():  # lifting this cap alone is enough
            remedies.append(ruling.result.remedy)
    return Recommendation(
        status="infeasible",
        job=request.job.name,
        evidence=_trial_evidence(trials, explanation.distinct_allocations, explanation.model),
        reasons=(infeasible_because(why), *map(sentence, prior.doubts)),
        reason_details=(why, *prior.doubts),
        remedies=Remedy.numbered(remedies),
    )


def with_reason(answer: SizingAnswer, reason: Reason) -> SizingAnswer:
    """Return the recommendation or prediction with one more reason."""
    details = (*answer.reason_details, reason)
    return answer.model_copy(update={"reasons": (*answer.reasons, sentence(reason)), "reason_details": details})


def _range(selection: Selection) -> tuple[Allocation, Allocation]:
    """Return the cheapest and the most expensive allocation that the evidence cannot distinguish from the target.

    These are allowed allocations whose interval of the objective overlaps the target's; prices are per hour.
    """
    scored, chosen = selection.scored, selection.chosen
    overlaps = selection.allowed & (scored.objective_lower <= scored.objective_upper[chosen])
    rows = np.flatnonzero(overlaps & (scored.objective_upper >= scored.objective_lower[chosen]))
    best_first = rows[np.lexsort((-scored.throughput[rows], scored.objective[rows]))]
    price = scored.price_per_hour[best_first]
    lower, upper = best_first[np.argmin(price)], best_first[np.argmax(price)]
    return selection.allocation(lower), selection.allocation(upper)


def prediction_of(selection: Selection) -> Prediction:
    """Return what is predicted for the chosen allocation."""
    scored, row = selection.scored, selection.chosen
    value, lower, upper = scored.throughput[row], scored.lower[row], scored.upper[row]
    time, cost = time_and_cost(selection)
    worker_bytes, ps_bytes = selection.predicted_bytes("worker"), selection.predicted_bytes("ps")
    gpu_bytes = selection.gpu_bytes()
    return Prediction(
        throughput=estimate(value, lower, upper),
        completion_time_s=time,
        cost=cost,
        deadline_probability=deadline_probability(selection),
        price_per_hour=float(scored.price_per_hour[row]) if np.isfinite(scored.price_per_hour[row]) else None,
        worker_memory_bytes=None if worker_bytes is None else int(worker_bytes),
        ps_memory_bytes=None if ps_bytes is None else int(ps_bytes),
        device_memory_bytes=None if gpu_bytes is None else int(gpu_bytes),
        worker_oom_probability=_oom_probability(selection, "worker", worker_bytes),
        ps_oom_probability=_oom_probability(selection, "ps", ps_bytes),
        worker_utilization=_utilization(selection, "worker"),
        ps_utilization=_utilization(selection, "ps"),
    )


def _oom_probability(selection: Selection, role: Role, predicted: float | None) -> float | None:
    limit = float(getattr(selection.scored, f"{role}_memory_bytes")[selection.chosen])
    if limit <= 0 or not predicted:
        return None
    return selection.evaluation.memory.oom_probability(role, limit, predicted)


def _utilization(selection: Selection, role: Role) -> float | None:
    """Return the busy share of a role's cores: measured CPU seconds per sample times predicted samples/s, over cores.

    None if no trial records its CPU use, or the role has no cores.
    """
    grid, row, trials = selection.scored.grid, selection.chosen, selection.trials
    if role == "worker":
        cores = float(grid.workers[row] * grid.worker_cpu[row])
        used = [(trial.workers, trial.worker_cpu_used, trial.throughput) for trial in trials]
    else:
        cores = float(grid.ps[row] * grid.ps_cpu[row])
        used = [(trial.ps, trial.ps_cpu_used, trial.throughput) for trial in trials]
    cpu_s_per_sample = [n * cpu / throughput for n, cpu, throughput in used if throughput and cpu is not None]
    if not cores or not cpu_s_per_sample:
        return None
    return min(1.0, float(np.median(cpu_s_per_sample)) * float(selection.scored.throughput[row]) / cores)


def _alternatives(selection: Selection) -> tuple[Alternative, ...]:
    """Return the Pareto set, thinned evenly if it is long, and always with the chosen row."""
    scored, samples = selection.scored, selection.job.samples
    rows = {*thinned(selection.front, _MAX_ALTERNATIVES).tolist(), selection.chosen}
    return tuple(
        Alternative(
            allocation=selection.allocation(row),
            throughput=estimate(scored.throughput[row], scored.lower[row], scored.upper[row]),
            completion_time_s=float(scored.time_s[row]) if samples else None,
            cost=float(scored.cost[row]) if samples else None,
            price_per_hour=float(scored.price_per_hour[row]),
            chosen=row == selection.chosen,
        )
        for row in sorted(rows, key=lambda row: float(scored.throughput[row]))
    )


def evidence_of_selection(selection: Selection) -> Evidence:
    """Return the evidence that the prediction of the chosen allocation rests on."""
    explanation = selection.model.explain()
    prior = selection.prior
    return _trial_evidence(selection.trials, explanation.distinct_allocations, explanation.model).model_copy(
        update={
            "extrapolated": bool(beyond_supported(selection.evaluation.cap_input, selection.chosen)),
            "parameters": explanation.parameters,
            "pinned": explanation.pinned,
            "prior": prior.curve.source if prior.curve else "",
            "similar": prior.warm_start.similar,
            "assumptions": tuple(assumptions(selection)),
        }
    )


def _trial_evidence(trials: Sequence[Trial], distinct: int, model: str) -> Evidence:
    return Evidence(
        trials=len(trials),
        distinct_allocations=distinct,
        model=model,
        limited_by=tuple(sorted({trial.limited_by for trial in trials if trial.limited_by})),
        host=tuple(sorted({trial.host for trial in trials if trial.host})),
    )
