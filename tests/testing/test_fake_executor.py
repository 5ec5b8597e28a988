from __future__ import annotations

import pytest

from sizewright.errors import (
    EngineDiedError,
    EngineError,
    ForbiddenError,
    InputError,
    ReplicaDiedError,
    SizewrightError,
    UnsupportedError,
)
from sizewright.runtime.run import RunProgress, run_plan
from sizewright.spec import Allocation, Capabilities, ChangeCost, Handle, Job, Metrics, Plan
from sizewright.testing import FakeExecutor, ManualClock

ONE = Allocation.of(1, 1, 1.0, 1.0, 100)
TWO = Allocation.of(2, 2, 1.0, 1.0, 100)
LAUNCH = Plan(id="p-1", kind="launch", job=Job(name="ctr"), target=ONE, reason="")
ADJUST = Plan(id="p-2", kind="adjust", job=Job(name="ctr"), current=ONE, target=TWO, reason="", cooldown_s=60)


def thousand_a_worker(allocation: Allocation) -> float:
    return 1000.0 * allocation.replicas("worker")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(50.0)


@pytest.fixture
def fake(clock: ManualClock) -> FakeExecutor:
    return FakeExecutor(clock=clock, throughput=thousand_a_worker, samples=100_000)


def samples(metrics: Metrics) -> list[int]:
    return [worker.samples for worker in metrics.of("worker")]


def handle_of(fake: FakeExecutor) -> Handle:
    return next(call.handle for call in fake.calls if call.handle)


def test_counters_grow_with_the_clock_at_the_rate(fake: FakeExecutor, clock: ManualClock) -> None:
    handle = fake.launch(LAUNCH)
    first = fake.observe(handle)
    clock.sleep(10.05)
    last = fake.observe(handle)
    (before,), (after,) = first.of("worker"), last.of("worker")
    assert (after.steps, after.samples) == (100, 10_000)  # whole steps of 0.1 s
    assert (after.samples - before.samples) / (after.last_step_at_s - 50.0) == pytest.approx(1000)
    assert after.data_s + after.pull_s + after.compute_s + after.push_s == pytest.approx(10.05)
    assert 0 < after.cpu_s <= 10.05
    (ps,) = last.of("ps")
    assert (ps.exchanges, ps.busy_s > 0, ps.memory_peak_bytes > 0) == (100, True, True)
    assert last.engine_cpu_s > first.engine_cpu_s
    assert fake.observe(handle) == last  # no time passed


def test_live_change_takes_its_cost_while_training_continues(fake: FakeExecutor, clock: ManualClock) -> None:
    fake.cost = ChangeCost(seconds=4, lower=3, upper=5)
    handle = fake.launch(LAUNCH)
    clock.sleep(6)
    fake.adjust(handle, ADJUST)
    assert clock() == 60
    assert samples(fake.observe(handle)) == [10_000, 0]  # the remaining worker keeps its counters
    clock.sleep(5)
    assert samples(fake.observe(handle)) == [15_000, 5_000]
    outcome = fake.stop(handle)
    assert (outcome.status, outcome.samples, outcome.duration_s) == ("stopped", 20_000, 15)
    assert [(change.at_s, change.seconds) for change in outcome.changes] == [(6, 4)]


def test_change_by_restart_costs_training_time(clock: ManualClock) -> None:
    able = Capabilities(launch=True, adjust=True, observe=True, stop=True)
    fake = FakeExecutor(clock=clock, throughput=thousand_a_worker, capabilities=able)
    fake.cost = ChangeCost(seconds=90, lower=30, upper=180)
    handle = fake.launch(LAUNCH)
    clock.sleep(6)
    fake.adjust(handle, ADJUST)
    assert samples(fake.observe(handle)) == [6_000, 0]


