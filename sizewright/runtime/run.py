"""Run a plan to its end: launch, observe at intervals, stop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from sizewright.datasets.runs.finished_job import FinishedJob, is_cpu_limited
from sizewright.datasets.trials.trial import now
from sizewright.errors import EngineDiedError, EngineError, ForbiddenError, SizewrightError
from sizewright.executors.registry import unsupported
from sizewright.formatting import format_count
from sizewright.recommender.control.controller import Controller
from sizewright.recommender.control.decisions import Decision
from sizewright.runtime.recorder import Recorder
from sizewright.spec import Allocation, Executor, Handle, Job, Metrics, Outcome, Plan

_LOG = logging.getLogger(__name__)

Clock = Callable[[], float]
MetricsCallback = Callable[[Metrics | None], None]
"""A callback for each observation of a job; it receives None where the job could not be observed."""
_REQUIRED = ("launch", "observe", "stop")
_MAX_UNANSWERED_S = 3600.0
"""A platform that does not answer for this long is given up; the job trains on."""


class RunProgress(NamedTuple):
    """The progress of a running job."""

    samples: int
    samples_per_s: float
    workers: int
    ps: int
    samples_left: int | None = None
    """Samples still to be trained; None where the executor does not know."""
    paused: bool = False
    """True if the control loop is paused."""


@dataclass
class Running:
    """A running job with its control loop, and the latest allocation and decision."""

    executor: Executor
    handle: Handle
    job: Job
    allocation: Allocation
    clock: Clock = time.monotonic
    controller: Controller | None = None
    decision: Decision | None = None
    listeners: list[Callable[[Decision], None]] = field(default_factory=list)

    def on_metrics(self, metrics: Metrics | None) -> None:
        """Take in an observation."""
        if metrics and metrics.allocation:
            self.allocation = metrics.allocation

    def turn(self, controller: Controller, metrics: Metrics | None = None) -> None:
        """Let the control loop take a turn, with an observation that was just made, if any, and call the listeners."""
        self.decision = controller.reconcile(metrics)
        for listener in self.listeners:
            listener(self.decision)


Observer = Callable[[Running], MetricsCallback]
"""An observer of a running job: it is given the job, and returns what is called with each observation."""


def run_plan(
    executor: Executor,
    plan: Plan,
    *,
    progress: Callable[[RunProgress], None] | None = None,
    record: Callable[[FinishedJob], None] | None = None,
    tune: Callable[[Handle, Allocation], Controller] | None = None,
    on_decision: Callable[[Decision], None] = lambda _: None,
    observers: Sequence[Observer] = (),
    every_s: float = 0.5,
    clock: Clock = time.monotonic,
) -> Outcome:
    """Launch a plan, wait until all samples are trained, and return the outcome.

    The job is observed every `every_s` seconds: `progress` and what `observers` return are called each time. `tune`
    makes the control loop of the running job, which changes it where that pays; `on_decision` is called with each
    decision. `record` is called with the finished run, however it ended. `clock` counts seconds.

    An interrupt (Ctrl-C) stops the job, and the outcome says so. A failed job is an outcome, too.

    Raises UnsupportedError for an executor that lacks a needed capability, any error that kept the job from training,
    and EngineError if the platform does not answer for an hour: the job is then neither stopped nor recorded.
    """
    for capability in (*_REQUIRED, *(["adjust"] if tune else [])):
        if not getattr(executor.capabilities, capability):
            raise unsupported(executor.name, capability)
    started_at = now()
    handle = executor.launch(plan)
    recorder = Recorder(plan, handle, clock, started_at)

    def finish(outcome: Outcome) -> Outcome:
        finished = recorder.finished(outcome)
        if record:
            record(finished)
        return finished.outcome

    try:
        running = Running(executor, handle, plan.job, plan.target, clock, listeners=[on_decision])
        callbacks: list[MetricsCallback] = [running.on_metrics, recorder.on_metrics, _limits_warning(running)]
        if progress:
            callbacks.append(progress_of(running, progress))
        if tune:
            running.controller = tune(handle, plan.target)
            callbacks.append(_turns(running, running.controller))
        callbacks += [observer(running) for observer in observers]
        outcome = _observe_until_ended(running, [log_errors(callback) for callback in callbacks], every_s)
    except _UnansweredError:
        raise
    except BaseException:
        with suppress(SizewrightError):  # the first error is the one to raise
            finish(executor.stop(handle))
        raise
    return finish(outcome)


class _UnansweredError(EngineError):
    """A platform did not answer for so long that its job is not observed any more."""


class _ObservationErrors:
    """Warn of a job that cannot be observed, once for each message, and give up after `_MAX_UNANSWERED_S`."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._message = ""
        self._unanswered_since_s: float | None = None

    def add(self, error: SizewrightError) -> None:
        """Warn of an error."""
        if error.message != self._message:
            _LOG.warning("The job cannot be observed; it trains on: %s", error)
        self._message = error.message

    def add_unanswered(self, error: SizewrightError) -> None:
        """Warn of a platform that did not say whether the job has ended. Raises _UnansweredError after too long."""
        self.add(error)
        now_s = self._running.clock()
        if self._unanswered_since_s is None:
            self._unanswered_since_s = now_s
        if now_s - self._unanswered_since_s > _MAX_UNANSWERED_S:
            hours = format_count(_MAX_UNANSWERED_S / 3600, "hour")
            raise _UnansweredError(
                f"Job {self._running.handle.id} could not be observed for {hours}, and was not stopped: "
                f"{error.message.rstrip('.')}.",
                "Run the same plan again when the platform answers: a job that still runs is not launched again.",
            )

    def platform_answered(self) -> None:
        """Note that the platform said whether the job has ended."""
        self._unanswered_since_s = None

    def forget(self) -> None:
        """Warn again at the next error: the job was observed."""
        self._message = ""


