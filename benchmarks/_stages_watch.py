"""Straggler detection on step logs of real runs, and the duration of a decision."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any, NamedTuple

import numpy as np

import sizewright as sw
from benchmarks._report import choose
from benchmarks._stages_data import SHAPE
from sizewright.models.factory import make_predictor
from sizewright.recommender.control.controller import Controller
from sizewright.recommender.control.scaler import AutoScaler
from sizewright.recommender.control.stragglers import StragglerDetector
from sizewright.recommender.control.windows import ReplicaWindow, Window
from sizewright.spec import Allocation, Job, Plan
from sizewright.testing import FakeExecutor

Steps = Mapping[str, Sequence[float]]
"""The times at which the steps of each worker ended."""
WITHIN_STEPS = 20
_NOTHING = ReplicaWindow("", "worker", *([0] * (len(ReplicaWindow._fields) - 2)))
_WORKERS, _PS, _PASSES = 50, 20, choose(400, 400, 20)


class Episode(NamedTuple):
    """A time during which one worker was slowed."""

    name: str
    begin_s: float
    end_s: float


def false_alarms(steps: Steps, begin_s: float, end_s: float) -> tuple[int, int]:
    """Return false alarms and decisions on a healthy log, one decision per worker and window.

    The detector starts again after an alarm.
    """
    detector, decisions, alarms = StragglerDetector(), 0, 0
    for window in _windows(steps, begin_s, end_s):
        decisions += sum(replica.steps > 0 for replica in window.replicas)
        stragglers = detector.add(window)
        alarms += len(stragglers)
        if stragglers:
            detector.forget()
    return alarms, decisions


def steps_until_found(steps: Steps, episode: Episode) -> int | None:
    """Return the steps of the slowed worker until it was detected, or None if it was not or another one was."""
    detector, steps_taken = StragglerDetector(), 0
    for window in _windows(steps, episode.begin_s, episode.end_s):
        steps_taken += sum(replica.steps for replica in window.replicas if replica.name == episode.name)
        if stragglers := detector.add(window):
            return steps_taken if [straggler.name for straggler in stragglers] == [episode.name] else None
    return None


def _windows(steps: Steps, begin_s: float, end_s: float) -> Iterator[Window]:
    """Yield windows as long as the median step. A window contains the steps that ended in it, which may be none."""
    ends = {name: np.array(times) for name, times in steps.items()}
    window_s = float(np.median(np.concatenate([np.diff(times) for times in ends.values() if len(times) > 1])))
    edges = np.arange(begin_s, end_s, window_s)
    for low, high in itertools.pairwise(edges):
        replicas = []
        for name, times in ends.items():
            first, last = np.searchsorted(times, [low, high])
            took = float(times[last - 1] - times[first - 1]) if first and last > first else 0.0
            count = int(last - first) if took else 0
            replicas.append(_NOTHING._replace(name=name, seconds=window_s, steps=count, compute_s=took))
        yield Window(high, window_s, 0, 0, None, tuple(replicas))


def decisions() -> dict[str, float]:
    """Return quantiles of the seconds of a pass of the loop, and the median seconds of a fit."""
    durations, fits = decision_seconds()
    return {
        "p99_s": float(np.quantile(durations, 0.99)), "median_s": float(np.median(durations)), "most_s": max(durations),
        "refit_s": float(np.median(fits)),
    }  # fmt: skip


class _Timed(ThreadPoolExecutor):
    """A pool for fits that records the seconds of each."""

    def __init__(self) -> None:
        super().__init__(1)
        self.seconds: list[float] = []

    def submit(self, work: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        def timed() -> Any:
            began = time.perf_counter()
            try:
                return work(*args, **named)
            finally:
                self.seconds.append(time.perf_counter() - began)

        return super().submit(timed)


def decision_seconds() -> tuple[list[float], list[float]]:
    """Return the seconds of each pass of a loop over 50 workers and 20 PS, and of its fits in the background."""
    job = Job.load(SHAPE)
    bounds = job.bounds.model_copy(
        update={
            "worker": job.bounds.worker.model_copy(update={"replicas": (1, 64), "cpu": (1.0, 4.0)}),
            "ps": job.bounds.ps.model_copy(update={"replicas": (1, 32), "cpu": (1.0, 4.0)}),
        }
    )
    training = job.training.model_copy(update={"samples": 10**11})
    job = job.model_copy(update={"bounds": bounds, "training": training, "objective": "balanced"})
    rng = np.random.default_rng(0)
    executor = FakeExecutor(throughput=lambda a: 3e3 * a.cores("worker") * float(rng.lognormal(0, 0.03)))
    at = Allocation.of(_WORKERS, _PS, 2.0, 2.0, 512)
    handle = executor.launch(Plan(id="p", kind="launch", job=job, target=at, reason=""))
    scaler = AutoScaler(job, predictor=make_predictor(sw.load_prior("shipped").curve(job)))
    durations = []
    with _Timed() as pool:
        controller = Controller(
            job, executor, handle, at, scaler, clock=executor.clock, now=lambda: datetime.now(timezone.utc), pool=pool
        )
        for _ in range(_PASSES):
            executor.clock.sleep(1.0)
            began = time.perf_counter()
            controller.reconcile()
            durations.append(time.perf_counter() - began)
            time.sleep(0.1)  # fits continue meanwhile, as they do between two observations
    return durations, pool.seconds
