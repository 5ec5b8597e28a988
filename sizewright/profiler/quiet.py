"""Whether other work ran on the host while a trial did: then what it measured is not the job's."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from sizewright.datasets.trials import Trial
from sizewright.errors import TrialVoidError
from sizewright.profiler._base import Point
from sizewright.profiler.interference import busy_core_seconds
from sizewright.profiler.measure import Timing, Trainer, measure

MOST_OTHER_CORES = 0.2


class QuietMeasure:
    """`measure`, which voids trials during which others used more than `MOST_OTHER_CORES`.

    What the host's cores were busy with while the trial only waited, less what its replicas, the engine and this
    process used.
    """

    def __init__(self, busy: Callable[[], float] | None = None) -> None:
        self._busy = busy or busy_core_seconds

    def __call__(self, trainer: Trainer, point: Point, timing: Timing) -> Trial:
        """As `measure` does. Raises TrialVoidError where others worked."""
        blocks: list[tuple[float, float]] = []

        def watched(seconds: float) -> None:
            began, before = time.monotonic(), self._busy() - _own()
            time.sleep(seconds)
            blocks.append((time.monotonic() - began, self._busy() - _own() - before))

        trial = measure(trainer, point, timing, sleep=watched)
        seconds, busy = (sum(part) for part in zip(*blocks[1:], strict=True))  # the first block only warms up
        other = busy / seconds - _used(trial)
        if other > MOST_OTHER_CORES:
            raise TrialVoidError(
                f"Other work on the host used more than {MOST_OTHER_CORES} cores.", "Measure when nothing else runs."
            )
        return trial


def _own() -> float:
    return sum(os.times()[:2])


def _used(trial: Trial) -> float:
    """Cores that the trial's replicas and its engine used."""
    replicas = trial.workers * (trial.worker_cpu_used or 0.0) + trial.ps * (trial.ps_cpu_used or 0.0)
    return replicas + (trial.uncharged_cpu_s or 0.0) / (trial.duration_s or 1.0)
