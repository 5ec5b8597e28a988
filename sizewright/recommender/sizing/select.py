"""Recommend an allocation: fit a model, score every allocation within the bounds, choose by the objective."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import compress

import numpy as np

from sizewright.datasets.trials.trial import Trial
from sizewright.errors import NotEnoughDataError
from sizewright.models.factory import make_predictor
from sizewright.models.prior import JobCurve, LearnedPrior
from sizewright.recommender.similar_jobs.warm_start import warm_start
from sizewright.recommender.sizing.build import build_recommendation, infeasible, not_enough_data
from sizewright.recommender.sizing.caps import SUPPORTED_RANGE_CAP, CapInput, beyond_supported
from sizewright.recommender.sizing.evaluate_grid import evaluate_grid, with_defaults
from sizewright.recommender.sizing.pareto import pareto_front
from sizewright.recommender.sizing.prior_check import check_prior, contradictions
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.recommender.sizing.result import PriorEvidence, Selection
from sizewright.spec import Job, Recommendation
from sizewright.spec.reason import Reason

MAX_INTERVAL_RATIO = 10.0
"""Upper over lower end of the target's throughput interval; a wider interval supports no decision."""


def recommend(request: SizingRequest) -> Recommendation:
    """Return what the job should ask for; this may be "not enough data" or "infeasible", with numbered remedies."""
    selection = select(request)
    return selection if isinstance(selection, Recommendation) else build_recommendation(selection)


def select(request: SizingRequest) -> Selection | Recommendation:
    """Choose the target as `recommend` does, and return it with the fitted model and the evaluated grid.

    Returns a Recommendation instead if there is no target.
    """
    job, trials, prior = request.job, request.trials, request.prior
    usable = [trial for trial in trials if trial.usable and (trial.ps > 0) == job.has_ps]
    curve, refusal = _prior_curve(prior, job)
    if not usable and curve is None:
        why = (_why_no_trials(trials, job), *([refusal] if refusal else []))
        return not_enough_data(job, trials, None, why, prior_refused=bool(refusal))

    complete = [with_defaults(job, trial) for trial in usable]
    evidence = PriorEvidence(curve, refusal)
    if prior and curve:
        check = check_prior(complete, curve)
        usable = list(compress(usable, check.believed))
        complete = list(compress(complete, check.believed))
        if check.against_prior:
            evidence = PriorEvidence(None, check.against_prior, check.doubts)
        else:
            warm = warm_start(job, request.history, prior, curve, complete, request.now)
            evidence = PriorEvidence(warm.curve or curve, None, check.doubts, warm)
        curve = evidence.curve

    model = request.model or make_predictor(curve, input_bound=bool(job.command))
    try:
        model.fit(complete)
    except NotEnoughDataError as error:
        why = (Reason.of("model_refused", error=error.message.rstrip(".")),)
        return not_enough_data(job, usable, None, why, missing=error.missing)
    account = model.explain()
    if not account.enough:
        too_few = Reason.of("too_few_allocations", distinct=account.distinct_allocations, needed=account.needed)
        return not_enough_data(job, usable, model, (too_few,))

    evaluate = partial(
        evaluate_grid,
        job,
        model,
        complete,
        cluster=request.cluster,
        extrapolate=request.extrapolate,
        runs=request.runs,
        counts_only=bool(usable) and all(t.worker_cpu is None or (t.ps > 0 and t.ps_cpu is None) for t in usable),
    )
    evaluation = evaluate(bases=evidence.warm_start.memory.bases)
    if evidence.warm_start.memory.runs and not evaluation.allowed.any():
        evidence = evidence._replace(warm_start=evidence.warm_start.without_memory())
        evaluation = evaluate()
    if not evaluation.allowed.any():
        last = evaluation.rulings[-1]
        if last.cap == SUPPORTED_RANGE_CAP:
            return not_enough_data(job, usable, model, (last.result.reason,), last.result.remedy)
        return infeasible(job, usable, model, evaluation.rulings)

    scored = evaluation.scored
    allowed_rows = np.flatnonzero(evaluation.allowed)
    chosen = scored.best(allowed_rows)
    ratio = float(scored.upper[chosen] / scored.lower[chosen])
    if ratio > MAX_INTERVAL_RATIO:
        too_wide, remedy = _too_wide(ratio, usable, evaluation.candidates, chosen)
        return not_enough_data(job, usable, model, (too_wide,), remedy)
    front = allowed_rows[pareto_front(scored.throughput[allowed_rows], scored.cost[allowed_rows])]
    return Selection(job, usable, model, evaluation, chosen, front, evidence)


def _too_wide(ratio: float, trials: Sequence[Trial], candidates: CapInput, chosen: int) -> tuple[Reason, str]:
    """Return why an interval is too wide to decide by, and a remedy; name the trials that contradict each other."""
    target = candidates.grid.allocation(chosen).describe()
    extrapolated = bool(beyond_supported(candidates, chosen))
    reason = Reason.of("interval_too_wide", ratio=ratio, extrapolated=extrapolated)
    conflicts = list(contradictions(trials))
    if not conflicts:
        return reason, f"Measure {target}, or another allocation near it."
    named = "; ".join(conflicts[:3]) + (f"; and {len(conflicts) - 3} more" if len(conflicts) > 3 else "")
    return reason.adding(conflicts=named), "Drop the wrong rows, or measure them again."


def _prior_curve(prior: LearnedPrior | None, job: Job) -> tuple[JobCurve | None, Reason | None]:
    """Return the curve that a prior predicts for the job, or why it predicts none."""
    try:
        return (prior.curve(job) if prior else None), None
    except NotEnoughDataError as error:
        return None, Reason.of("prior_refused", error=error.message.rstrip("."))


def _why_no_trials(trials: Sequence[Trial], job: Job) -> Reason:
    if not trials:
        return Reason.of("no_trials")
    if any(trial.usable for trial in trials):
        return Reason.of("no_trial_with_the_roles", has_ps=job.has_ps)
    last = trials[-1]
    return Reason.of("no_trial_succeeded", trials=len(trials), last=last.message or last.status)
