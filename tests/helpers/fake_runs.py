"""Runs of the fake executor, also in a background thread that stands for another process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

from sizewright.datasets.trials.trial import Trial
from sizewright.recommender.control.controller import Controller
from sizewright.recommender.control.scaler import AutoScaler
from sizewright.runtime.control_socket import ControlSocket
from sizewright.runtime.metrics_log import MetricsLog
from sizewright.runtime.run import Observer, run_plan
from sizewright.spec import Allocation, Bounds, Handle, Job, Outcome, Plan, RoleBounds, Training
from sizewright.testing import FakeExecutor

BOUNDS = Bounds(worker=RoleBounds(replicas=(1, 8), cpu=(1.0, 1.0)), ps=RoleBounds(replicas=(1, 4), cpu=(1.0, 1.0)))
JOB = Job(name="ctr", bounds=BOUNDS, training=Training(samples=1_000_000), objective="time")
ONE = Allocation.of(1, 1, 1.0, 1.0, 512)
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def rate(allocation: Allocation) -> float:
    return 1000.0 * min(allocation.replicas("worker"), 3 * allocation.replicas("ps"))


def trials() -> list[Trial]:
    columns = {"worker_cpu": 1.0, "ps_cpu": 1.0, "batch_size": 512, "job_hash": JOB.hash}
    sizes = [(1, 1), (2, 1), (4, 1), (8, 1), (4, 2), (8, 4), (6, 3), (1, 4)]
    return [Trial(workers=w, ps=p, throughput=rate(Allocation.of(w, p, 1, 1, 512)), **columns) for w, p in sizes]


def controller_of(fake: FakeExecutor) -> Callable[[Handle, Allocation], Controller]:
    def now() -> datetime:
        return START + timedelta(seconds=fake.clock())

    return lambda handle, at: Controller(JOB, fake, handle, at, AutoScaler(JOB, trials()), clock=fake.clock, now=now)


def run_with(observers: Sequence[Observer], *, tuned: bool = False) -> Outcome:
    """Run a tenth of the samples of the job to the end."""
    fake = FakeExecutor(throughput=rate, samples=100_000)
    plan = Plan(id="p", kind="launch", job=JOB, target=ONE, reason="")
    tune = controller_of(fake) if tuned else None
    return run_plan(fake, plan, tune=tune, observers=observers, every_s=1, clock=fake.clock)


class PausedClock:
    """A clock that stands still until `step_s` is set; `sleep` advances it by that step."""

    def __init__(self) -> None:
        self.at_s = 0.0
        self.step_s = 0.0
        """Seconds by which each sleep advances the clock."""

    def __call__(self) -> float:
        return self.at_s

    def sleep(self, seconds: float) -> None:
        time.sleep(0.01)
        self.at_s += self.step_s


@contextmanager
def running_job(*, tuned: bool = False, observers: Sequence[Observer] = ()) -> Iterator[FakeExecutor]:
    """Start a run that others can reach; leaving the context lets it finish."""
    clock = PausedClock()
    fake = FakeExecutor(throughput=rate, clock=clock)
    plan = Plan(id="p", kind="launch", job=JOB, target=ONE, reason="")
    started, outcomes = threading.Event(), list[Outcome]()

    def run() -> None:
        with ControlSocket() as control:
            all_observers = [control.observer, *observers, lambda _: lambda _: started.set()]
            tune = controller_of(fake) if tuned else None
            outcomes.append(run_plan(fake, plan, tune=tune, observers=all_observers, every_s=1, clock=clock))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert started.wait(30)
        yield fake
    finally:
        clock.step_s = 10_000.0
        thread.join(60)
    assert [outcome.samples for outcome in outcomes] == [1_000_000]


def recorded_in(folder: Path) -> Path:
    """Record the metrics of a run, as `run --metrics` does, and return the file."""
    log = MetricsLog(folder / "m.jsonl")
    run_with([log.observer])
    return log.path