def test_hottest_ps_limits_all_until_rebalance(fake: FakeExecutor, clock: ManualClock) -> None:
    handle = fake.launch(LAUNCH.model_copy(update={"target": TWO}))
    fake.skew_lookups(handle, (0.75, 0.25))
    clock.sleep(3)
    first, second = fake.observe(handle).of("ps")
    assert first.lookups == 3 * second.lookups
    assert first.busy_s == pytest.approx(3 * second.busy_s)
    assert sum(samples(fake.observe(handle))) == 4000  # instead of 6000
    assert fake.observe(handle).of("worker")[0].wait_s == pytest.approx(1.0)
    fake.adjust(handle, ADJUST.model_copy(update={"current": TWO, "rebalance": True, "cooldown_s": 0.0}))
    before = fake.observe(handle)
    clock.sleep(3)
    after = fake.observe(handle)
    gained = [b.lookups - a.lookups for a, b in zip(before.of("ps"), after.of("ps"), strict=True)]
    assert gained[0] == pytest.approx(gained[1], abs=1)
    assert sum(samples(after)) - sum(samples(before)) == 6000
    assert [change.kind for change in fake.stop(handle).changes] == ["rebalance"]


@pytest.mark.parametrize("what", [{"migrate": ("ps-0",)}, {"rebalance": True}])
def test_change_beyond_the_capabilities_is_refused(what: dict[str, object]) -> None:
    able = Capabilities(launch=True, adjust=True, observe=True, stop=True)
    fake = FakeExecutor(capabilities=able)
    handle = fake.launch(LAUNCH)
    with pytest.raises(UnsupportedError, match=f"The fake executor cannot {next(iter(what))} jobs"):
        fake.adjust(handle, ADJUST.model_copy(update=what))


def test_cool_down_runs_by_the_clock(fake: FakeExecutor, clock: ManualClock) -> None:
    handle = fake.launch(LAUNCH)
    fake.adjust(handle, ADJUST)
    back = ADJUST.model_copy(update={"id": "p-3", "current": TWO, "target": ONE})
    with pytest.raises(InputError, match="cool-down of its last plan for another 60 s"):
        fake.adjust(handle, back)
    clock.sleep(60)
    fake.adjust(handle, back)
    assert len(samples(fake.observe(handle))) == 1


def test_job_ends_after_its_samples(fake: FakeExecutor, clock: ManualClock) -> None:
    handle = fake.launch(LAUNCH)
    assert not fake.wait(handle, 99)
    assert fake.wait(handle, 99)
    assert clock() == 150
    clock.sleep(1000)
    assert sum(samples(fake.observe(handle))) == 100_000
    outcome = fake.stop(handle)
    assert (outcome.status, outcome.samples, outcome.duration_s) == ("finished", 100_000, 100)


def test_calls_are_recorded_and_the_next_one_can_fail(fake: FakeExecutor) -> None:
    handle = fake.launch(LAUNCH)
    fake.fail_next("adjust", EngineError("no cores left."))
    with pytest.raises(EngineError, match="no cores left"):
        fake.adjust(handle, ADJUST)
    assert len(samples(fake.observe(handle))) == 1
    fake.adjust(handle, ADJUST)
    assert [call.method for call in fake.calls] == ["launch", "adjust", "observe", "adjust"]
    assert (fake.calls[1].handle, fake.calls[1].plan) == (handle, ADJUST)
    with pytest.raises(ValueError, match="no method 'adjsut'"):
        fake.fail_next("adjsut", EngineError(""))


def test_lost_replica_is_replaced(fake: FakeExecutor, clock: ManualClock) -> None:
    handle = fake.launch(LAUNCH)
    clock.sleep(5)
    fake.fail_replica(handle, "worker-0", cause="oom", samples_repeated=7)
    clock.sleep(1)
    metrics = fake.observe(handle)
    assert samples(metrics) == [1000]
    assert [replica.name for replica in metrics.replicas] == ["ps-0", "worker-1"]
    assert (metrics.samples_trained, metrics.samples_left) == (6000, 94_000)
    outcome = fake.stop(handle)
    (failure,) = outcome.failures
    assert (failure.at_s, failure.replica, failure.cause) == (5, "worker-0", "oom")
    assert (outcome.status, outcome.samples, outcome.samples_repeated) == ("stopped", 6000, 7)
    other = fake.launch(LAUNCH)
    with pytest.raises(ValueError, match=r"no replica 'ps-3'; there are ps-0, worker-0"):
        fake.fail_replica(other, "ps-3")


def test_unrecovered_replica_fails_the_job(fake: FakeExecutor) -> None:
    handle = fake.launch(LAUNCH)
    fake.fail_replica(handle, "ps-0", recovered_s=None)
    with pytest.raises(ReplicaDiedError, match="ps-0 failed: killed"):
        fake.observe(handle)
    assert fake.wait(handle, 1)
    assert fake.stop(handle).status == "failed"


