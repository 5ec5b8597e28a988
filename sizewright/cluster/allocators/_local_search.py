"""Improve a choice that fits: repair choices at slightly different prices, then switch two jobs at once.

With few jobs, the remaining capacity is in pieces that no single job can use.
"""

from __future__ import annotations

import time

import numpy as np

from sizewright.cluster.allocators._dual import DualPrices
from sizewright.cluster.allocators._repair import Switches, fill, repair
from sizewright.cluster.problem.problem import ROUNDING, Floats, Ints, Problem

TRIES = 40
LOG_PRICE_SDS = (0.1, 0.03)
"""Standard deviations of the logarithm of prices; the larger one helps 20 jobs, the smaller one 100."""
POOL = 600


def local_search(problem: Problem, dual: DualPrices, choice: Ints, gap: float, until: float, seed: int = 0) -> Ints:
    """Return a choice (J,) at least as good; stop within `gap` of the bound, or at `until` (`time.perf_counter`)."""
    rng = np.random.default_rng(seed)
    best, best_value = choice, problem.total(choice)
    target = dual.bound - gap * abs(dual.bound)
    for number in range(TRIES):
        if best_value >= target or time.perf_counter() > until:
            return best
        sd = LOG_PRICE_SDS[number % len(LOG_PRICE_SDS)]
        prices = dual.prices * rng.lognormal(0, sd, len(dual.prices))
        candidate = (problem.utilities - problem.needs @ prices).argmax(axis=1)
        candidate = repair(problem, dual.prices, candidate, POOL)
        value = problem.total(candidate)
        if value > best_value:
            best, best_value = candidate, value
    return _switch_pairs(problem, dual.prices, best, until)


def _switch_pairs(problem: Problem, prices: Floats, choice: Ints, until: float) -> Ints:
    """Make the two switches of different jobs that fit and gain most together, until none gain."""
    switches = Switches(problem, prices, choice, POOL)
    capacity = problem.capacity * (1 + ROUNDING)
    different_jobs = switches.jobs[:, None] != switches.jobs
    min_gain = 1e-9 * (1 + abs(problem.total(choice)))
    while len(switches.jobs) and time.perf_counter() < until:
        more, gain = switches.more, switches.gain
        fits = np.all(more[:, None] + more <= capacity - switches.used, axis=2) & different_jobs
        pair_gain = np.where(fits, gain[:, None] + gain, 0.0)
        first, second = np.unravel_index(int(pair_gain.argmax()), pair_gain.shape)
        if pair_gain[first, second] <= min_gain:
            break
        switches.take(int(first))
        switches.take(int(second))
        fill(switches)
    return switches.choice
