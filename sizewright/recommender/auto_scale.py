"""Whether a running job is to change its allocation, with the price of the change in what is weighed.

For every allocation in the bounds, over every curve that the evidence leaves possible (`ThroughputModel.paths`), the
objective of what is left of the job is, with n samples to go, a change of d seconds during which it is paid for twice,
and a price a an hour now and b afterwards,

    T = d + n / rate      C = a·d + b·T      objective = T, C, or T·C

and for staying as it is the same with d = 0 and the rate that is being observed. A change may prove wrong: then the job
is taken back after a trial of t seconds, which costs two changes and what the trial trained too little. So the value of
going to an allocation is the mean, over the curves, of the better of staying there and coming back; it is gone to only
where that saves more than `least_gain` of what is left, and `keep` says why not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sizewright.models.table import Table
from sizewright.recommender.pareto import pareto_front
from sizewright.recommender.scoring import Scored
from sizewright.spec import Job, Objective
from sizewright.spec._base import Record
from sizewright.spec.objective import cost_of, objective_value

Floats = NDArray[np.float64]

_MOST_DRAWN, _MOST_TOLD = 400, 6


class Curves(Protocol):
    """A fitted model that tells which whole curves are possible."""

    def paths(self, X: Table, rng: np.random.Generator) -> Floats:
        """Logarithms of samples/s (d, n)."""


class Scaling(Record):
    """How readily a running job is changed."""

    least_gain: float = 0.05
    """Share of the objective of what is left that the first change must save."""
    more_each_time: float = 0.5
    """Each further change must save so much of that share more: trying may teach something for ever."""
    warm_up_s: float = 5.0
    """So long a loop only looks before its first change."""
    cooldown_s: float = 10.0
    cooldown_of_change: float = 2.0
    """After a change it is left alone for `cooldown_s`, or so many times the seconds that changes take, if longer."""
    most_risked: float = 0.02
    """Where the objective is likely to be worse by more than this share, it is not tried for what it may teach."""
    trial_s: float = 15.0
    """So long it takes to see whether a change was right."""
    most_workers_more: int = 8
    """Legal step: so many workers more or fewer at a time."""


class Standing(NamedTuple):
    """Where the job is: the row of the grid that is nearest, what it has on the axes where that differs, its rate and
    the standard deviation of that in log, samples to go."""

    row: int
    axes: Mapping[str, float]
    rate: float
    rate_sd: float
    samples_left: int
    price_per_hour: float
    changes: int = 0
    """That were made already."""


class Weighed(NamedTuple):
    """What was found: the row to go to or stay at, by how much that betters the objective, and why."""

    row: int
    kind: Literal["adjust", "keep"]
    gain: float
    """Share of the objective of what is left."""
    chance: float
    """That the change betters it."""
    reason: str
    front: tuple[tuple[int, float, float], ...] = ()
    """Some of the rows that no other beats in throughput and price, with how many times those of now."""


class _Left(NamedTuple):
    """What is left of a job: how its objective comes from seconds and currency, and how many samples."""

    objective: Objective
    samples: int

    def at(
        self, rates: Floats, price: Floats | float, change_s: Floats | float = 0.0, price_before: float = 0.0
    ) -> Floats:
        """Trained at these rates (..., n) to the end, after a change during which both allocations are paid for."""
        change = np.asarray(change_s, float)
        time_s = change + self.samples / rates
        return objective_value(self.objective, time_s, cost_of(change, price_before) + cost_of(time_s, price))

    def back(
        self, rates: Floats, price: Floats, now: Floats, price_now: float, change_s: Floats, trial_s: float
    ) -> Floats:
        """Tried for so many seconds, and then trained to the end as before."""
        left = self.samples - np.minimum(rates * trial_s, self.samples)
        tried_s, rest_s = trial_s + change_s, change_s + left / now
        cost = cost_of(change_s + rest_s, price_now) + cost_of(tried_s + change_s, price)
        return objective_value(self.objective, tried_s + rest_s, cost)


def weigh(
    job: Job,
    model: Curves,
    scored: Scored,
    allowed: NDArray[np.bool_],
    standing: Standing,
    change_s: Floats | float,
    scaling: Scaling,
    rng: np.random.Generator,
) -> Weighed:
    """The best of all legal changes and of none. `allowed` are rows of the grid within caps and memory, which it
    takes so many seconds, (n,) or all the same, to go to."""
    rows = _promising(scored, _legal(scored, allowed, standing, scaling))
    if not len(rows):
        return Weighed(
            standing.row,
            "keep",
            0.0,
            0.0,
            "no other allocation is within the bounds, what was measured, and a legal step",
        )
    left, price = _Left(job.objective, standing.samples_left), scored.price_per_hour[rows]
    takes_s = np.broadcast_to(change_s, len(scored.grid))[rows]
    now, rates = _curves(model, scored, rows, standing, rng)
    stay = left.at(now, standing.price_per_hour)
    there = left.at(rates, price, takes_s, standing.price_per_hour)
    back = left.back(rates, price, now, standing.price_per_hour, takes_s, scaling.trial_s)
    value = np.minimum(there, back).mean(axis=0)
    likely = np.exp(np.log(there).mean(axis=0) - np.log(stay).mean())
    risky = likely > 1 + scaling.most_risked
    value[risky] = np.maximum(value, stay.mean())[risky]
    best = int(np.argmin(value))
    gain, chance = float(1 - value[best] / stay.mean()), float((there[:, best] < stay[:, 0]).mean())
    faster = np.exp(np.log(rates).mean(axis=0)) / standing.rate
    dearer = price / standing.price_per_hour if standing.price_per_hour else np.ones(len(rows))
    front = _front(rows, faster, dearer)
    about = f"{faster[best]:.2f} times the throughput at {dearer[best]:.2f} times the price"
    least_gain = scaling.least_gain * (1 + scaling.more_each_time * standing.changes)
    if gain < least_gain:
        why = f"the best other allocation saves {max(gain, 0.0):.1%} of what is left, and a change must save "
        return Weighed(standing.row, "keep", gain, chance, f"{why}{least_gain:.1%} ({about})", front)
    why = f"{about} saves {gain:.0%} of what is left, {takes_s[best]:.1f} s of change included ({chance:.0%} sure)"
    return Weighed(int(rows[best]), "adjust", gain, chance, why, front)


def _front(rows: NDArray[np.int64], faster: Floats, dearer: Floats) -> tuple[tuple[int, float, float], ...]:
    """At most so many of the Pareto set, from the cheapest to the fastest."""
    front = pareto_front(faster, dearer)
    some = front[np.unique(np.linspace(0, len(front) - 1, _MOST_TOLD).round().astype(int))]
    return tuple((int(rows[i]), float(faster[i]), float(dearer[i])) for i in some)


def _curves(
    model: Curves, scored: Scored, rows: NDArray[np.int64], standing: Standing, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Samples/s now (d, 1) and at the rows (d, n), over what is possible. What is observed of where it is now shifts
    each curve: only ratios to that are left to the model."""
    asked = {name: column[[standing.row, *rows]] for name, column in scored.columns.items()}
    for axis, value in standing.axes.items():
        asked[axis][0] = value
    paths = model.paths(asked, rng)
    observed = np.log(standing.rate) + standing.rate_sd * rng.standard_normal((len(paths), 1))
    return np.exp(observed), np.exp(paths[:, 1:] - paths[:, :1] + observed)


def _legal(scored: Scored, allowed: NDArray[np.bool_], standing: Standing, scaling: Scaling) -> NDArray[np.int64]:
    workers = standing.axes.get("workers", scored.grid.workers[standing.row])
    rows = np.flatnonzero(allowed & (np.abs(scored.grid.workers - workers) <= scaling.most_workers_more))
    return np.asarray(rows if standing.axes else rows[rows != standing.row])


def _promising(scored: Scored, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows that by the model's interval may be best; whole curves are drawn for these only."""
    if len(rows) <= _MOST_DRAWN:
        return rows
    return rows[np.argpartition(scored.objective_lower[rows], _MOST_DRAWN)[:_MOST_DRAWN]]
