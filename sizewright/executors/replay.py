"""A job that ran, once more: its looks as they were, at the time at which they were."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from sizewright.errors import StoreError
from sizewright.executors.change_costs import LIVE_PRIOR
from sizewright.executors.metrics_log import MetricsLog, Observed
from sizewright.executors.watch_only import WatchOnly
from sizewright.spec import Allocation, ChangeCost, Handle, Metrics
from sizewright.spec._paths import absolute
from sizewright.spec.units import format_count

_LOG = logging.getLogger(__name__)


class Replay(WatchOnly):
    """Over looks in their order, each of which is there until it is waited for the next. A change costs `change`."""

    name = "replay"

    def __init__(self, looks: Sequence[Observed], change: ChangeCost = LIVE_PRIOR) -> None:
        self._looks, self.change = looks, change
        self._at = 0

    @classmethod
    def load(cls, path: str | Path, change: ChangeCost = LIVE_PRIOR) -> Replay:
        """Of a file that `run` wrote. Raises StoreError for one without looks at a job."""
        if not Path(absolute(path)).exists():
            raise StoreError(f"No recorded metrics at {path}.", "Record them: sizewright run JOB --metrics FILE")
        log = MetricsLog(path)
        looks = log.read()
        if log.passed_over:
            _LOG.warning("Passed over in %s, as no look at a job: %s.", path, format_count(log.passed_over, "line"))
        if not any(look.metrics.allocation for look in looks):
            what = "no look at its allocation" if looks else "no look at a job"
            raise StoreError(f"{path} holds {what}.", "Record one: sizewright run JOB --metrics FILE")
        return cls(looks, change)

    @property
    def allocation(self) -> Allocation:
        """That it began at."""
        told = [look.metrics.allocation for look in self._looks if look.metrics.allocation]
        return told[0]

    def clock(self) -> float:
        """Seconds by then."""
        return self._looks[self._at].at_s

    def now(self) -> datetime:
        """What time it was."""
        return self._looks[self._at].at

    def observe(self, handle: Handle) -> Metrics:
        """What was seen then."""
        return self._looks[self._at].metrics

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Goes on to the first look that came so much later, or before this one, where its clock jumped; whether there
        is none."""
        now_s = self.clock()
        later = range(self._at + 1, len(self._looks))
        due = next((i for i in later if not now_s <= self._looks[i].at_s < now_s + timeout_s), None)
        self._at = self._at if due is None else due
        return due is None
