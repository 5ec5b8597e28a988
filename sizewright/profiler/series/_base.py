"""The interface of a series planner: points to measure, one after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import NamedTuple

from sizewright.datasets.trials.trial import Trial
from sizewright.spec import Allocation


class TrialPoint(NamedTuple):
    """A point to measure: an allocation, and the number of rows of its tables relative to the job's."""

    allocation: Allocation
    table_scale: float = 1.0


class SeriesPlanner(ABC):
    """Points for one series of trials of one job on one host."""

    @abstractmethod
    def ask(self) -> TrialPoint:
        """Return the next point to measure. Raises StopIteration when done."""

    @abstractmethod
    def tell(self, point: TrialPoint, trial: Trial) -> None:
        """Record the trial of a point; failed trials are told as well."""

    @abstractmethod
    def done(self) -> bool:
        """Return whether the series is complete."""

    @abstractmethod
    def remaining(self) -> int:
        """Return the maximum number of remaining trials."""

    @abstractmethod
    def best(self) -> Trial | None:
        """Return the fastest trial so far at the largest tables."""


def fastest(trials: Iterable[tuple[TrialPoint, Trial]], table_scale: float) -> Trial | None:
    """Return the fastest usable trial at a table scale."""
    full = [trial for point, trial in trials if trial.usable and point.table_scale == table_scale]
    return max(full, key=lambda trial: trial.throughput or 0.0, default=None)
