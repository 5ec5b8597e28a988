"""Turn a choice that exceeds the capacity into one that fits: cheapest switches first, then switches that gain.

Only switches that lose little at the prices are considered: with many jobs, the prices alone decide nearly all of them.
"""

from __future__ import annotations

import numpy as np

from sizewright.cluster.problem.problem import ROUNDING, Floats, Ints, Problem

POOL = 4000
"""Number of switches to consider."""
_MIN_GAIN = 1e-12
"""Relative to the greatest utility."""


class Switches:
    """Possible switches of a choice: job `jobs[i]` could take column `columns[i]` instead of what it has."""

    def __init__(self, problem: Problem, prices: Floats, choice: Ints, pool: int) -> None:
        self.problem = problem
        self.choice = choice.copy()
        rows = np.arange(len(choice))
        net = problem.utilities - problem.needs @ prices
        loss = net[rows, choice][:, None] - net
        loss[rows, choice] = np.inf
        self.jobs, self.columns = _smallest(loss, pool)
        self.used = problem.used(self.choice)

    def take(self, i: int) -> None:
        """Make switch `i`, and offer the way back in its place."""
        job, column = self.jobs[i], self.columns[i]
        before = self.choice[job]
        self.used = self.used + self.problem.needs[job, column] - self.problem.needs[job, before]
        self.choice[job] = column
        self.columns[i] = before

    @property
    def more(self) -> Floats:
        """(S, R): what each switch adds to the resources in use."""
        needs = self.problem.needs
        return np.asarray(needs[self.jobs, self.columns] - needs[self.jobs, self.choice[self.jobs]])

    @property
    def gain(self) -> Floats:
        """(S,): what each switch adds to the utility."""
        utilities = self.problem.utilities
        return np.asarray(utilities[self.jobs, self.columns] - utilities[self.jobs, self.choice[self.jobs]])


def _smallest(loss: Floats, count: int) -> tuple[Ints, Ints]:
    """Return rows and columns of the `count` smallest finite entries."""
    flat = loss.ravel()
    indices = np.arange(flat.size) if flat.size <= count else np.argpartition(flat, count - 1)[:count]
    indices = indices[np.isfinite(flat[indices])]
    return indices // loss.shape[1], indices % loss.shape[1]


def repair(problem: Problem, prices: Floats, choice: Ints, pool: int = POOL) -> Ints:
    """Return a choice (J,) within the capacity that is close to `choice`, or starts from the floor if none is found."""
    switches = Switches(problem, prices, choice, pool)
    if not _relieve(switches, prices):
        if pool < problem.utilities.size:
            return repair(problem, prices, choice, pool * 16)
        switches = Switches(problem, prices, problem.floor, problem.utilities.size)
    fill(switches)
    return switches.choice


def _relieve(switches: Switches, prices: Floats) -> bool:
    """Switch until the choice fits, each time with the least loss per excess removed. Return False if that fails."""
    capacity = switches.problem.capacity
    scale = np.maximum(capacity, 1e-300)
    limit = capacity + capacity * ROUNDING
    for _ in range(len(switches.jobs)):
        if (switches.used <= limit).all():
            return True
        excess = (switches.used - capacity) / scale
        less = -switches.more / scale
        relief = np.minimum(less, np.maximum(excess, 0)) * (excess > 0)
        harm = np.maximum(-less, 0) * (excess - less > 0)
        net_relief = relief.sum(axis=1) - harm.sum(axis=1)
        loss = np.maximum(-switches.gain + switches.more @ prices, 0) + _MIN_GAIN
        score = np.where(net_relief > _MIN_GAIN, loss / np.maximum(net_relief, _MIN_GAIN), np.inf)
        best = int(score.argmin())
        if not np.isfinite(score[best]):
            return False
        switches.take(best)
    return bool((switches.used <= limit).all())


def fill(switches: Switches) -> None:
    """Take the switch that fits and gains most, until no switch gains."""
    capacity = switches.problem.capacity * (1 + ROUNDING)
    while len(switches.jobs):
        fits = (switches.used + switches.more <= capacity).all(axis=1)
        gain = np.where(fits, switches.gain, 0.0)
        best = int(gain.argmax())
        if gain[best] <= _MIN_GAIN:
            return
        switches.take(best)
