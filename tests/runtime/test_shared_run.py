"""Jobs that share a cluster, over executors in memory whose samples/s are known."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import numpy as np
import pytest

from sizewright.cluster.problem.candidates import JobTable
from sizewright.cluster.shared_cluster import SharedCluster
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import EngineError, InputError
from sizewright.formatting import GIB, MIB
from sizewright.recommender.control.controller import Controller
from sizewright.recommender.control.scaler import AutoScaler
from sizewright.runtime.shared_run import LaunchedJob, SharedRun
from sizewright.spec import (
    Allocation,
    Bounds,
    Candidate,
    ChangeCost,
    Cluster,
    HostKind,
    Job,
    Plan,
    RoleBounds,
    Training,
)
from sizewright.testing import FakeExecutor, ManualClock

MEMORY = (512 * MIB, 4096 * MIB)
BOUNDS = Bounds(
    worker=RoleBounds(replicas=(1, 8), cpu=(0.5, 0.5), memory_bytes=MEMORY),
    ps=RoleBounds(replicas=(1, 1), cpu=(1.0, 1.0), memory_bytes=MEMORY),
)
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
TURN_S = 10.0


def rate(workers: int) -> float:
    return float(1000.0 * workers**0.8)


def at(workers: int) -> Allocation:
    return Allocation.of(workers, 1, 0.5, 1.0, 512, 1024 * MIB, 1024 * MIB)


def job_named(name: str, samples: int) -> Job:
    return Job(name=name, bounds=BOUNDS, training=Training(samples=samples), objective="time")


class Runs:
    """A cluster of some cores, its jobs, and the most cores that they had at once."""

    def __init__(self, cores: float, samples: dict[str, int], cost_s: float = 1.0) -> None:
        self.clock = ManualClock()
        self.jobs = {name: job_named(name, count) for name, count in samples.items()}
        cost = ChangeCost(seconds=cost_s, lower=cost_s / 2, upper=2 * cost_s)
        self.executors = {
            name: FakeExecutor(throughput=lambda a: rate(a.replicas("worker")), cost=cost) for name in samples
        }
        cluster = Cluster(hosts=(HostKind(kind="host", cpu=cores, memory_bytes=1024 * GIB),))
        self.run = SharedRun(SharedCluster(cluster), self.launch, self.clock)
        self.most_cores = 0.0

    def launch(self, name: str, allocation: Allocation) -> LaunchedJob:
        job, executor = self.jobs[name], self.executors[name]
        executor.clock.sleep(self.clock() - executor.clock())
        handle = executor.launch(Plan(id=name, kind="launch", job=job, target=allocation, reason=""))
        scaler = AutoScaler(job, trials(job))
        controller = Controller(job, executor, handle, allocation, scaler, clock=executor.clock, now=lambda: NOW)
        return LaunchedJob(executor, handle, controller)

    def submit(self, *names: str) -> None:
        for name in names:
            samples = float(self.jobs[name].samples or 0)
            candidates = tuple(Candidate(allocation=at(n), throughput=rate(n)) for n in (1, 2, 4, 8))
            self.run.submit(JobTable(name, candidates, samples, samples, arrived_s=self.clock()))

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.clock.sleep(TURN_S)
            for name, launched in self.run.running.items():
                executor = self.executors[name]
                executor.wait(launched.handle, max(self.clock() - executor.clock(), 0.0))
            self.run.step()
            held = [launched.controller.allocation.cores() for launched in self.run.running.values()]
            self.most_cores = max(self.most_cores, sum(held))

    def workers(self) -> dict[str, int]:
        return {name: each.controller.allocation.replicas("worker") for name, each in self.run.running.items()}


def trials(job: Job) -> list[Trial]:
    rng = np.random.default_rng(0)
    fields: dict[str, Any] = {"worker_cpu": 0.5, "ps": 1, "ps_cpu": 1.0, "batch_size": 512, "job_hash": job.hash}
    return [
        Trial(workers=n, throughput=rate(n) * float(np.exp(0.01 * rng.standard_normal())), **fields)
        for n in (1, 2, 4, 6, 8)
    ]


def test_an_end_frees_cores_for_the_others() -> None:
    runs = Runs(8.0, {"short": 300_000, "long": 10_000_000})
    runs.submit("short", "long")
    runs.turns(2)
    shared = runs.workers()
    assert set(shared) == {"short", "long"}
    runs.turns(30)
    assert runs.run.outcomes["short"].status == "finished"
    assert runs.workers()["long"] == 8 > shared["long"]
    assert runs.most_cores <= 8.0


def test_an_arrival_is_launched_when_a_running_job_has_given_back() -> None:
    runs = Runs(5.0, {"first": 10_000_000, "second": 1_000_000})
    runs.submit("first")
    runs.turns(3)
    assert runs.workers() == {"first": 8}
    runs.submit("second")
    runs.turns(3)
    assert set(runs.workers()) == {"first", "second"}
    assert runs.most_cores <= 5.0


def test_a_job_for_which_there_is_no_room_waits() -> None:
    runs = Runs(1.6, {"first": 300_000, "second": 300_000})
    runs.submit("first", "second")
    runs.turns(3)
    assert len(runs.run.running) == len(runs.run.waiting) == 1
    runs.turns(100)
    assert {name: outcome.status for name, outcome in runs.run.outcomes.items()} == {
        "first": "finished",
        "second": "finished",
    }


def test_a_job_that_cannot_be_launched_fails_and_the_others_run() -> None:
    runs = Runs(8.0, {"broken": 300_000, "sound": 300_000})
    runs.executors["broken"].fail_next("launch", EngineError("The image is missing.", "Push it."))
    runs.submit("broken", "sound")
    runs.turns(100)
    assert runs.run.outcomes["broken"].message == "The image is missing. Push it."
    assert runs.run.outcomes["sound"].status == "finished"


def test_a_change_that_fails_keeps_the_cores_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(5.0, {"first": 10_000_000, "second": 1_000_000})
    runs.submit("first")
    runs.turns(3)
    runs.executors["first"].fail_next("adjust", EngineError("It hangs.", "Wait."))
    runs.submit("second")
    runs.turns(1)
    assert runs.workers() == {"first": 8}
    runs.turns(6)
    assert set(runs.workers()) == {"first", "second"}
    assert runs.most_cores <= 5.0


def test_stopping_ends_every_job_that_runs() -> None:
    runs = Runs(8.0, {"first": 10_000_000, "second": 10_000_000})
    runs.submit("first", "second")
    runs.turns(2)
    runs.run.stop()
    assert {outcome.status for outcome in runs.run.outcomes.values()} == {"stopped"}
    assert not runs.run.running


def test_two_jobs_of_one_name_are_refused() -> None:
    runs = Runs(8.0, {"first": 300_000})
    runs.submit("first")
    with pytest.raises(InputError, match="There is a job named first already"):
        runs.submit("first")
