"""Choose whether a running job changes its allocation, with the cost of the change included.

For every allocation in the bounds, and for every curve drawn from the fitted model (`BaseThroughputModel.curves`), the
objective of the remaining work follows from n samples to train, a change of d seconds during which both allocations are
paid for, and a price a an hour before and b after the change:

    T = d + n / rate      C = a·d + b·T      objective = T, C, or T·C

Staying has d = 0 and the observed rate. A change may prove wrong: the job is then moved back after a trial of t
seconds, which costs two changes and the samples that the trial trained too few. The value of an allocation is therefore
the mean, over the curves, of the better of staying there and coming back. The job moves only where that saves more than
`min_gain` of the objective of the remaining work; otherwise the choice is `keep`, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.models._base import CURVES, BaseThroughputModel
from sizewright.recommender.sizing.pareto import pareto_front, thinned
from sizewright.recommender.sizing.scoring import Scored
from sizewright.spec import Job, Objective
from sizewright.spec._base import Record
from sizewright.spec.objective import cost_of, objective_value
from sizewright.spec.reason import Reason

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

_MAX_CANDIDATES = 400
_MAX_FRONT_POINTS = 6


class Scaling(Record):
    """Settings for how readily a running job is changed."""

    min_gain: float = 0.05
    """Share of the objective of the remaining work that the first change must save."""
    gain_growth: float = 0.5
    """Each further change must save this share of `min_gain` more, so that a loop does not explore for ever."""
    warm_up_s: float = 5.0
    """Seconds during which the loop only observes, before its first change."""
    cooldown_s: float = 10.0
    cooldown_of_change: float = 2.0
    """After a change the job is left alone for `cooldown_s`, or this multiple of the change's seconds, if longer."""
    max_risk: float = 0.02
    """An allocation whose objective is likely to be worse by more than this share is not tried to learn about it."""
    trial_s: float = 15.0
    """Seconds until the loop can see whether a change was right."""
    max_added_workers: int = 8
    """Largest number of workers that one change may add or remove."""


class CurrentState(NamedTuple):
    """The allocation at which the job runs, and its observed speed."""

    row: int
    """The nearest row of the grid."""
    axes: Mapping[str, float]
    """Values on the grid's axes where they differ from that row."""
    rate: float
    """Samples/s."""
    rate_sd: float
    """Standard deviation of the logarithm of `rate`."""
    samples_left: int
    price_per_hour: float
    changes: int = 0
    """Number of changes that this loop has made already."""


class FrontPoint(NamedTuple):
    """A row of the grid that no other row beats in both throughput and price, relative to the current allocation."""

    row: int
    throughput_times: float
    price_times: float


class ScalingChoice(NamedTuple):
    """The row to move to or to stay at, and why."""

    row: int
    kind: Literal["adjust", "keep"]
    gain: float
    """Share of the objective of the remaining work that the best change saves."""
    chance: float
    """Probability that the change improves the objective."""
    reason: Reason
    """For a change, without the `target`, which the caller adds."""
    front: tuple[FrontPoint, ...] = ()
    """Some points of the Pareto front."""


class _RemainingWork(NamedTuple):
    """The objective and the number of samples that a job still has to train."""

    objective: Objective
    samples: int

    def at(
        self, rates: Floats, price: Floats | float, change_s: Floats | float = 0.0, price_before: float = 0.0
    ) -> Floats:
        """Return the objective of training to the end at `rates` (..., n), after a change that pays for both sides."""
        change = np.asarray(change_s, float)
        time_s = change + self.samples / rates
        return objective_value(self.objective, time_s, cost_of(change, price_before) + cost_of(time_s, price))

    def after_return(
        self, rates: Floats, price: Floats, rate_now: Floats, price_now: float, change_s: Floats, trial_s: float
    ) -> Floats:
        """Return the objective of a trial of `trial_s` at `rates` and of training the rest as before."""
        rest = self.samples - np.minimum(rates * trial_s, self.samples)
        trial_and_change_s = trial_s + change_s
        rest_and_change_s = change_s + rest / rate_now
        cost = cost_of(change_s + rest_and_change_s, price_now) + cost_of(trial_and_change_s + change_s, price)
        return objective_value(self.objective, trial_and_change_s + rest_and_change_s, cost)


