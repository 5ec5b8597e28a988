"""A log of the observations of a running job, from which the run can be replayed."""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path

from sizewright.datasets.files.json_lines import JsonLines
from sizewright.datasets.trials.trial import now
from sizewright.errors import StoreError
from sizewright.runtime.run import MetricsCallback, Running
from sizewright.spec import Metrics
from sizewright.spec._base import Record

_LOG = logging.getLogger(__name__)


class Observed(Record):
    """One observation of a job."""

    at: datetime
    at_s: float
    """Seconds on the clock of the run."""
    metrics: Metrics


class MetricsLog(JsonLines[Observed]):
    """The observations in the file at `path`. Raises StoreError where it cannot be read or written."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, Observed, "metrics")

    def observer(self, running: Running) -> MetricsCallback:
        """Return a callback that appends each observation of a running job; where that fails, the job runs on."""
        last_error = ""

        def on_metrics(metrics: Metrics | None) -> None:
            nonlocal last_error
            if metrics is None:
                return
            try:
                self.append(Observed(at=now(), at_s=running.clock(), metrics=metrics))
            except StoreError as error:
                if error.message != last_error:  # warn once, not twice a second
                    _LOG.warning("The metrics are not recorded: %s", error)
                last_error = error.message

        return on_metrics
