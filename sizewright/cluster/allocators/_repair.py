"""From what jobs would take at given prices to what fits: the cheapest switches until it does, then the best that fit.

Only switches that lose little at the prices are looked at: of many jobs, nearly all are settled by the prices alone.
"""

from __future__ import annotations

import numpy as np

from sizewright.cluster.problem import ROUNDING, Floats, Ints, Problem

POOL = 4000
"""Switches looked at."""
_NEVER = 1e-12
"""Of the greatest worth."""


class Switches:
    """Job `jobs[i]` could take column `columns[i]` instead of what it has."""

    def __init__(self, problem: Problem, prices: Floats, choice: Ints, pool: int) -> None:
        self.problem, self.choice = problem, choice.copy()
        rows = np.arange(len(choice))
        left = problem.worth - problem.needs @ prices
        loss = left[rows, choice][:, None] - left
        loss[rows, choice] = np.inf
        self.jobs, self.columns = _least_of(loss, pool)
        self.used = problem.used(self.choice)

    def take(self, i: int) -> None:
        """Switch, and offer the way back."""
        job, column, before = self.jobs[i], self.columns[i], self.choice[self.jobs[i]]
        self.used = self.used + self.problem.needs[job, column] - self.problem.needs[job, before]
        self.choice[job], self.columns[i] = column, before

    @property
    def more(self) -> Floats:
        """(S, R): what each switch would add to what is used."""
        needs = self.problem.needs
        return np.asarray(needs[self.jobs, self.columns] - needs[self.jobs, self.choice[self.jobs]])

    @property
    def gain(self) -> Floats:
        """(S,): what each would add to the worth."""
        worth = self.problem.worth
        return np.asarray(worth[self.jobs, self.columns] - worth[self.jobs, self.choice[self.jobs]])


def _least_of(loss: Floats, pool: int) -> tuple[Ints, Ints]:
    flat = loss.ravel()
    near = np.arange(flat.size) if flat.size <= pool else np.argpartition(flat, pool - 1)[:pool]
    near = near[np.isfinite(flat[near])]
    return near // loss.shape[1], near % loss.shape[1]


def repaired(problem: Problem, prices: Floats, choice: Ints, pool: int = POOL) -> Ints:
    """A choice (J,) within the capacity, near to `choice`; the problem's floor where none is found on the way."""
    switches = Switches(problem, prices, choice, pool)
    if not _relieve(switches, prices):
        if pool < problem.worth.size:
            return repaired(problem, prices, choice, pool * 16)
        switches = Switches(problem, prices, problem.floor, problem.worth.size)
    fill(switches)
    return switches.choice


def _relieve(switches: Switches, prices: Floats) -> bool:
    """Switch until all fits, each time with the least loss for the excess that it takes away; whether that succeeds."""
    capacity = switches.problem.capacity
    scale, rounding = np.maximum(capacity, 1e-300), capacity * ROUNDING
    for _ in range(len(switches.jobs)):
        over = (switches.used - capacity) / scale
        if (switches.used <= capacity + rounding).all():
            return True
        less = -switches.more / scale
        relief = np.minimum(less, np.maximum(over, 0)) * (over > 0)
        harm = np.maximum(-less, 0) * (over - less > 0)
        net = relief.sum(axis=1) - harm.sum(axis=1)
        loss = np.maximum(-switches.gain + switches.more @ prices, 0) + _NEVER
        score = np.where(net > _NEVER, loss / np.maximum(net, _NEVER), np.inf)
        best = int(score.argmin()) if len(score) else 0
        if not len(score) or not np.isfinite(score[best]):
            return False
        switches.take(best)
    return bool((switches.used <= capacity + rounding).all())


def fill(switches: Switches) -> None:
    """Take the switch that gains most among those that fit, until none gains."""
    capacity = switches.problem.capacity * (1 + ROUNDING)
    while len(switches.jobs):
        fits = (switches.used + switches.more <= capacity).all(axis=1)
        gain = np.where(fits, switches.gain, 0.0)
        best = int(gain.argmax())
        if gain[best] <= _NEVER:
            return
        switches.take(best)
