"""Running a plan to its end: launch, look now and then, stop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from sizewright.datasets.finished import FinishedJob, is_held
from sizewright.datasets.trials import now
from sizewright.errors import SizewrightError
from sizewright.executors.recorder import Recorder
from sizewright.executors.registry import unsupported
from sizewright.recommender.control import Tuner
from sizewright.recommender.decisions import Decision
from sizewright.spec import Allocation, Executor, Handle, Job, Metrics, Outcome, Plan

_LOG = logging.getLogger(__name__)

Clock = Callable[[], float]
Look = Callable[[Metrics | None], None]
"""What is done whenever a job is looked at: with None where it told nothing."""
_NEEDED = ("launch", "observe", "stop")


class RunProgress(NamedTuple):
    """How far a running job is."""

    samples: int
    samples_per_s: float
    workers: int
    ps: int
    samples_left: int | None = None
    """Still to be trained; None where its executor does not know."""
    paused: bool = False
    """Whether its loop makes no changes for now."""


@dataclass
class Running:
    """A job that runs, with the loop beside it, and what was seen of both last."""

    executor: Executor
    handle: Handle
    job: Job
    allocation: Allocation
    clock: Clock = time.monotonic
    tuner: Tuner | None = None
    decision: Decision | None = None
    listeners: list[Callable[[Decision], None]] = field(default_factory=list)

    def look(self, metrics: Metrics | None) -> None:
        """Another look at it."""
        if metrics and metrics.allocation:
            self.allocation = metrics.allocation

    def turn(self, tuner: Tuner, look: Metrics | None = None) -> None:
        """A turn of the loop, with the look that was just had, if any; whoever listens is told."""
        self.decision = tuner.turn(look)
        for listener in self.listeners:
            listener(self.decision)


Companion = Callable[[Running], Look]
"""Whatever else is told of a running job, each time that it is looked at."""


def run_plan(
    executor: Executor,
    plan: Plan,
    *,
    progress: Callable[[RunProgress], None] | None = None,
    record: Callable[[FinishedJob], None] | None = None,
    tune: Callable[[Handle, Allocation], Tuner] | None = None,
    decided: Callable[[Decision], None] = lambda _: None,
    companions: Sequence[Companion] = (),
    every_s: float = 0.5,
    clock: Clock = time.monotonic,
) -> Outcome:
    """Launch a plan and wait until all samples are trained; `progress` is called every `every_s` seconds.

    `tune` makes the control loop of the running job, which changes it where that pays; `decided` is told each turn,
    `companions` of each look. However it ended, `record` is called with what was seen of it.

    An interrupt (Ctrl-C) stops the job, whose outcome says so. A job that failed is an outcome too.
    Raises UnsupportedError for an executor that only renders, and any error that kept the job from training.
    """
    for capability in (*_NEEDED, *(["adjust"] if tune else [])):
        if not getattr(executor.capabilities, capability):
            raise unsupported(executor.name, capability)
    started_at = now()
    handle = executor.launch(plan)
    recorder = Recorder(plan, handle, clock, started_at)
    try:
        running = Running(executor, handle, plan.job, plan.target, clock, listeners=[decided])
        looks: list[Look] = [running.look, recorder.look, _limits_told(running)]
        if progress:
            looks.append(progress_of(running, progress))
        if tune:
            running.tuner = tune(handle, plan.target)
            looks.append(_turns(running, running.tuner))
        looks += [companion(running) for companion in companions]
        outcome = _until_ended(executor, handle, [forgiving(look) for look in looks], every_s)
    except BaseException:
        with suppress(SizewrightError):  # what ended it is what is told
            finished = recorder.finished(executor.stop(handle))
            if record:
                record(finished)
        raise
    finished = recorder.finished(outcome)
    if record:
        record(finished)
    return finished.outcome


def _until_ended(executor: Executor, handle: Handle, looks: Sequence[Look], every_s: float) -> Outcome:
    unseen = ""
    try:
        while not executor.wait(handle, every_s):
            metrics = None
            try:
                metrics, unseen = executor.observe(handle), ""
            except SizewrightError as error:  # `wait` says whether it has ended
                if error.message != unseen:  # said once, not twice a second
                    _LOG.warning("The job tells nothing, and trains on: %s", error)
                unseen = error.message
            for look in looks:
                look(metrics)
    except KeyboardInterrupt:
        return executor.stop(handle)
    except SizewrightError as error:
        if (outcome := executor.stop(handle)).status == "failed":
            return outcome if outcome.message else outcome.model_copy(update={"message": str(error)})
        raise
    return executor.stop(handle)


def _limits_told(running: Running) -> Look:
    """Says once that a host does not hold replicas to the cores of their allocation."""
    said = False

    def look(metrics: Metrics | None) -> None:
        nonlocal said
        if said or not metrics or not metrics.samples_trained or is_held(running.allocation, metrics.limited_by):
            return
        said = True
        _LOG.warning(
            "The replicas are held to %s and to no memory, since this user may not make control groups. Their speed is "
            "not that of %s, so no model learns it. Run as root, or: %s",
            "whole cores" if metrics.limited_by == "affinity" else "no number of cores",
            running.allocation.describe(),
            "systemd-run --user --scope -p Delegate=yes sizewright …",
        )

    return look


def progress_of(running: Running, progress: Callable[[RunProgress], None]) -> Look:
    """Tells how far it is."""
    meter = _Meter(running.clock)

    def look(metrics: Metrics | None) -> None:
        if metrics:
            progress(meter.read(metrics)._replace(paused=running.tuner is not None and running.tuner.paused))

    return look


def _turns(running: Running, tuner: Tuner) -> Look:
    """A turn of the control loop, whenever one is due."""
    due_s = running.clock()

    def look(metrics: Metrics | None) -> None:
        nonlocal due_s
        if running.clock() >= due_s:
            try:
                running.turn(tuner, metrics)
            finally:
                due_s = running.clock() + tuner.turn_s

    return look


def forgiving(look: Look) -> Look:
    """Whatever goes wrong in it, the job trains on."""
    said = ""

    def forgiven(metrics: Metrics | None) -> None:
        nonlocal said
        try:
            look(metrics)
        except Exception as error:
            if str(error) != said:  # said once, not at every look
                _LOG.warning("A turn was cut short, and the job trains on: %s", error)
            said = str(error)

    return forgiven


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
        return RunProgress(samples, rate, len(metrics.of("worker")), len(metrics.of("ps")), metrics.samples_left)
