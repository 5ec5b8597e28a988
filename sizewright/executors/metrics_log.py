"""What was observed of a running job, kept so that it can be replayed."""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path

from sizewright.datasets.json_lines import JsonLines
from sizewright.datasets.trials import now
from sizewright.errors import StoreError
from sizewright.executors.run import Look, Running
from sizewright.spec import Metrics
from sizewright.spec._base import Record

_LOG = logging.getLogger(__name__)


class Observed(Record):
    """One look at a job."""

    at: datetime
    at_s: float
    """Seconds of the clock of the run."""
    metrics: Metrics


class MetricsLog(JsonLines[Observed]):
    """At `path`. Raises StoreError where it cannot be read or written."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, Observed, "metrics")

    def beside(self, running: Running) -> Look:
        """Writes down each look at a running job, which goes on when that cannot be."""
        failed = ""

        def look(metrics: Metrics | None) -> None:
            nonlocal failed
            if metrics is None:
                return
            try:
                self.append(Observed(at=now(), at_s=running.clock(), metrics=metrics))
            except StoreError as error:
                if error.message != failed:  # said once, not twice a second
                    _LOG.warning("The metrics are not kept: %s", error)
                failed = error.message

        return look
