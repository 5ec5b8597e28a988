"""What a series of trials is driven by: a point to measure next, until another is not wanted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import NamedTuple

from sizewright.datasets.trials import Trial
from sizewright.spec import Allocation


class Point(NamedTuple):
    """Where to measure: an allocation, and the rows of its tables over those of the job."""

    allocation: Allocation
    table_scale: float = 1.0


class SeriesPlanner(ABC):
    """Points for one series of trials of one job on one host."""

    @abstractmethod
    def ask(self) -> Point:
        """The next point to measure. Raises StopIteration when done."""

    @abstractmethod
    def tell(self, point: Point, trial: Trial) -> None:
        """What came of it; a failed trial is told as well."""

    @abstractmethod
    def done(self) -> bool:
        """Whether the series is at its end."""

    @abstractmethod
    def left(self) -> int:
        """How many trials are still to come, at most."""

    @abstractmethod
    def best(self) -> Trial | None:
        """The fastest trial so far at the largest tables."""


def fastest(told: Iterable[tuple[Point, Trial]], table_scale: float) -> Trial | None:
    """The fastest of the trials at this table scale that a model may learn from."""
    full = [trial for point, trial in told if trial.usable and point.table_scale == table_scale]
    return max(full, key=lambda trial: trial.throughput or 0.0, default=None)
