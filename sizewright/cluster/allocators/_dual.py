"""Prices of the resources: the Lagrangian dual of the allocation problem, minimised by cutting planes in a box.

Each job takes what is worth most after paying λ·need; D(λ) = λ·capacity + Σ_j max_k (worth_jk − λ·need_jk) bounds the
worth of every choice within the capacity, and its least equals the bound of the linear relaxation (Geoffrion 1974).
D is convex with as many variables as there are resources. Many jobs are priced by a sample of them first.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from sizewright.cluster.allocators._cuts import Cuts
from sizewright.cluster.allocators._ladder import climb, hull, steps_by
from sizewright.cluster.problem import ROUNDING, Bools, Floats, Ints, Problem

TOLERANCE = 1e-5
"""Of the dual's value: it is exact enough for a gap of a thousandth."""
MOST_CUTS = 80
SAMPLE = 3000
"""So many jobs tell the prices of all, about."""


@dataclass(frozen=True)
class Prices:
    """λ, the bound that it proves, and what each job takes at it."""

    each: Floats
    """(R,) in value a unit."""
    bound: float
    choice: Ints
    """(J,)."""


def open_at(problem: Problem, each: Floats, bound: float, value: float) -> Bools:
    """(J, K): candidates that a choice worth more than `value` may contain, told by prices `each` (R,) and `bound`.

    One whose loss at the prices exceeds all that the bound leaves is in no such choice (pegging).
    """
    left = problem.worth - problem.needs @ each
    loss = left.max(axis=1, keepdims=True) - left
    return np.asarray(problem.offered & (loss <= (bound - value) * (1 + 1e-9)))


def prices_of(problem: Problem, until: float, seed: int = 0) -> Prices:
    """The prices of the least bound; those found by `until` of `time.perf_counter`, which bound as well."""
    needs, worth, capacity = problem.needs, problem.worth, problem.capacity
    if len(capacity) == 1:
        return _of_one(problem)
    J = len(worth)
    top = np.abs(worth, where=np.isfinite(worth), out=np.zeros_like(worth)).max(axis=1).sum()
    start = top / np.maximum(capacity, 1e-300) if top > 0 else np.zeros(len(capacity))
    start = np.where(capacity > 0, start, _forbidding(problem))
    box = 1.0
    if J > 2 * SAMPLE:
        drawn = np.random.default_rng(seed).choice(J, SAMPLE, replace=False)
        start = _least(needs[drawn], worth[drawn], capacity * SAMPLE / J, start, box, until).each
        box = 0.1
    return _least(needs, worth, capacity, start, box, until)


def _of_one(problem: Problem) -> Prices:
    """Of one resource, exact: the slope of the step of the tables' concave hulls at which the capacity ends."""
    need = np.where(problem.offered, problem.needs[:, :, 0], np.inf)
    cheapest = need == need.min(axis=1, keepdims=True)
    start = np.where(cheapest, problem.worth, -np.inf).argmax(axis=1)
    ladder = hull(problem, problem.needs[:, :, 0], start)
    jobs, rungs = steps_by(problem, ladder, problem.needs[:, :, 0])
    before, after = ladder.columns[jobs, rungs - 1], ladder.columns[jobs, rungs]
    more = problem.needs[jobs, after, 0] - problem.needs[jobs, before, 0]
    gain = problem.worth[jobs, after] - problem.worth[jobs, before]
    slack = problem.capacity[0] * (1 + ROUNDING) - problem.used(start)[0]
    full = int(np.searchsorted(np.cumsum(more), slack, side="right"))
    bound = problem.total(start) + float(gain[:full].sum())
    price = 0.0
    if full < len(jobs):
        price = float(gain[full] / more[full])
        bound += price * max(float(slack - more[:full].sum()), 0.0)
    return Prices(np.array([price]), bound, climb(problem, ladder, jobs, rungs))


def _forbidding(problem: Problem) -> Floats:
    """(R,): a price at which nobody takes what is not there at all."""
    worth = np.where(np.isfinite(problem.worth), problem.worth, 0.0)
    spread = np.ptp(worth, axis=1).max(initial=0.0) + 1.0
    needed = np.where(problem.needs > 0, problem.needs, np.inf).min(axis=(0, 1), initial=np.inf)
    return np.where(np.isfinite(needed), spread / needed, 0.0)


def _least(needs: Floats, worth: Floats, capacity: Floats, start: Floats, box: float, until: float) -> Prices:
    J, K = worth.shape
    flat, rows = needs.reshape(J * K, -1), np.arange(J) * K

    def at(price: Floats) -> tuple[float, Floats, Ints]:
        left = worth - (flat @ price).reshape(J, K)
        choice = left.argmax(axis=1)
        taken = rows + choice
        return float(price @ capacity + left.ravel()[taken].sum()), capacity - flat[taken].sum(axis=0), choice

    value, slope, choice = at(start)
    best = Prices(start, value, choice)
    # a resource that seems to be free may have a price yet: a millionth of what all jobs are worth is looked at first
    least = np.maximum(start, 1e-6 * J / np.where(capacity > 0, capacity, np.inf))
    size, cuts, unit = least * box, Cuts(np.where(least > 0, least, 1.0)), max(abs(value), 1e-300)
    cuts.add(start, value, slope, unit)
    for _ in range(MOST_CUTS):
        low, high = np.maximum(best.each - size, 0.0), best.each + size
        found = cuts.least(low, high, unit)
        if found is None:
            break
        price, floor = found
        inside = ((price > low) | (low == 0)) & (price < high)
        if (best.bound - floor <= TOLERANCE * abs(best.bound) and inside.all()) or time.perf_counter() > until:
            break
        value, slope, choice = at(price)
        cuts.add(price, value, slope, unit)
        if value < best.bound:
            size = size * (1.5 if best.bound - value > 0.25 * (best.bound - floor) else 1.0)
            best = Prices(price, value, choice)
        else:
            size = size * 0.5
    return best
