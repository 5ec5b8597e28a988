"""Tiresias (Gu et al., NSDI 2019): least attained service, discretised into queues."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sizewright.cluster.allocators._base import Allocator, scheduler_state_of
from sizewright.cluster.allocators._queue import requested_columns, serve_in_order
from sizewright.cluster.problem.problem import Ints, Problem
from sizewright.cluster.problem.solution import Solution, chosen
from sizewright.errors import InputError
from sizewright.spec.units import parse_seconds

THRESHOLDS = (3250.0, 7200.0)
"""Attained service (GPU-seconds) at which a job leaves the first and the second of three queues: the values of the
public simulator of Tiresias, and of Muri (SIGCOMM 2022)."""


class Tiresias(Allocator):
    """Serves the queues one after the other; each job gets its request, and jobs that do not fit are skipped.

    A job comes into the first queue and enters the next one when its attained service reaches a threshold. Within a
    queue, jobs that run come before jobs that wait, and both are in the order in which they entered it (in the first
    queue, that of arrival), as in the public simulator of Tiresias. The policy remembers this order from one decision
    to the next; jobs that it does not know are in order of arrival. Jobs that starve are not promoted.
    """

    name = "tiresias"
    rigid = True

    def __init__(self, thresholds: Sequence[float] = THRESHOLDS) -> None:
        """The `thresholds` are service in units × seconds (GPU-seconds), one fewer than there are queues.

        Raises InputError unless they are above 0 and rise.
        """
        limits = np.asarray(thresholds, float)
        if not (len(limits) and np.isfinite(limits).all() and (np.diff(limits, prepend=0.0) > 0).all()):
            given = ", ".join(f"{limit:g}" for limit in limits) or "none"
            raise InputError(f"The thresholds must be above 0 and rise, got {given}.", "Give some such as 3250:7200.")
        self.thresholds = tuple(map(float, limits))
        if self.thresholds != THRESHOLDS:
            self.name = ":".join(["tiresias", *(f"{limit:g}" for limit in limits)])  # runs are told apart by it
        self._places: dict[str, tuple[int, int]] = {}
        """The queue of each job at the last decision, and its place in the order of all jobs."""

    @classmethod
    def of_settings(cls, text: str) -> Tiresias:
        """Return the policy for thresholds such as `3250:7200` or `1h:4h`."""
        try:
            return cls([parse_seconds(part) for part in text.split(":")])
        except ValueError as error:
            raise InputError(f"The thresholds {text!r} are not times: {error}.", "Write tiresias:3250:7200.") from None

    def choose(self, problem: Problem, until: float) -> Solution:
        """See `Allocator`."""
        names = list(problem.jobs)
        attained = scheduler_state_of(problem, self.name).attained
        queue = np.searchsorted(self.thresholds, attained, side="right")
        order = self._order(problem, names, queue)
        choice = serve_in_order(problem, order, requested_columns(problem), strict=False)
        places = np.empty(len(order), dtype=np.intp)
        places[order] = np.arange(len(order))
        places[np.lexsort((places, choice == 0, queue))] = np.arange(len(order))
        self._places = dict(zip(names, zip(queue.tolist(), places.tolist(), strict=True), strict=True))
        return chosen(problem, self.name, choice)

    def _order(self, problem: Problem, names: list[str], queue: Ints) -> Ints:
        """Return the jobs in the order in which they are served; those new in a queue are the last in it."""
        arrived_s = scheduler_state_of(problem, self.name).arrived_s
        known = [self._places.get(name, (-1, 0)) for name in names]
        place = np.array([p if q == now else math.inf for (q, p), now in zip(known, queue.tolist(), strict=True)])
        return np.lexsort((arrived_s, problem.current == 0, place, queue))