def test_same_calls_give_the_same_answers() -> None:
    def answers() -> tuple[Handle, Metrics]:
        fake = FakeExecutor()
        handle = fake.launch(LAUNCH)
        fake.clock.sleep(3)
        fake.adjust(handle, ADJUST)
        return handle, fake.observe(handle)

    assert answers() == answers()


def test_plan_runs_to_its_end_with_progress(fake: FakeExecutor, clock: ManualClock) -> None:
    reports: list[RunProgress] = []
    outcome = run_plan(fake, LAUNCH, progress=reports.append, every_s=10, clock=clock)
    assert (outcome.status, outcome.samples) == ("finished", 100_000)
    assert [look.samples for look in reports] == list(range(10_000, 100_000, 10_000))
    assert reports[0].samples_per_s == 0  # one observation gives no rate: a resumed job starts with many samples
    assert all(look.samples_per_s == pytest.approx(1000) for look in reports[1:])
    assert {(look.workers, look.ps) for look in reports} == {(1, 1)}


def test_progress_continues_after_a_worker_restarts(fake: FakeExecutor, clock: ManualClock) -> None:
    counts: list[int] = []

    def look(now: RunProgress) -> None:
        counts.append(now.samples)
        if len(counts) == 2:
            fake.fail_replica(handle_of(fake), "worker-0")

    run_plan(fake, LAUNCH, progress=look, every_s=10, clock=clock)
    assert counts[:4] == [10_000, 20_000, 30_000, 40_000]


def test_interrupt_stops_the_job_and_returns_its_outcome(fake: FakeExecutor) -> None:
    def interrupt(_: RunProgress) -> None:
        raise KeyboardInterrupt

    assert run_plan(fake, LAUNCH, progress=interrupt).status == "stopped"
    assert fake.calls[-1].method == "stop"


def test_job_that_does_not_answer_for_a_while_trains_on(
    fake: FakeExecutor, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        fake.fail_next("observe", EngineError("The cluster does not answer."))
    assert run_plan(fake, LAUNCH, every_s=10, clock=clock).status == "finished"
    assert caplog.text.count("trains on: The cluster does not answer.") == 1


@pytest.mark.parametrize("kind", [EngineError, ForbiddenError])
def test_job_trains_on_while_its_platform_cannot_be_asked(
    fake: FakeExecutor, clock: ManualClock, caplog: pytest.LogCaptureFixture, kind: type[SizewrightError]
) -> None:
    for _ in range(3):
        fake.fail_next("wait", kind("The cluster does not answer."))
    assert run_plan(fake, LAUNCH, every_s=0.05, clock=clock).status == "finished"
    assert caplog.text.count("trains on: The cluster does not answer.") == 1


def test_run_that_gives_up_on_its_platform_does_not_stop_the_job(fake: FakeExecutor) -> None:
    class Hours:
        at_s = 0.0

        def __call__(self) -> float:
            self.at_s += 900.0
            return self.at_s

    for _ in range(99):
        fake.fail_next("wait", EngineError("The cluster does not answer."))
    with pytest.raises(EngineError, match=r"ctr-1 could not be observed for 1 hour, and was not stopped: The cluster"):
        run_plan(fake, LAUNCH, every_s=0.001, clock=Hours())
    assert "stop" not in [call.method for call in fake.calls]


def test_failed_run_returns_an_outcome_and_an_error_stops_it(fake: FakeExecutor) -> None:
    def lose(_: RunProgress) -> None:
        fake.fail_replica(handle_of(fake), "ps-0", recovered_s=None)

    assert run_plan(fake, LAUNCH, progress=lose).status == "failed"
    fake.fail_next("wait", EngineDiedError("Ray is gone."))
    with pytest.raises(EngineDiedError, match="Ray is gone"):
        run_plan(fake, LAUNCH, progress=lose)
    assert fake.calls[-1].method == "stop"
    can = "local, pytorchjob, ray"
    with pytest.raises(UnsupportedError, match=rf"fake executor cannot launch jobs\. Executors that can: .*{can}"):
        run_plan(FakeExecutor(capabilities=Capabilities(render=True)), LAUNCH)
