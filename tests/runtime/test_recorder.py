"""The recorder keeps one record of each run of the fake executor."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from sizewright.datasets.runs.finished_job import FinishedJob
from sizewright.errors import ReplicaDiedError
from sizewright.runtime.recorder import Recorder
from sizewright.runtime.run import run_plan
from sizewright.spec import Allocation, Estimate, Handle, Job, Metrics, Outcome, Plan, ReplicaMetrics
from sizewright.testing import FakeExecutor, ManualClock

ONE, TWO = Allocation.of(1, 1, 1.0, 1.0, 100), Allocation.of(2, 2, 1.0, 1.0, 100)
EXPECTED = Estimate(value=900.0, lower=800.0, upper=1000.0)
LAUNCH = Plan(
    id="p-1", kind="launch", job=Job(name="ctr"), target=ONE, reason="", expected=EXPECTED, expected_by="prior"
)


def record(fake: FakeExecutor, **options: object) -> tuple[Outcome, FinishedJob]:
    records: list[FinishedJob] = []
    outcome = run_plan(fake, LAUNCH, record=records.append, every_s=10, clock=fake.clock, **options)  # type: ignore[arg-type]
    (run,) = records
    return outcome, run


def test_run_is_recorded_with_throughput_and_prediction() -> None:
    fake = FakeExecutor(samples=100_000, throughput=lambda a: 500.0 * a.replicas("worker"))
    outcome, run = record(fake)
    assert run.outcome == outcome
    assert (run.name, run.key, run.executor, run.source) == ("ctr", LAUNCH.job.hash, "fake", "run")
    assert run.throughput == pytest.approx(500.0, rel=0.01)
    assert [segment.allocation for segment in run.stretches] == [ONE]
    assert (run.expected, run.expected_by) == (EXPECTED, "prior")
    assert run.worker.memory_peak_bytes
    assert run.worker.cpu_used is not None


def test_each_allocation_has_its_own_segment_without_change_times() -> None:
    clock = ManualClock()
    fake = FakeExecutor(clock=clock, samples=10**9, throughput=lambda a: 500.0 * a.replicas("worker"))
    handle = fake.launch(LAUNCH)
    recorder = Recorder(LAUNCH, handle, clock, run_started())
    for allocation in (ONE, TWO):
        for _ in range(5):
            clock.sleep(10)
            recorder.on_metrics(fake.observe(handle))
        if allocation == ONE:
            fake.adjust(handle, Plan(id="p-2", kind="adjust", job=LAUNCH.job, current=ONE, target=TWO, reason=""))
    run = recorder.finished(fake.stop(handle))
    assert [segment.allocation for segment in run.stretches] == [ONE, TWO]
    assert [segment.throughput for segment in run.stretches] == pytest.approx([500.0, 1000.0], rel=0.01)
    assert run.stretches[0].at_s + run.stretches[0].duration_s <= run.stretches[1].at_s


def test_run_without_observed_samples_has_no_throughput() -> None:
    fake = FakeExecutor(samples=10, throughput=lambda a: 500.0)
    _, run = record(fake)
    assert run.throughput is None
    assert len(run.stretches) == 1


def test_interrupted_and_failed_runs_are_recorded() -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    fake = FakeExecutor(samples=10**9)
    assert record(fake, progress=interrupt)[1].outcome.status == "stopped"

    fake = FakeExecutor(samples=10**9)

    def lose(_: object) -> None:
        (handle,) = [call.handle for call in fake.calls if call.method == "observe"][-1:]
        assert handle is not None
        fake.fail_replica(handle, "ps-0", cause="oom", recovered_s=None)
        raise ReplicaDiedError("ps-0 died.")

    outcome, run = record(fake, progress=lose)
    assert outcome.status == "failed"
    assert run.ran_out_of_memory


def run_started() -> object:
    from sizewright.datasets.trials.trial import now

    return now()


def test_restarted_replica_is_counted_from_its_restart() -> None:
    clock = ManualClock()
    recorder = Recorder(LAUNCH, Handle(executor="fake", id="x", job="ctr"), clock, datetime.now(timezone.utc))

    def worker(at_s: float, cpu_s: float) -> Metrics:
        replica = ReplicaMetrics(role="worker", index=0, at_s=at_s, cpu_s=cpu_s, throttled_s=0, memory_peak_bytes=1)
        return Metrics(replicas=(replica,))

    for at_s, cpu_s in ((0, 0), (100, 50), (1, 0.2), (11, 5.2)):
        recorder.on_metrics(worker(at_s, cpu_s))
    assert recorder.finished(Outcome(status="finished")).worker.cpu_used == pytest.approx(0.5)


def test_run_ended_by_an_error_is_recorded() -> None:
    class Broken(FakeExecutor):
        def observe(self, handle: Handle) -> Metrics:
            raise RuntimeError("who knows")

    records: list[FinishedJob] = []
    fake = Broken(samples=10**9)
    with pytest.raises(RuntimeError, match="who knows"):
        run_plan(fake, LAUNCH, record=records.append, every_s=10, clock=fake.clock)
    assert [run.outcome.status for run in records] == ["stopped"]