def _observe_until_ended(running: Running, callbacks: Sequence[MetricsCallback], every_s: float) -> Outcome:
    executor, handle = running.executor, running.handle
    try:
        _call_until_ended(running, callbacks, every_s)
    except KeyboardInterrupt:
        return executor.stop(handle)
    except _UnansweredError:
        raise
    except SizewrightError as error:
        outcome = executor.stop(handle)
        if outcome.status != "failed":
            raise
        return outcome if outcome.message else outcome.model_copy(update={"message": str(error)})
    return executor.stop(handle)


def _call_until_ended(running: Running, callbacks: Sequence[MetricsCallback], every_s: float) -> None:
    """Call the callbacks with each observation until the job has ended.

    A platform that does not answer says nothing about the job, which is waited for.
    """
    executor, handle = running.executor, running.handle
    errors = _ObservationErrors(running)
    while True:
        metrics = None
        try:
            if executor.wait(handle, every_s):
                return
            errors.platform_answered()
        except EngineDiedError:
            raise
        except (EngineError, ForbiddenError) as error:
            errors.add_unanswered(error)
            time.sleep(every_s)  # the wait may have failed at once
        else:
            try:
                metrics = executor.observe(handle)
                errors.forget()
            except SizewrightError as error:  # `wait` says whether the job has ended
                errors.add(error)
        for callback in callbacks:
            callback(metrics)


def _limits_warning(running: Running) -> MetricsCallback:
    """Warn once where the host does not limit the replicas to the cores of their allocation."""
    warned = False

    def on_metrics(metrics: Metrics | None) -> None:
        nonlocal warned
        if warned or not metrics or not metrics.samples_trained:
            return
        if is_cpu_limited(running.allocation, metrics.limited_by):
            return
        warned = True
        _LOG.warning(
            "This user may not create control groups: the memory of the replicas is not limited, and their CPU is %s. "
            "Their speed is not that of %s, so no model is fitted to it. Run as root, or: %s",
            "limited to whole cores" if metrics.limited_by == "affinity" else "not limited",
            running.allocation.describe(),
            "systemd-run --user --scope -p Delegate=yes sizewright …",
        )

    return on_metrics


def progress_of(running: Running, progress: Callable[[RunProgress], None]) -> MetricsCallback:
    """Return a callback that passes the progress of the job, with the rate since the last observation."""
    last: tuple[float, int] | None = None

    def on_metrics(metrics: Metrics | None) -> None:
        nonlocal last
        if not metrics:
            return
        now_s, samples = running.clock(), metrics.samples_trained
        last_s, last_samples = last or (now_s, samples)
        last = now_s, samples
        progress(
            RunProgress(
                samples=samples,
                samples_per_s=(samples - last_samples) / (now_s - last_s) if now_s > last_s else 0.0,
                workers=len(metrics.of("worker")),
                ps=len(metrics.of("ps")),
                samples_left=metrics.samples_left,
                paused=running.controller is not None and running.controller.paused,
            )
        )

    return on_metrics


def _turns(running: Running, controller: Controller) -> MetricsCallback:
    """Return a callback that lets the control loop take a turn whenever one is due."""
    due_s = running.clock()

    def on_metrics(metrics: Metrics | None) -> None:
        nonlocal due_s
        if running.clock() >= due_s:
            try:
                running.turn(controller, metrics)
            finally:
                due_s = running.clock() + controller.turn_s

    return on_metrics


def log_errors(callback: MetricsCallback) -> MetricsCallback:
    """Return the callback with its errors logged instead of raised, so that the job trains on."""
    last_error = ""

    def without_errors(metrics: Metrics | None) -> None:
        nonlocal last_error
        try:
            callback(metrics)
        except Exception as error:
            if str(error) != last_error:  # warn once, not at every observation
                _LOG.warning("A turn failed, and the job trains on: %s", error)
            last_error = str(error)

    return without_errors
