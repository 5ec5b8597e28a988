"""Better choices near one that fits: what prices a little off lead to, and switches of two jobs at once.

Where jobs are few, the capacity is left in pieces that no single job can use.
"""

from __future__ import annotations

import time

import numpy as np

from sizewright.cluster.allocators._dual import Prices
from sizewright.cluster.allocators._repair import Switches, fill, repaired
from sizewright.cluster.problem import ROUNDING, Floats, Ints, Problem

TRIES = 40
SPREADS = (0.1, 0.03)
"""Standard deviations of the logarithm of prices; the wider one serves 20 jobs, the other 100."""
POOL = 600


def polished(problem: Problem, prices: Prices, choice: Ints, gap: float, until: float, seed: int = 0) -> Ints:
    """A choice (J,) worth at least as much; as it was where that is within `gap` of the bound, or time is out."""
    rng = np.random.default_rng(seed)
    best, value = choice, problem.total(choice)
    enough = prices.bound - gap * abs(prices.bound)
    for number in range(TRIES):
        if value >= enough or time.perf_counter() > until:
            return best
        around = prices.each * rng.lognormal(0, SPREADS[number % len(SPREADS)], len(prices.each))
        tried = repaired(problem, prices.each, (problem.worth - problem.needs @ around).argmax(axis=1), POOL)
        if problem.total(tried) > value:
            best, value = tried, problem.total(tried)
    return _exchanged(problem, prices.each, best, until)


def _exchanged(problem: Problem, prices: Floats, choice: Ints, until: float) -> Ints:
    """Take the two switches of different jobs that together gain most and fit, until none do."""
    switches = Switches(problem, prices, choice, POOL)
    capacity = problem.capacity * (1 + ROUNDING)
    others = switches.jobs[:, None] != switches.jobs
    least = 1e-9 * (1 + abs(problem.total(choice)))
    while len(switches.jobs) and time.perf_counter() < until:
        more, gain = switches.more, switches.gain
        fits = np.all(more[:, None] + more <= capacity - switches.used, axis=2) & others
        both = np.where(fits, gain[:, None] + gain, 0.0)
        first, second = np.unravel_index(int(both.argmax()), both.shape)
        if both[first, second] <= least:
            break
        switches.take(int(first))
        switches.take(int(second))
        fill(switches)
    return switches.choice
