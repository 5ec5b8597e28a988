"""From trials to a recommendation: fit, score every allocation within the bounds, choose by the objective."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from itertools import compress

import numpy as np

from sizewright.datasets.finished import FinishedJob
from sizewright.datasets.trials import Trial
from sizewright.errors import NotEnoughDataError
from sizewright.models._base import BaseThroughputModel
from sizewright.models.foretold import ForetoldModel
from sizewright.models.prior import JobCurve, LearnedPrior
from sizewright.recommender.answer import Decision, Prior, infeasible, not_enough, ok
from sizewright.recommender.belief import contradictions, weigh
from sizewright.recommender.caps import Candidates, beyond_measured
from sizewright.recommender.consider import consider, default_model, filled
from sizewright.recommender.pareto import pareto_front
from sizewright.recommender.warm_start import WarmStart, warm_start
from sizewright.spec import Cluster, Job, Recommendation
from sizewright.spec.units import format_count

MOST_SPAN = 10.0
"""An interval whose ends differ by more than this factor tells nothing to decide by."""


def recommend(
    job: Job,
    trials: Sequence[Trial],
    *,
    cluster: Cluster | None = None,
    model: BaseThroughputModel | None = None,
    extrapolate: bool = False,
    prior: LearnedPrior | None = None,
    runs: Sequence[FinishedJob] = (),
    history: Sequence[FinishedJob] = (),
    now: datetime | None = None,
) -> Recommendation:
    """What the job should ask for, given its trials, what a learned prior tells of it, and peaks of its own runs.

    With a prior, runs of other jobs in `history` that are like it count too, the later before `now` the more.
    The answer may be "not enough data" or "infeasible"; both carry numbered remedies.
    """
    decision = decide(
        job, trials, cluster=cluster, model=model, extrapolate=extrapolate, prior=prior, runs=runs, history=history,
        now=now,
    )  # fmt: skip
    return decision if isinstance(decision, Recommendation) else ok(decision)


def decide(
    job: Job,
    trials: Sequence[Trial],
    *,
    cluster: Cluster | None = None,
    model: BaseThroughputModel | None = None,
    extrapolate: bool = False,
    prior: LearnedPrior | None = None,
    runs: Sequence[FinishedJob] = (),
    history: Sequence[FinishedJob] = (),
    now: datetime | None = None,
) -> Decision | Recommendation:
    """As `recommend`, with the fitted model and all that was weighed; a Recommendation where there is no target."""
    usable = [trial for trial in trials if trial.usable and (trial.ps > 0) == job.has_ps]
    foretold, refused = _foretell(prior, job)
    if not usable and foretold is None:
        why = ". ".join(filter(None, (_why_none(trials), refused)))
        return not_enough(job, trials, None, why, refused=bool(refused))
    told = [filled(job, trial) for trial in usable]
    about = Prior(foretold, refused)
    if prior and foretold:
        believed, doubts, refused = weigh(told, foretold)
        usable, told = (list(compress(rows, believed)) for rows in (usable, told))
        warm = WarmStart() if refused else warm_start(job, history, prior, foretold, told, now)
        foretold = None if refused else warm.curve or foretold
        about = Prior(foretold, refused, doubts, warm)
    model = model or (ForetoldModel(foretold) if foretold and not usable else default_model(job, foretold))
    try:
        model.fit(told)
    except NotEnoughDataError as error:
        return not_enough(job, usable, None, error.message.rstrip("."), missing=error.missing)
    account = model.explain()
    if not account.enough:
        why = f"{account.distinct_allocations} distinct allocations were measured and {account.needed} are needed"
        return not_enough(job, usable, model, why)
    counts_only = bool(usable) and all(t.worker_cpu is None or (t.ps > 0 and t.ps_cpu is None) for t in usable)
    look = partial(
        consider, job, model, told, foretold=foretold, cluster=cluster, extrapolate=extrapolate, runs=runs,
        counts_only=counts_only,
    )  # fmt: skip
    found = look(bases=about.warm.memory.bases)
    if about.warm.memory.runs and not found.allowed.any():
        about = about._replace(warm=about.warm.without_memory())
        found = look()
    memory, scored, candidates, allowed, rulings, peaks = found
    if not allowed.any():
        last = rulings[-1]
        if last.cap == "measured range":
            return not_enough(job, usable, model, last.verdict.reason, last.verdict.remedy)
        return infeasible(job, usable, model, rulings)
    left = np.flatnonzero(allowed)
    chosen = scored.best(left)
    if (span := float(scored.upper[chosen] / scored.lower[chosen])) > MOST_SPAN:
        return not_enough(job, usable, model, *_too_wide(span, usable, candidates, chosen))
    front = left[pareto_front(scored.throughput[left], scored.cost[left])]
    return Decision(job, usable, model, memory, scored, candidates, allowed, chosen, front, rulings, about, peaks)


def _too_wide(span: float, trials: Sequence[Trial], candidates: Candidates, chosen: int) -> tuple[str, str]:
    """Why an interval tells nothing, and what narrows it: the trials that contradict each other are named."""
    target = candidates.grid.allocation(chosen).describe()
    extrapolated = " (it is extrapolated)" if beyond_measured(candidates, chosen) else ""
    why = f"the 90 % interval of the best allocation{extrapolated} spans a factor of {span:,.0f}"
    clashes = list(contradictions(trials))
    if not clashes:
        return why, f"Measure {target}, or another allocation near it."
    named = "; ".join(clashes[:3]) + (f"; and {len(clashes) - 3} more" if len(clashes) > 3 else "")
    return f"{why}, since trials contradict each other: {named}", "Drop the wrong rows, or measure these anew."


def _foretell(prior: LearnedPrior | None, job: Job) -> tuple[JobCurve | None, str]:
    """The curve that a prior tells, or why it tells none."""
    try:
        return (prior.curve(job) if prior else None), ""
    except NotEnoughDataError as error:
        return None, error.message.rstrip(".")


def _why_none(trials: Sequence[Trial]) -> str:
    if not trials:
        return "there are no trials of this job"
    if any(trial.usable for trial in trials):
        return "none of the trials that ended well had workers and PS as this job has"
    last = trials[-1]
    return f"none of {format_count(len(trials), 'trial')} ended well (the last: {last.message or last.status})"
