"""Running a plan to its end: launch, look now and then, stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from sizewright.datasets.finished import FinishedJob
from sizewright.datasets.trials import now
from sizewright.errors import SizewrightError
from sizewright.executors.recorder import Recorder
from sizewright.executors.registry import unsupported
from sizewright.spec import Executor, Handle, Metrics, Outcome, Plan

Clock = Callable[[], float]
_NEEDED = ("launch", "observe", "stop")


class RunProgress(NamedTuple):
    """How far a running job is."""

    samples: int
    samples_per_s: float
    workers: int
    ps: int


def run_plan(
    executor: Executor,
    plan: Plan,
    *,
    progress: Callable[[RunProgress], None] | None = None,
    record: Callable[[FinishedJob], None] | None = None,
    every_s: float = 0.5,
    clock: Clock = time.monotonic,
) -> Outcome:
    """Launch a plan and wait until all samples are trained; `progress` is called every `every_s` seconds.

    However it ended, `record` is called with what was seen of it.

    An interrupt (Ctrl-C) stops the job, whose outcome says so. A job that failed is an outcome too.
    Raises UnsupportedError for an executor that only renders, and any error that kept the job from training.
    """
    for capability in _NEEDED:
        if not getattr(executor.capabilities, capability):
            raise unsupported(executor.name, capability)
    started_at = now()
    handle = executor.launch(plan)
    recorder = Recorder(plan, handle, clock, started_at)
    try:
        outcome = _until_ended(executor, handle, recorder, progress, every_s, clock)
    except BaseException:
        if record:
            with suppress(SizewrightError):  # what ended it is what is told
                record(recorder.finished(executor.stop(handle)))
        raise
    if record:
        record(recorder.finished(outcome))
    return outcome


def _until_ended(
    executor: Executor,
    handle: Handle,
    recorder: Recorder,
    progress: Callable[[RunProgress], None] | None,
    every_s: float,
    clock: Clock,
) -> Outcome:
    try:
        meter = _Meter(clock)
        while not executor.wait(handle, every_s):
            metrics = executor.observe(handle)
            recorder.look(metrics)
            if progress:
                progress(meter.read(metrics))
    except KeyboardInterrupt:
        return executor.stop(handle)
    except SizewrightError as error:
        if (outcome := executor.stop(handle)).status == "failed":
            return outcome if outcome.message else outcome.model_copy(update={"message": str(error)})
        raise
    except BaseException:
        executor.stop(handle)
        raise
    return executor.stop(handle)


class _Meter:
    """Takes the rate between two looks; the first has none."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: tuple[float, int] | None = None

    def read(self, metrics: Metrics) -> RunProgress:
        now, samples = self._clock(), metrics.samples_trained
        at, before = self._last or (now, samples)
        self._last = now, samples
        rate = (samples - before) / (now - at) if now > at else 0.0
        return RunProgress(samples, rate, len(metrics.of("worker")), len(metrics.of("ps")))
