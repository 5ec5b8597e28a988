"""Recommend an allocation: fit a model, score every allocation within the bounds, choose by the objective."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials.trial import Trial
from sizewright.errors import NotEnoughDataError
from sizewright.models._base import BaseThroughputModel
from sizewright.models.axes import COUNTS, SIZES
from sizewright.models.factory import make_predictor
from sizewright.models.prior import JobCurve, LearnedPrior
from sizewright.recommender.machines.offers import Offer, offers_for
from sizewright.recommender.similar_jobs.warm_start import warm_start
from sizewright.recommender.sizing.build import build_recommendation, infeasible, not_enough_data, usable_trials
from sizewright.recommender.sizing.caps import INTERVAL_CAP, SUPPORTED_RANGE_CAP, beyond_supported
from sizewright.recommender.sizing.evaluate_grid import GridEvaluation, evaluate_grid, with_defaults
from sizewright.recommender.sizing.gpu_trials import device_limits, trials_on_gpus, why_gpus_unclear
from sizewright.recommender.sizing.pareto import pareto_front
from sizewright.recommender.sizing.prior_check import check_prior
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.recommender.sizing.result import Fitted, PriorEvidence, Selection
from sizewright.recommender.sizing.scoring import Scored, roles_without_cores
from sizewright.spec import Cluster, Job, Recommendation
from sizewright.spec.reason import Reason

_MAX_REPEAT_RATIO = 1.5
"""Repeats of one allocation differ by a few per cent on one host; beyond this factor they contradict each other."""
_MAX_NAMED_CONFLICTS = 3
_SAME_OBJECTIVE = 0.01
"""Loaders that save less than this share of the objective are not asked for."""


def recommend(request: SizingRequest) -> Recommendation:
    """Return what the job should ask for; this may be "not enough data" or "infeasible", with numbered remedies."""
    return recommend_with_model(request)[0]


def recommend_with_model(request: SizingRequest) -> tuple[Recommendation, BaseThroughputModel | None]:
    """Return the recommendation and the fitted model; there is no model if there is no target."""
    selection = select(request)
    if isinstance(selection, Recommendation):
        return selection, None
    return build_recommendation(selection), selection.model


def select(request: SizingRequest) -> Selection | Recommendation:
    """Fit the model, apply the caps, and return the allowed allocation with the lowest objective and its evidence.

    Returns a Recommendation ("not enough data" or "infeasible") if no allocation can be chosen.
    """
    fitted = fit(request)
    return fitted if isinstance(fitted, Recommendation) else choose(fitted)


def fit(request: SizingRequest) -> Fitted | Recommendation:
    """Fit the model and evaluate the allocations within the bounds; return "not enough data" if it cannot be fitted."""
    job = request.job
    offers = offers_for(job, request.cluster, machine=request.machine, spot=request.spot)
    recorded, of_other_gpus = trials_on_gpus(job, usable_trials(request.trials, job))
    curve, refusal = _prior_curve(request.prior, job)
    if not recorded and curve is None:
        why = _why_no_trials(request.trials, job)
        return not_enough_data(request, request.trials, None, PriorEvidence(None, refusal, of_other_gpus), why)
    if unclear := why_gpus_unclear(job, recorded):
        return not_enough_data(request, recorded, None, PriorEvidence(curve, refusal, of_other_gpus), *unclear)

    recorded, evidence = _believed(request, recorded, PriorEvidence(curve, refusal))
    evidence = evidence._replace(trial_doubts=(*of_other_gpus, *evidence.trial_doubts))
    trials = [with_defaults(job, trial) for trial in recorded]
    model = request.model or make_predictor(evidence.curve, may_be_input_bound=bool(job.command))
    try:
        model.fit(trials)
    except NotEnoughDataError as error:
        why = Reason.of("model_refused", error=error.message.rstrip("."))
        return not_enough_data(request, recorded, None, evidence, why, missing=error.missing)
    explanation = model.explain()
    if not explanation.enough:
        why = Reason.of("too_few_allocations", distinct=explanation.distinct_allocations, needed=explanation.needed)
        return not_enough_data(request, recorded, model, evidence, why)
    evaluations, evidence = _evaluate(request, model, recorded, trials, evidence, offers.offers)
    return Fitted(request, recorded, trials, model, evaluations, evidence, offers.notes)


def _with_fewest_loaders(scored: Scored, allowed_rows: NDArray[np.int64], chosen: int) -> int:
    """Return the row that differs from the chosen one in its loaders alone, has the fewest, and is hardly worse."""
    axes = [column for name, column in vars(scored.grid).items() if name != "loaders"]
    alike = allowed_rows[np.all([column[allowed_rows] == column[chosen] for column in axes], axis=0)]
    good = alike[scored.objective[alike] <= (1 + _SAME_OBJECTIVE) * scored.objective[chosen]]
    return int(good[np.argmin(scored.grid.loaders[good])])


def choose(fitted: Fitted) -> Selection | Recommendation:
    """Return the allowed allocation with the lowest objective, or why there is none to decide for.

    Where hosts have prices, it is the best over all offers of hosts.
    """
    options = [_choose_in(fitted, evaluation) for evaluation in fitted.evaluations if evaluation.allowed.any()]
    if not options:
        return _why_none(fitted)
    best_first = sorted(options, key=_rank)
    return replace(best_first[0], options=best_first if best_first[0].offer else (), offer_notes=fitted.offer_notes)


def _rank(option: Selection) -> tuple[float, float]:
    """Return the objective, rounded so that offers of the same value are alike, and the cost."""
    scored, row = option.scored, option.chosen
    return float(f"{scored.objective[row]:.9g}"), float(scored.cost[row])


def _nearness(evaluation: GridEvaluation) -> tuple[int, float]:
    """Return how many caps allow something, and how early a job completes that is too late for its deadline."""
    earliest_s = evaluation.rulings[-1].result.reason.values.get("earliest_s", 0.0)
    return len(evaluation.rulings), -float(earliest_s)


def _choose_in(fitted: Fitted, evaluation: GridEvaluation) -> Selection:
    """Return the allowed allocation of a grid with the lowest objective."""
    scored = evaluation.scored
    allowed_rows = np.flatnonzero(evaluation.allowed)
    chosen = _with_fewest_loaders(scored, allowed_rows, scored.best(allowed_rows))
    front = allowed_rows[pareto_front(scored.throughput[allowed_rows], scored.cost[allowed_rows])]
    return Selection(
        job=fitted.request.job,
        trials=fitted.recorded,
        model=fitted.model,
        evaluation=evaluation,
        chosen=chosen,
        front=front,
        prior=fitted.prior,
    )


def _why_none(fitted: Fitted) -> Recommendation:
    """Return why no allocation is allowed: by the caps of the offer of hosts that comes nearest to one."""
    request, recorded, model, evidence = fitted.request, fitted.recorded, fitted.model, fitted.prior
    evaluation = max(fitted.evaluations, key=_nearness)
    last = evaluation.rulings[-1]
    if last.cap == INTERVAL_CAP:
        too_wide, remedy = _too_wide(evaluation, recorded)
        return not_enough_data(request, recorded, model, evidence, too_wide, remedy)
    if last.cap == SUPPORTED_RANGE_CAP:
        return not_enough_data(request, recorded, model, evidence, last.result.reason, last.result.remedy)
    return infeasible(request, recorded, model, evidence, evaluation.rulings)


def _believed(
    request: SizingRequest, recorded: list[Trial], evidence: PriorEvidence
) -> tuple[list[Trial], PriorEvidence]:
    """Return the trials that do not contradict the prior, and the evidence of the prior that no trial contradicts."""
    job, prior, curve = request.job, request.prior, evidence.curve
    if prior is None or curve is None:
        return recorded, evidence
    check = check_prior([with_defaults(job, trial) for trial in recorded], curve)
    recorded = list(compress(recorded, check.believed))
    if check.against_prior:
        return recorded, PriorEvidence(None, check.against_prior, check.trial_doubts)
    warm = warm_start(
        job, request.history, prior, curve, [with_defaults(job, trial) for trial in recorded], request.now
    )
    return recorded, PriorEvidence(warm.curve or curve, None, check.trial_doubts, warm)


def _evaluate(
    request: SizingRequest,
    model: BaseThroughputModel,
    recorded: Sequence[Trial],
    trials: Sequence[Trial],
    evidence: PriorEvidence,
    offers: Sequence[Offer],
) -> tuple[list[GridEvaluation], PriorEvidence]:
    """Evaluate the grid on each offer of hosts, or once if there are none.

    The memory of similar jobs' runs does not count if it leaves no allocation allowed.
    """
    evaluate = partial(
        evaluate_grid,
        request.job,
        model,
        trials,
        extrapolate=request.extrapolate,
        runs=request.runs,
        unknown_cores=roles_without_cores(request.job, recorded),
        device_limits=device_limits(request.job, request.trials),
    )
    evaluations = _on_each(partial(evaluate, bases=evidence.warm_start.memory.bases), request.cluster, offers)
    if evidence.warm_start.memory.runs and not any(each.allowed.any() for each in evaluations):
        evidence = evidence._replace(warm_start=evidence.warm_start.without_memory())
        evaluations = _on_each(evaluate, request.cluster, offers)
    return evaluations, evidence


def _on_each(
    evaluate: Callable[..., GridEvaluation], cluster: Cluster | None, offers: Sequence[Offer]
) -> list[GridEvaluation]:
    """Evaluate the grid on each offer; hosts whose links do not differ share the predictions."""
    if cluster is None or not offers:
        return [evaluate(cluster=cluster)]
    evaluations, known = list[GridEvaluation](), dict[object, Scored]()
    for offer in offers:
        link = (offer.host.network_gbps, offer.host.cpu) if offer.host.network_gbps else None
        evaluation = evaluate(cluster=cluster.only(offer.host), offer=offer, known=known.get(link))
        known[link] = evaluation.scored
        evaluations.append(evaluation)
    return evaluations


def _too_wide(evaluation: GridEvaluation, trials: Sequence[Trial]) -> tuple[Reason, str]:
    """Return why no interval supports a decision, and a remedy; name the trials that contradict each other.

    The interval is that of the best allocation that the other caps allow.
    """
    scored, cap_input = evaluation.scored, evaluation.cap_input
    others = [ruling.result.allowed for ruling in evaluation.rulings if ruling.cap != INTERVAL_CAP]
    best = scored.best(np.flatnonzero(np.all(others, axis=0)))
    ratio, extrapolated = float(scored.interval_ratio[best]), bool(beyond_supported(cap_input, best))
    reason = Reason.of("interval_too_wide", ratio=ratio, extrapolated=extrapolated)
    conflicts = list(_contradictions(trials))
    if not conflicts:
        return reason, f"Measure {cap_input.grid.allocation(best).describe()}, or another allocation near it."
    reason = reason.adding(conflicts=len(conflicts)).adding_each("conflict", conflicts[:_MAX_NAMED_CONFLICTS])
    return reason, "Drop the wrong rows, or measure them again."


def _contradictions(trials: Sequence[Trial]) -> Iterator[dict[str, Any]]:
    """Yield each allocation whose repeated trials contradict each other, with its `lower` and `upper` samples/s."""
    axes = (*COUNTS, *SIZES)
    repeats: dict[tuple[object, ...], list[float]] = {}
    for trial in trials:
        repeats.setdefault(tuple(getattr(trial, axis) for axis in axes), []).append(trial.throughput or 0.0)
    for allocation, rates in repeats.items():
        if max(rates) > _MAX_REPEAT_RATIO * min(rates):
            yield dict(zip(axes, allocation, strict=True)) | {"lower": min(rates), "upper": max(rates)}


def _prior_curve(prior: LearnedPrior | None, job: Job) -> tuple[JobCurve | None, Reason | None]:
    """Return the curve that a prior predicts for the job, or why it predicts none."""
    try:
        return (prior.curve(job) if prior else None), None
    except NotEnoughDataError as error:
        return None, Reason.of("prior_refused", error=error.message.rstrip("."))


def _why_no_trials(trials: Sequence[Trial], job: Job) -> Reason:
    if not trials:
        return Reason.of("no_trials")
    if usable_trials(trials, job):
        return Reason.of("no_trial_on_the_gpus", kind=job.bounds.worker.gpu.kind if job.bounds.worker.gpu else "")
    if any(trial.usable for trial in trials):
        return Reason.of("no_trial_with_the_roles", has_ps=job.has_ps)
    last = trials[-1]
    return Reason.of("no_trial_succeeded", trials=len(trials), last=last.cause)
