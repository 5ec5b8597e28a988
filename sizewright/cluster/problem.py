"""The allocation problem: every job brings a table of candidates; each gets one or nothing, within the capacity.

J jobs, K columns, R resources. Column 0 of every table is nothing: it needs nothing, and has the value of waiting.
A job that may not be put off does not offer it. Columns that a job does not offer are padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sizewright.cluster.facts import Facts
from sizewright.errors import InputError
from sizewright.spec.units import format_count

__all__ = ["Problem"]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]

ROUNDING = 1e-9
"""Share of a capacity by which a sum of floats may seem to exceed it."""


@dataclass(frozen=True)
class Problem:
    """Candidates of many jobs and the capacity that they share.

    J jobs, K columns, R resources; column 0 of each table is nothing. Raises InputError where shapes do not fit, or
    what is no number stands where one has to.
    """

    jobs: Sequence[str]
    resources: Sequence[str]
    capacity: Floats
    """(R,) in cores, bytes, GPUs."""
    needs: Floats
    """(J, K, R)."""
    values: Floats
    """(J, K): what is to be as great as possible in sum."""
    offered: Bools
    """(J, K)."""
    current: Ints
    """(J,): the column that each job has now; 0 for those that wait."""
    change_price: Floats
    """(J,): value lost when a job that has something gets another column."""
    facts: Facts | None = None
    fallback: Ints | None = None
    """(J,): the floor, where it is known by other means to fit."""
    """What published policies go by; they make their own values of it."""

    def __post_init__(self) -> None:
        J, K = self.values.shape
        shapes = {
            "capacity": (len(self.resources),),
            "needs": (J, K, len(self.resources)),
            "offered": (J, K),
            "current": (J,),
            "change_price": (J,),
        }
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise InputError(f"{name} has the shape {getattr(self, name).shape}.", f"Give {shape}.")
        if len(self.jobs) != J:
            raise InputError(
                f"{format_count(len(self.jobs), 'job')} came with {format_count(J, 'table')}.",
                "Give one table for each job.",
            )
        for name in ("capacity", "needs"):
            array = getattr(self, name)
            if not (np.isfinite(array).all() and (array >= 0).all()):
                raise InputError(f"{name} holds what is negative or no number.", "Give 0 or more.")
        if not (np.isfinite(self.change_price).all() and (self.change_price >= 0).all()):
            raise InputError("change_price holds what is negative or no number.", "Give 0 or more.")
        if ((self.current < 0) | (self.current >= K)).any():
            raise InputError("current names a column that there is not.", f"Give 0 to {K - 1}.")
        if not np.isfinite(self.values[self.offered]).all():
            raise InputError("values hold what is no number.", "Give a number for each candidate that is offered.")
        if K < 1 or self.needs[:, 0].any():
            raise InputError("Column 0 is nothing, and needs something.", "Put each job's candidates behind it.")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Jobs, columns, resources."""
        return self.needs.shape[0], self.needs.shape[1], self.needs.shape[2]

    @cached_property
    def worth(self) -> Floats:
        """(J, K): values less the price of the change; −inf where nothing is offered."""
        changed = (self.current[:, None] > 0) & (np.arange(self.shape[1]) != self.current[:, None])
        return np.where(self.offered, self.values - self.change_price[:, None] * changed, -np.inf)

    @cached_property
    def share(self) -> Floats:
        """(J, K): the greatest share of a capacity that a candidate takes (its dominant share)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(self.needs > 0, self.needs / self.capacity, 0.0)
        return np.asarray(shares.max(axis=2, initial=0.0))

    @cached_property
    def least(self) -> Ints:
        """(J,): each job's candidate of the least dominant share; 0 where it has none."""
        share = np.where(self.offered, self.share, np.inf)
        share[:, 0] = np.inf
        found = share.argmin(axis=1)
        return np.where(np.isfinite(share[np.arange(len(share)), found]), found, 0)

    @cached_property
    def floor(self) -> Ints:
        """(J,): what a job is left with: nothing; or, where it may not be put off, its least, or what it has where the
        least of all do not fit."""
        if self.fallback is not None:
            return self.fallback
        rows, stays = np.arange(len(self.current)), ~self.offered[:, 0]
        least = np.where(stays, self.least, 0)
        if self.fits(least):
            return least
        return np.where(stays & (self.current > 0) & self.offered[rows, self.current], self.current, least)

    def used(self, choice: Ints) -> Floats:
        """(R,): what a choice of columns (J,) takes of each resource."""
        return np.asarray(self.needs[np.arange(len(choice)), choice].sum(axis=0))

    def fits(self, choice: Ints) -> bool:
        """Whether a choice of columns (J,) stays within the capacity."""
        return bool((self.used(choice) <= self.capacity * (1 + ROUNDING)).all())

    def total(self, choice: Ints) -> float:
        """What a choice of columns (J,) is worth."""
        return float(self.worth[np.arange(len(choice)), choice].sum())
