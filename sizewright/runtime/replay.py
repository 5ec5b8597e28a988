"""Replay a run from its recorded observations, at the times at which they were made."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from sizewright.errors import StoreError
from sizewright.executors._base import ReadOnlyExecutor
from sizewright.executors.change_costs import LIVE_PRIOR
from sizewright.formatting import format_count
from sizewright.runtime.metrics_log import MetricsLog, Observed
from sizewright.spec import Allocation, ChangeCost, Handle, Metrics
from sizewright.spec._paths import absolute

_LOG = logging.getLogger(__name__)


class ReplayExecutor(ReadOnlyExecutor):
    """Return recorded observations in their order; `wait` moves to the next. A change costs `change`."""

    name = "replay"

    def __init__(self, observations: Sequence[Observed], change: ChangeCost = LIVE_PRIOR) -> None:
        self._observations, self.change = observations, change
        self._index = 0

    @classmethod
    def load(cls, path: str | Path, change: ChangeCost = LIVE_PRIOR) -> ReplayExecutor:
        """Load a file that `run` wrote. Raises StoreError where it holds no observation with an allocation."""
        if not Path(absolute(path)).exists():
            raise StoreError(f"No recorded metrics at {path}.", "Record them: sizewright run JOB --metrics FILE")
        log = MetricsLog(path)
        observations = log.read()
        if log.passed_over:
            _LOG.warning(
                "%s of %s cannot be read and %s skipped.",
                format_count(log.passed_over, "line"),
                path,
                "is" if log.passed_over == 1 else "are",
            )
        if not any(observed.metrics.allocation for observed in observations):
            what = "no observation with an allocation" if observations else "no observation of a job"
            raise StoreError(f"{path} holds {what}.", "Record one: sizewright run JOB --metrics FILE")
        return cls(observations, change)

    @property
    def allocation(self) -> Allocation:
        """Return the allocation at which the run began."""
        return next(o.metrics.allocation for o in self._observations if o.metrics.allocation)

    def clock(self) -> float:
        """Return the seconds of the run's clock at the current observation."""
        return self._observations[self._index].at_s

    def now(self) -> datetime:
        """Return the time of day at the current observation."""
        return self._observations[self._index].at

    def observe(self, handle: Handle) -> Metrics:
        """Return the current observation."""
        return self._observations[self._index].metrics

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Move to the first observation `timeout_s` later, or earlier than the current one (its clock jumped).

        Returns whether the replay has ended.
        """
        current_s = self.clock()
        later = range(self._index + 1, len(self._observations))
        due = next((i for i in later if not current_s <= self._observations[i].at_s < current_s + timeout_s), None)
        self._index = self._index if due is None else due
        return due is None
