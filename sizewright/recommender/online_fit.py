"""What a run tells is fitted anew as it grows; in the background, where a pool is given, so that no decision waits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from sizewright.datasets.trials import Trial
from sizewright.recommender.memory_watch import MemoryWatch
from sizewright.recommender.run_evidence import RunEvidence
from sizewright.recommender.scaler import AutoScaler
from sizewright.recommender.windows import Window
from sizewright.spec import Allocation

_LOG = logging.getLogger(__name__)
_GROWTH = 2.0
"""The present allocation is fitted anew when so many times as much has been seen of it."""


class Pool(Protocol):
    """Where fits are made: such as a `ThreadPoolExecutor`."""

    def submit(self, work: Callable[[], str], /) -> Future[str]:
        """Begin it."""
        ...


class AtOnce:
    """A pool whose work is done when it is submitted."""

    def submit(self, work: Callable[[], str], /) -> Future[str]:
        """Do it."""
        done: Future[str] = Future()
        done.set_result(work())
        return done


class OnlineFit:
    """Of one run: its evidence, and the scaler and the forecast of memory that are fitted to it."""

    def __init__(self, evidence: RunEvidence, scaler: AutoScaler, memory: MemoryWatch, pool: Pool) -> None:
        self.evidence = evidence
        self._scaler, self._memory, self._pool = scaler, memory, pool
        self._fitted_s, self._seen_s = 0.0, 0.0
        self._fitting: Future[str] | None = None
        self.unknown = self._fit([], evidence.workers)
        """Why too little is known of other allocations, if it is."""

    def add(self, window: Window) -> bool:
        """Undisturbed training at the present allocation. Whether something was learned since the last time."""
        self.evidence.add(window)
        self._seen_s += window.seconds
        learned = self._collect()
        due = self.evidence.here() is not None and self._seen_s >= _GROWTH * self._fitted_s
        if due and self._fitting is None:
            self._fitted_s = self._seen_s
            trials, workers = self.evidence.trials(), self.evidence.workers
            self._fitting = self._pool.submit(lambda: self._fit(trials, workers))
            learned |= self._collect()
        return learned

    def changed(self, allocation: Allocation) -> None:
        """It trains at another allocation from now on."""
        self.evidence.changed(allocation)
        if self.evidence.here() is None:
            self._fitted_s = self._seen_s = 0.0

    def know(self, trials: Sequence[Trial]) -> None:
        """What an earlier loop beside this run has seen."""
        self.evidence.know(trials)
        self.unknown = self._fit(self.evidence.trials(), self.evidence.workers)

    def _fit(self, trials: Sequence[Trial], workers: int) -> str:
        try:
            if self._memory.grows:
                self._memory.refit()
        except Exception as error:  # then nothing is forecast of it
            _LOG.debug("Memory cannot be forecast.", exc_info=error)
        try:
            return self._scaler.refit(trials, workers)
        except Exception as error:  # then it is left at what it has: a job is not ended for a fit
            _LOG.debug("What was seen cannot be fitted.", exc_info=error)
            return f"what was seen cannot be fitted ({error})."

    def _collect(self) -> bool:
        if self._fitting is None or not self._fitting.done():
            return False
        self.unknown, self._fitting = self._fitting.result(), None
        return True
