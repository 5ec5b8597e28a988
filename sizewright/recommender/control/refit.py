"""Refit the models of a running job as its measurements grow, optionally in the background."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from sizewright.datasets.trials.trial import Trial
from sizewright.recommender.control.memory_watch import MemoryWatch
from sizewright.recommender.control.run_evidence import RunEvidence
from sizewright.recommender.control.scaler import AutoScaler
from sizewright.recommender.control.windows import Window
from sizewright.spec import Allocation

_LOG = logging.getLogger(__name__)
_GROWTH = 2.0
"""The models are refitted when the observed seconds at the current allocation have grown by this factor."""


class Pool(Protocol):
    """An executor of fits, such as a `ThreadPoolExecutor`."""

    def submit(self, work: Callable[[], str], /) -> Future[str]:
        """Start the work."""
        ...


class SynchronousPool:
    """A pool that does the work when it is submitted."""

    def submit(self, work: Callable[[], str], /) -> Future[str]:
        """Do the work."""
        future: Future[str] = Future()
        future.set_result(work())
        return future


class Refit:
    """The evidence of one run, and the scaler and the memory forecast that are fitted to it."""

    def __init__(self, evidence: RunEvidence, scaler: AutoScaler, memory: MemoryWatch, pool: Pool) -> None:
        self.evidence = evidence
        self._scaler, self._memory, self._pool = scaler, memory, pool
        self._fitted_s, self._observed_s = 0.0, 0.0
        self._pending: Future[str] | None = None
        self.missing_data = self._fit([], evidence.workers)
        """Return why too little is known about other allocations; empty where the data suffice."""

    def add(self, window: Window) -> bool:
        """Add undisturbed training at the current allocation; return whether a refit has finished."""
        self.evidence.add(window)
        self._observed_s += window.seconds
        refitted = self._collect()
        due = self.evidence.current_trial() is not None and self._observed_s >= _GROWTH * self._fitted_s
        if due and self._pending is None:
            self._fitted_s = self._observed_s
            trials, workers = self.evidence.trials(), self.evidence.workers
            self._pending = self._pool.submit(lambda: self._fit(trials, workers))
            refitted |= self._collect()
        return refitted

    def changed(self, allocation: Allocation) -> None:
        """Begin the evidence of another allocation."""
        self.evidence.changed(allocation)
        if self.evidence.current_trial() is None:
            self._fitted_s = self._observed_s = 0.0

    def add_earlier(self, trials: Sequence[Trial]) -> None:
        """Add trials that an earlier loop observed of this run."""
        self.evidence.add_earlier(trials)
        self.missing_data = self._fit(self.evidence.trials(), self.evidence.workers)

    def _fit(self, trials: Sequence[Trial], workers: int) -> str:
        try:
            if self._memory.grows:
                self._memory.refit()
        except Exception as error:  # then there is no memory forecast
            _LOG.debug("The memory forecast could not be fitted.", exc_info=error)
        try:
            return self._scaler.refit(trials, workers)
        except Exception as error:  # a failed fit must not end the job: it keeps its allocation
            _LOG.debug("The throughput model could not be fitted to the run.", exc_info=error)
            return f"the throughput model could not be fitted to the run ({error})."

    def _collect(self) -> bool:
        if self._pending is None or not self._pending.done():
            return False
        self.missing_data, self._pending = self._pending.result(), None
        return True
