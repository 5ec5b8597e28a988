"""The allocation problem: each job brings a table of candidates and gets one of them or nothing, within the capacity.

J jobs, K columns, R resources. Column 0 of each table is "nothing": it needs nothing, and has the value of waiting.
A job that must run does not offer it. Columns that a job does not offer are padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sizewright.cluster.problem.scheduler_state import SchedulerState, units_of
from sizewright.errors import InputError
from sizewright.formatting import format_count

__all__ = ["Problem"]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]

ROUNDING = 1e-9
"""Relative tolerance with which a sum of needs may exceed a capacity."""


@dataclass(frozen=True)
class Problem:
    """Candidates of many jobs and the capacity that they share.

    J jobs, K columns, R resources; column 0 of each table is nothing. Raises InputError if shapes do not match, or if
    an array holds NaN, infinite or negative values where they make no sense.
    """

    jobs: Sequence[str]
    resources: Sequence[str]
    capacity: Floats
    """(R,) in cores, bytes, GPUs."""
    needs: Floats
    """(J, K, R)."""
    values: Floats
    """(J, K): the utilities, whose sum over the chosen candidates is maximised."""
    offered: Bools
    """(J, K): True for the columns that may be chosen."""
    current: Ints
    """(J,): the column that each job has now; 0 for jobs that wait."""
    change_price: Floats
    """(J,): the value lost when a running job gets another column."""
    scheduler_state: SchedulerState | None = None
    """Speeds, remaining work and arrivals, from which published policies compute values of their own."""
    fallback: Ints | None = None
    """(J,): a `floor` that is known to fit; absent, it is computed."""

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
                raise InputError(f"{name} has the shape {getattr(self, name).shape}.", f"Expected {shape}.")
        if len(self.jobs) != J:
            raise InputError(
                f"The problem has {format_count(len(self.jobs), 'job')} but {format_count(J, 'table')}.",
                "Give one table for each job.",
            )
        for name in ("capacity", "needs"):
            array = getattr(self, name)
            if not (np.isfinite(array).all() and (array >= 0).all()):
                raise InputError(f"{name} holds a value that is negative or not finite.", "Give 0 or more.")
        if not (np.isfinite(self.change_price).all() and (self.change_price >= 0).all()):
            raise InputError("change_price holds a value that is negative or not finite.", "Give 0 or more.")
        if ((self.current < 0) | (self.current >= K)).any():
            raise InputError("current names a column that does not exist.", f"Give 0 to {K - 1}.")
        if not np.isfinite(self.values[self.offered]).all():
            raise InputError(
                "values hold a value that is not finite.", "Give a finite number for each candidate that is offered."
            )
        if K < 1 or self.needs[:, 0].any():
            raise InputError(
                "Column 0 stands for nothing, but its needs are not 0.", "Put each job's candidates in columns 1, 2, …"
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        """The numbers of jobs, columns and resources."""
        return self.needs.shape[0], self.needs.shape[1], self.needs.shape[2]

    @cached_property
    def utilities(self) -> Floats:
        """(J, K): the values minus the price of the change; −inf for columns that are not offered."""
        changed = (self.current[:, None] > 0) & (np.arange(self.shape[1]) != self.current[:, None])
        return np.where(self.offered, self.values - self.change_price[:, None] * changed, -np.inf)

    @cached_property
    def share(self) -> Floats:
        """(J, K): the dominant share of each candidate, the largest share that it takes of any capacity."""
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(self.needs > 0, self.needs / self.capacity, 0.0)
        return np.asarray(shares.max(axis=2, initial=0.0))

    @cached_property
    def kinds(self) -> Ints:
        """(J, K): the kind of each candidate, a number from 0. Candidates that take the same resources are of one kind.

        One GPU of kind a and two of kind b are of two kinds; two and four cores with memory are of one.
        """
        codes = (self.needs > 0) @ (1 << np.arange(self.shape[2], dtype=np.int64))
        return np.asarray(np.unique(codes, return_inverse=True)[1]).reshape(codes.shape)

    @cached_property
    def has_several_kinds(self) -> Bools:
        """(J,): True for jobs whose candidates are of several kinds."""
        is_candidate = self.offered & (np.arange(self.shape[1]) > 0)
        least = np.where(is_candidate, self.kinds, np.iinfo(np.intp).max).min(axis=1, initial=np.iinfo(np.intp).max)
        return np.asarray(np.where(is_candidate, self.kinds, -1).max(axis=1, initial=-1) > least)

    @cached_property
    def units(self) -> Floats:
        """(J, K): the size of each candidate: its GPUs of all kinds, or its cores without GPUs (see `units_of`)."""
        return units_of(self.needs, self.resources)

    @cached_property
    def smallest(self) -> Ints:
        """(J,): each job's candidate with the smallest dominant share; 0 if it has none."""
        share = np.where(self.offered, self.share, np.inf)
        share[:, 0] = np.inf
        smallest = share.argmin(axis=1)
        return np.where(np.isfinite(share[np.arange(len(share)), smallest]), smallest, 0)

    @cached_property
    def floor(self) -> Ints:
        """(J,): what each job has at least: nothing, or its smallest candidate if it must run.

        If the smallest candidates do not fit together, the jobs that must run have what they have now.
        """
        if self.fallback is not None:
            return self.fallback
        rows, must_run = np.arange(len(self.current)), ~self.offered[:, 0]
        smallest = np.where(must_run, self.smallest, 0)
        if self.fits(smallest):
            return smallest
        keeps = must_run & (self.current > 0) & self.offered[rows, self.current]
        return np.where(keeps, self.current, smallest)

    def replaced(
        self,
        *,
        values: Floats | None = None,
        offered: Bools | None = None,
        current: Ints | None = None,
        change_price: Floats | None = None,
        fallback: Ints | None = None,
    ) -> Problem:
        """Return the problem with other fields than its needs and capacity; what follows from these is kept.

        `values`, `offered`, `current`, `change_price` and `fallback` are those of the class; None leaves them as they
        are.
        """
        problem = replace(
            self,
            values=self.values if values is None else values,
            offered=self.offered if offered is None else offered,
            current=self.current if current is None else current,
            change_price=self.change_price if change_price is None else change_price,
            fallback=self.fallback if fallback is None else fallback,
        )
        for name in ("share", "kinds", "units"):
            if name in vars(self):
                vars(problem)[name] = vars(self)[name]
        return problem

    def used(self, choice: Ints) -> Floats:
        """Return how much (R,) of each resource a choice of columns (J,) uses."""
        return np.asarray(self.needs[np.arange(len(choice)), choice].sum(axis=0))

    def fits(self, choice: Ints) -> bool:
        """Return True if a choice of columns (J,) stays within the capacity."""
        return bool((self.used(choice) <= self.capacity * (1 + ROUNDING)).all())

    def total(self, choice: Ints) -> float:
        """Return the total utility of a choice of columns (J,)."""
        return float(self.utilities[np.arange(len(choice)), choice].sum())
