"""Predict what a job does at an allocation that the user has in mind, compared with the recommended one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import numpy as np

from sizewright.errors import InputError
from sizewright.recommender.sizing.build import evidence_of_selection, prediction_of
from sizewright.recommender.sizing.caps import beyond_supported
from sizewright.recommender.sizing.evaluate_grid import GridEvaluation
from sizewright.recommender.sizing.expected import machines_of
from sizewright.recommender.sizing.grid import Grid
from sizewright.recommender.sizing.reasons import gpu_memory_reason
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.recommender.sizing.result import Fitted, Selection
from sizewright.recommender.sizing.scoring import assumed_cores
from sizewright.recommender.sizing.select import choose, fit
from sizewright.spec import (
    Estimate,
    MeasuredThroughput,
    PredictedAllocation,
    Prediction,
    PredictionAnswer,
    Recommendation,
    Sizes,
)
from sizewright.spec.reason import Reason
from sizewright.spec.wording import sentence

_OOM_PROBABILITY = 0.05  # below this, running out of memory is not mentioned
_AXES = tuple(field.name for field in fields(Grid))


def predict(request: SizingRequest, sizes: Sizes) -> PredictionAnswer:
    """Return what to expect at an allocation: its throughput, time, cost, memory and use, and its measurements.

    Sizes that are not given are those of the recommended allocation; memory that is not given is what the allocation
    needs. Raises InputError for sizes that the job cannot have, and if sizes are missing and nothing is recommended.
    """
    fitted = fit(request)
    if isinstance(fitted, Recommendation):
        return PredictionAnswer(
            status="not_enough_data",
            job=request.job.name,
            evidence=fitted.evidence,
            reasons=fitted.reasons,
            reason_details=fitted.reason_details,
            remedies=fitted.remedies,
        )
    choice = choose(fitted)
    recommended, refusal = (choice, None) if isinstance(choice, Selection) else (None, choice)
    asked = _select(fitted, _complete(fitted, sizes, recommended), sizes)
    predicted = _predicted(asked)
    why = tuple(_reasons(asked, predicted.predicted, recommended))
    return PredictionAnswer(
        status="ok",
        job=request.job.name,
        asked=predicted,
        recommended=_predicted(recommended) if recommended else None,
        evidence=evidence_of_selection(asked),
        reasons=(*map(sentence, why), *(refusal.reasons if refusal else ())),
        reason_details=(*why, *(refusal.reason_details if refusal else ())),
    )


def _complete(fitted: Fitted, sizes: Sizes, recommended: Selection | None) -> Grid:
    """Return the allocation as a grid of one row, with the sizes that are not given."""
    job = fitted.request.job
    if not job.has_ps and (sizes.ps is not None or sizes.ps_cpu is not None or sizes.ps_memory is not None):
        raise InputError(f"{job.name} has no PS, but the size of a PS was given.", "Leave it out.")
    if sizes.batch_size is not None and job.training.global_batch_size:
        raise InputError(
            f"{job.name} has training.global_batch_size, but a batch size per worker was given.",
            "Leave it out: it follows from the number of workers.",
        )
    if sizes.loaders is not None and not job.bounds.loaders:
        raise InputError(
            f"{job.name} has no bounds.loaders, but a number of loaders was given.",
            "Leave it out, or write the bounds and {loaders} in the command.",
        )
    grid = fitted.evaluations[0].scored.grid
    complete = {"batch_size": job.training.batch_size, "worker_gpu": grid.worker_gpu.max()}
    complete["loaders"] = job.training.loaders if job.bounds.loaders else grid.loaders.max()
    if recommended:
        complete = {name: getattr(recommended.scored.grid, name)[recommended.chosen] for name in _AXES}
    elif not job.has_ps:
        complete |= {"ps": 0.0, "ps_cpu": assumed_cores(job.bounds.ps)}
    complete |= {name: value for name in _AXES if (value := getattr(sizes, name)) is not None}
    if missing := [name for name in _AXES if name not in complete]:
        raise InputError(
            f"Nothing can be recommended for {job.name}, so {' and '.join(missing)} must be given.", "Give all sizes."
        )
    job.check_workers(int(complete["workers"]))
    if job.training.global_batch_size:
        complete["batch_size"] = job.batch_size_for(int(complete["workers"]))
    return Grid(**{name: np.array([float(complete[name])]) for name in _AXES})


def _select(fitted: Fitted, grid: Grid, sizes: Sizes) -> Selection:
    """Return the allocation with its prediction, as if it had been chosen, on the hosts that are best for it."""
    options = [_select_in(fitted, evaluation, grid, sizes) for evaluation in fitted.evaluations]
    return min(options, key=lambda option: (not option.allowed[0], option.scored.objective[0], option.scored.cost[0]))


def _select_in(fitted: Fitted, evaluation: GridEvaluation, grid: Grid, sizes: Sizes) -> Selection:
    return Selection(
        job=fitted.request.job,
        trials=fitted.recorded,
        model=fitted.model,
        evaluation=evaluation.of(evaluation.scorer.score(grid, sizes.worker_memory, sizes.ps_memory)),
        chosen=0,
        front=np.zeros(1, np.int64),
        prior=fitted.prior,
        offer_notes=fitted.offer_notes,
    )


def _predicted(selection: Selection) -> PredictedAllocation:
    row, evaluation = selection.chosen, selection.evaluation
    return PredictedAllocation(
        allocation=selection.allocation(row),
        predicted=prediction_of(selection),
        measured=_measured(selection),
        extrapolated=bool(beyond_supported(evaluation.cap_input, row)),
        allowed=bool(evaluation.allowed[row]),
        machines=machines_of(selection) if selection.offer and np.isfinite(selection.scored.hosts[row]) else None,
    )


def _measured(selection: Selection) -> MeasuredThroughput | None:
    rates = selection.measured_rates()
    if not rates:
        return None
    throughput = Estimate(value=float(np.median(rates)), lower=min(rates), upper=max(rates))
    return MeasuredThroughput(trials=len(rates), throughput=throughput)


def _reasons(asked: Selection, predicted: Prediction, recommended: Selection | None) -> Iterator[Reason]:
    """Yield how the allocation compares with the recommended one, and why it could not be recommended."""
    evaluation, row = asked.evaluation, asked.chosen
    if recommended:
        theirs, chosen, cost = recommended.scored, recommended.chosen, asked.scored.cost[row]
        yield Reason.of(
            "compared_with_recommended",
            throughput=float(asked.scored.throughput[row] / theirs.throughput[chosen]),
            cost=float(cost / theirs.cost[chosen]) if np.isfinite(cost) and theirs.cost[chosen] > 0 else None,
        )
    for role, probability in (("worker", predicted.worker_oom_probability), ("ps", predicted.ps_oom_probability)):
        if probability is not None and probability > _OOM_PROBABILITY:
            yield Reason.of("may_run_out_of_memory", role=role, probability=probability)
    yield from gpu_memory_reason(asked)
    if not evaluation.allowed[row]:
        yield evaluation.rulings[-1].result.reason.adding(not_allowed=True)
    for reason in beyond_supported(evaluation.cap_input, row):
        yield reason.adding(subject="It")
    yield from asked.prior.doubts
