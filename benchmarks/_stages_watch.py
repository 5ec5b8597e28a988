"""How the loop watches: false alarms and slowed workers on step logs of real runs, and how long a decision takes."""

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
from sizewright.recommender.control.controller import Controller
from sizewright.recommender.control.scaler import AutoScaler
from sizewright.recommender.control.stragglers import StragglerDetector
from sizewright.recommender.control.windows import ReplicaWindow, Window
from sizewright.spec import Allocation, Job, Plan
from sizewright.testing import FakeExecutor

Steps = Mapping[str, Sequence[float]]
"""When the steps of each worker ended."""
WITHIN_STEPS = 20
_NOTHING = ReplicaWindow("", "worker", *([0] * (len(ReplicaWindow._fields) - 2)))
_WORKERS, _PS, _TURNS = 50, 20, choose(400, 400, 20)


class Episode(NamedTuple):
    """A time during which one worker was slowed."""

    name: str
    begin_s: float
    end_s: float


def false_alarms(steps: Steps, begin_s: float, end_s: float) -> tuple[int, int]:
    """Alarms and decisions, one a worker and window, over a healthy log; after an alarm it begins anew."""
    watch, decisions, alarms = StragglerDetector(), 0, 0
    for window in _windows(steps, begin_s, end_s):
        decisions += sum(replica.steps > 0 for replica in window.replicas)
        found = watch.add(window)
        alarms += len(found)
        if found:
            watch.forget()
    return alarms, decisions


def steps_until_found(steps: Steps, episode: Episode) -> int | None:
    """Steps that the slowed worker took until it was found; None where it was not, or another was."""
    watch, taken = StragglerDetector(), 0
    for window in _windows(steps, episode.begin_s, episode.end_s):
        taken += sum(replica.steps for replica in window.replicas if replica.name == episode.name)
        if found := watch.add(window):
            return taken if [slow.name for slow in found] == [episode.name] else None
    return None


def _windows(steps: Steps, begin_s: float, end_s: float) -> Iterator[Window]:
    """As long as a step is in the median. What a worker did in one are the steps that ended in it, perhaps none."""
    ends = {name: np.array(times) for name, times in steps.items()}
    long_s = float(np.median(np.concatenate([np.diff(times) for times in ends.values() if len(times) > 1])))
    edges = np.arange(begin_s, end_s, long_s)
    for low, high in itertools.pairwise(edges):
        replicas = []
        for name, times in ends.items():
            first, last = np.searchsorted(times, [low, high])
            took = float(times[last - 1] - times[first - 1]) if first and last > first else 0.0
            count = int(last - first) if took else 0
            replicas.append(_NOTHING._replace(name=name, seconds=long_s, steps=count, compute_s=took))
        yield Window(high, long_s, 0, 0, None, tuple(replicas))


def decisions() -> dict[str, float]:
    """Quantiles of the seconds of a turn, and the median of a fit's."""
    taken, fits = decision_seconds()
    return {
        "p99_s": float(np.quantile(taken, 0.99)), "median_s": float(np.median(taken)), "most_s": max(taken),
        "refit_s": float(np.median(fits)),
    }  # fmt: skip


class _Timed(ThreadPoolExecutor):
    """Where fits are made, with the seconds that each took."""

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
    """Of each turn of a loop over 50 workers and 20 PS, and of its fits, which are made in the background."""
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
    scaler = AutoScaler(job, foretold=sw.load_prior("shipped").curve(job))
    taken = []
    with _Timed() as pool:
        tuner = Controller(
            job, executor, handle, at, scaler, clock=executor.clock, now=lambda: datetime.now(timezone.utc), pool=pool
        )
        for _ in range(_TURNS):
            executor.clock.sleep(1.0)
            began = time.perf_counter()
            tuner.reconcile()
            taken.append(time.perf_counter() - began)
            time.sleep(0.1)  # fits go on beside it, as they do between two looks, which are a second apart at least
    return taken, pool.seconds