def choose_change(
    job: Job,
    model: BaseThroughputModel,
    scored: Scored,
    allowed: NDArray[np.bool_],
    state: CurrentState,
    change_s: Floats | float,
    scaling: Scaling,
    rng: np.random.Generator,
) -> ScalingChoice:
    """Return the best of all legal changes, or `keep` where none saves enough.

    `allowed` (n,) marks the rows of the grid that are within caps and memory; `change_s`, (n,) or one number, holds the
    seconds that a change to each row takes.
    """
    rows = _candidate_rows(scored, allowed, state, scaling)
    if not len(rows):
        return ScalingChoice(state.row, "keep", 0.0, 0.0, Reason.of("no_other_allocation"))

    price = scored.price_per_hour[rows]
    change_s = np.broadcast_to(change_s, len(scored.grid))[rows]
    rate_now, rates = _sampled_rates(model, scored, rows, state, rng)

    work = _RemainingWork(job.objective, state.samples_left)
    stay = work.at(rate_now, state.price_per_hour)
    move = work.at(rates, price, change_s, state.price_per_hour)
    move_and_return = work.after_return(rates, price, rate_now, state.price_per_hour, change_s, scaling.trial_s)
    value = np.minimum(move, move_and_return).mean(axis=0)
    typical_ratio = np.exp(np.log(move).mean(axis=0) - np.log(stay).mean())
    risky = typical_ratio > 1 + scaling.max_risk
    value[risky] = np.maximum(value, stay.mean())[risky]

    best = int(np.argmin(value))
    gain = float(1 - value[best] / stay.mean())
    chance = float((move[:, best] < stay[:, 0]).mean())
    throughput_times = np.exp(np.log(rates).mean(axis=0)) / state.rate
    price_times = price / state.price_per_hour if state.price_per_hour else np.ones(len(rows))
    front = _front(rows, throughput_times, price_times)
    effect = {"throughput_times": float(throughput_times[best]), "price_times": float(price_times[best])}
    min_gain = scaling.min_gain * (1 + scaling.gain_growth * state.changes)
    if gain < min_gain:
        reason = Reason.of("gain_too_small", gain=max(gain, 0.0), min_gain=min_gain, **effect)
        return ScalingChoice(state.row, "keep", gain, chance, reason, front)
    reason = Reason.of("gain", gain=gain, change_s=float(change_s[best]), probability=chance, **effect)
    return ScalingChoice(int(rows[best]), "adjust", gain, chance, reason, front)


def _candidate_rows(scored: Scored, allowed: NDArray[np.bool_], state: CurrentState, scaling: Scaling) -> Rows:
    """Return the rows that a legal step reaches; of many, those whose interval allows the best objective.

    Whole curves are sampled for these rows only.
    """
    workers = state.axes.get("workers", scored.grid.workers[state.row])
    rows = np.flatnonzero(allowed & (np.abs(scored.grid.workers - workers) <= scaling.max_added_workers))
    if not state.axes:
        rows = rows[rows != state.row]
    if len(rows) <= _MAX_CANDIDATES:
        return np.asarray(rows)
    return np.asarray(rows[np.argpartition(scored.objective_lower[rows], _MAX_CANDIDATES)[:_MAX_CANDIDATES]])


def _sampled_rates(
    model: BaseThroughputModel, scored: Scored, rows: Rows, state: CurrentState, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Sample samples/s at the current allocation, (n_curves, 1), and at `rows`, (n_curves, n).

    Each curve is shifted to the observed rate: only ratios to the current allocation come from the model.
    """
    allocations = {name: column[[state.row, *rows]] for name, column in scored.columns.items()}
    for axis, value in state.axes.items():
        allocations[axis][0] = value
    curves = model.curves(allocations, CURVES, rng)
    observed = state.rate * np.exp(state.rate_sd * rng.standard_normal((len(curves), 1)))
    return observed, curves[:, 1:] / curves[:, :1] * observed


def _front(rows: Rows, throughput_times: Floats, price_times: Floats) -> tuple[FrontPoint, ...]:
    """Return at most `_MAX_FRONT_POINTS` points of the Pareto front, from the cheapest to the fastest."""
    shown = thinned(pareto_front(throughput_times, price_times), _MAX_FRONT_POINTS)
    return tuple(FrontPoint(int(rows[i]), float(throughput_times[i]), float(price_times[i])) for i in shown)
