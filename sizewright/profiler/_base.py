"""Which trials to run: ask for a point, tell its trial, until another would not be worth its cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from sizewright.datasets.trials import Trial
from sizewright.spec import Allocation


class Point(NamedTuple):
    """Where to measure: an allocation, and the rows of its tables over those of the job."""

    allocation: Allocation
    table_scale: float = 1.0


class TrialPlanner(ABC):
    """Driven by the profiler, a pipeline, or a replay of a measured table."""

    @abstractmethod
    def ask(self) -> Point:
        """The next point to measure. Raises StopIteration when done."""

    @abstractmethod
    def tell(self, point: Point, trial: Trial) -> None:
        """What came of it; a failed trial is told as well."""

    @abstractmethod
    def done(self) -> bool:
        """Whether another trial is not worth its cost."""

    @abstractmethod
    def left(self) -> int:
        """How many trials are still to come, as far as is known."""

    @abstractmethod
    def best(self) -> Trial | None:
        """The fastest trial so far at the largest tables."""
