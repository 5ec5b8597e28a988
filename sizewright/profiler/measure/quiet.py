"""Measure trials on an idle host only: other work during a trial voids it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from sizewright.datasets.trials.trial import Trial
from sizewright.errors import TrialVoidError
from sizewright.profiler.measure.interference import busy_core_seconds
from sizewright.profiler.measure.measure import Timing, Trainer, measure
from sizewright.profiler.series._base import TrialPoint

MAX_OTHER_CORES = 0.2


class QuietMeasure:
    """Measure like `measure`, but void trials during which other work used more than `MAX_OTHER_CORES`.

    Other work is the busy time of the host's cores while the trial is observed, minus that of its replicas, the engine
    and this process.
    """

    def __init__(self, busy: Callable[[], float] | None = None) -> None:
        self._busy = busy or busy_core_seconds

    def __call__(self, trainer: Trainer, point: TrialPoint, timing: Timing) -> Trial:
        """Measure one trial. Raises TrialVoidError if other work ran."""
        blocks: list[tuple[float, float]] = []

        def observed_sleep(seconds: float) -> None:
            began = time.monotonic()
            before = self._busy() - _process_cpu_s()
            time.sleep(seconds)
            blocks.append((time.monotonic() - began, self._busy() - _process_cpu_s() - before))

        trial = measure(trainer, point, timing, sleep=observed_sleep)
        seconds, busy = (sum(part) for part in zip(*blocks[1:], strict=True))  # the first block is the warm-up
        if busy / seconds - _cores_used(trial) > MAX_OTHER_CORES:
            raise TrialVoidError(
                f"Other work on the host used more than {MAX_OTHER_CORES} cores.", "Measure while the host is idle."
            )
        return trial


def _process_cpu_s() -> float:
    return sum(os.times()[:2])


def _cores_used(trial: Trial) -> float:
    """Return the cores that the replicas and the engine of a trial used."""
    replicas = trial.workers * (trial.worker_cpu_used or 0.0) + trial.ps * (trial.ps_cpu_used or 0.0)
    return replicas + (trial.uncharged_cpu_s or 0.0) / (trial.duration_s or 1.0)
