"""The control loop over an executor in memory, whose samples/s are known."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sizewright.datasets.trials.trial import Trial
from sizewright.errors import EngineError, InputError, StoreError
from sizewright.formatting import MIB
from sizewright.recommender.control.action import Action
from sizewright.recommender.control.auto_scale import Scaling
from sizewright.recommender.control.controller import STEPS, Controller, CoolDown
from sizewright.recommender.control.decisions import Decision, DecisionLog
from sizewright.recommender.control.scaler import AutoScaler
from sizewright.spec import Allocation, Bounds, Job, Plan, RoleBounds, Training
from sizewright.spec.reason import Reason
from sizewright.spec.wording import sentence, sentences
from sizewright.testing import FakeExecutor, ManualClock

MEMORY = (512 * MIB, 4096 * MIB)
BOUNDS = Bounds(
    worker=RoleBounds(replicas=(1, 8), cpu=(0.5, 0.5), memory_bytes=MEMORY),
    ps=RoleBounds(replicas=(1, 4), cpu=(0.3, 0.3), memory_bytes=MEMORY),
)
SAMPLES = 10**7
JOB = Job(name="ctr", bounds=BOUNDS, training=Training(samples=SAMPLES), objective="time")
GROWS = Reason.of("ps_memory_enough", ps=4, memory_bytes=2048 * MIB)
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def rate(workers: int, ps: int) -> float:
    """Each PS serves three workers."""
    return float(1000.0 * (workers**-4.0 + (3.0 * ps) ** -4.0) ** -0.25)


def throughput(allocation: Allocation) -> float:
    return rate(allocation.replicas("worker"), allocation.replicas("ps"))


def trials(wrong: float = 1.0) -> list[Trial]:
    rng = np.random.default_rng(0)
    fields: dict[str, Any] = {"worker_cpu": 0.5, "ps_cpu": 0.3, "batch_size": 512, "job_hash": JOB.hash}
    counts = [(1, 1), (2, 1), (4, 1), (8, 1), (4, 2), (8, 4), (6, 3), (1, 4)]
    return [
        Trial(workers=w, ps=p, throughput=wrong * rate(w, p) * float(np.exp(0.02 * rng.standard_normal())), **fields)
        for w, p in counts
    ]


def at(workers: int, ps: int) -> Allocation:
    return Allocation.of(workers, ps, 0.5, 0.3, 512, 1024 * MIB, 1024 * MIB)


class Running:
    """A running job and its control loop."""

    def __init__(self, start: Allocation, known: list[Trial] | None = None, **options: Any) -> None:
        cooldown_s = options.pop("cooldown_s", 20.0)
        scaling = Scaling(cooldown_s=cooldown_s, warm_up_s=options.pop("warm_up_s", cooldown_s))
        self.fake = FakeExecutor(throughput=throughput)
        plan = Plan(id="p", kind="launch", job=JOB, target=start, reason="")
        self.handle = self.fake.launch(plan)
        self.options = options
        self.known = trials() if known is None else known
        self.scaling = scaling
        self.controller = self.start_loop(options.pop("claimed", start))

    def start_loop(self, allocation: Allocation) -> Controller:
        def now() -> datetime:
            return START + timedelta(seconds=self.fake.clock())

        scaler = AutoScaler(JOB, self.known, scaling=self.scaling)
        return Controller(
            JOB, self.fake, self.handle, allocation, scaler, clock=self.fake.clock, now=now, **self.options
        )

    def turns(self, count: int) -> list[Decision]:
        decisions = []
        for _ in range(count):
            self.fake.clock.sleep(5.0)
            decisions.append(self.controller.reconcile())
        return decisions

    @property
    def adjusted(self) -> list[Plan]:
        return [call.plan for call in self.fake.calls if call.method == "adjust" and call.plan]


def test_undersized_job_is_near_the_best_after_at_most_three_changes() -> None:
    running = Running(at(1, 1))
    decisions = running.turns(60)
    assert throughput(running.controller.allocation) > 0.95 * rate(8, 4)
    assert 1 <= len(running.adjusted) <= 3
    assert [each.applied for each in decisions if each.kind == "adjust"] == [True] * len(running.adjusted)
    assert {each.kind for each in decisions[-20:]} == {"keep"}


def test_well_sized_job_is_not_changed() -> None:
    running = Running(at(8, 4))
    decisions = running.turns(60)
    assert running.adjusted == []
    assert all(each.kind == "keep" for each in decisions[1:])
    assert decisions[-1].reason.startswith("The allocation is kept: ")
    assert decisions[-1].throughput == pytest.approx(rate(8, 4), rel=0.01)


def test_first_turn_only_observes() -> None:
    first, second = Running(at(1, 1)).turns(2)
    assert (first.kind, "first observation" in first.reason) == ("blind", True)
    assert second.kind == "keep"
    assert second.samples_trained > 0


def test_nothing_changes_during_the_cool_down() -> None:
    running = Running(at(1, 1), cooldown_s=100.0)
    decisions = running.turns(19)
    assert running.adjusted == []
    assert any("The cool-down lasts" in each.reason for each in decisions)
    running.turns(4)
    assert len(running.adjusted) == 1
    running.turns(15)
    assert len(running.adjusted) == 1


def test_nothing_changes_during_the_warm_up() -> None:
    running = Running(at(1, 1), cooldown_s=500.0, warm_up_s=50.0)
    running.turns(9)
    assert running.adjusted == []
    running.turns(3)
    assert len(running.adjusted) == 1


def test_wrong_prior_trials_are_corrected_by_the_run() -> None:
    """Trials of another host claim half; only ratios to what is seen count."""
    running = Running(at(1, 1), known=trials(wrong=0.5))
    running.turns(60)
    assert throughput(running.controller.allocation) > 0.95 * rate(8, 4)


def test_unobservable_job_is_skipped_until_it_answers() -> None:
    running = Running(at(1, 1))
    running.turns(1)
    for _ in range(3):
        running.fake.fail_next("observe", EngineError("The cluster does not answer."))
    decisions = running.turns(3)
    assert {each.kind for each in decisions} == {"blind"}
    assert "The cluster does not answer" in decisions[0].reason
    running.turns(60)
    assert throughput(running.controller.allocation) > 0.95 * rate(8, 4)


def test_refused_plan_is_recorded_and_retried_after_the_cool_down() -> None:
    running = Running(at(1, 1))
    for _ in range(2):
        running.fake.fail_next("adjust", InputError("No room.", "Wait."))
    decisions = running.turns(40)
    refused = [each for each in decisions if each.applied is False]
    assert [each.error for each in refused] == ["No room."] * 2
    assert (refused[1].at - refused[0].at).total_seconds() >= 20
    assert refused[0].allocation == at(1, 1)
    assert throughput(running.controller.allocation) > 0.95 * rate(8, 4)  # the third was taken


def test_failure_without_a_message_is_not_taken_for_a_change() -> None:
    running = Running(at(1, 1))
    running.fake.fail_next("adjust", EngineError(""))
    (failed,) = [each for each in running.turns(40) if each.applied is False]
    assert failed.allocation == at(1, 1)


def test_refused_stabilization_is_retried_after_the_cool_down(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running(at(8, 4))
    larger = Allocation.of(8, 4, 0.5, 0.3, 512, 1024 * MIB, 2048 * MIB)
    monkeypatch.setattr(running.controller._stabilizer, "_enlarge_ps", lambda *_: Action((GROWS,), target=larger))
    for _ in range(20):
        running.fake.fail_next("adjust", InputError("There is no room."))
    decisions = running.turns(20)  # 100 s, of which 20 s each are a cool-down
    assert 3 <= len(running.adjusted) <= 5
    assert any(
        d.kind == "keep"
        and d.reason.startswith("The cool-down lasts")
        and d.reason.endswith(f" s more. {sentence(GROWS)}")
        for d in decisions
    )
    waiting = next(each for each in decisions if each.kind == "keep" and GROWS in each.details)
    assert [reason.kind for reason in waiting.details] == ["cool_down", "ps_memory_enough"]
    assert waiting.reason == sentences(waiting.details)


def test_incomplete_allocation_is_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor reports only the replicas."""
    running = Running(at(2, 1), claimed=at(4, 1))
    observe = running.fake.observe
    monkeypatch.setattr(running.fake, "observe", lambda h: observe(h).model_copy(update={"allocation": None}))
    decisions = running.turns(5)
    assert {each.kind for each in decisions} == {"blind"}
    assert "2 of 4 worker replicas are running" in decisions[-1].reason
    decisions += running.turns(3)
    (plan,) = running.adjusted
    assert plan.target == at(2, 1)
    assert plan.reason == "Only 2 of 4 workers started within 30 s (expected: 30 s). Continuing with 2."


def test_memory_is_watched_while_a_worker_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running(at(2, 1), claimed=at(4, 1))
    observe = running.fake.observe
    monkeypatch.setattr(running.fake, "observe", lambda h: observe(h).model_copy(update={"allocation": None}))
    larger = Allocation.of(4, 1, 0.5, 0.3, 512, 1024 * MIB, 2048 * MIB)
    monkeypatch.setattr(running.controller._stabilizer, "_enlarge_ps", lambda *_: Action((GROWS,), target=larger))
    running.turns(2)
    assert [plan.target for plan in running.adjusted] == [larger]


def test_loop_continues_from_decisions_of_its_own_run_only(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "decisions.jsonl")
    first = Running(at(1, 1), log=log)
    first.turns(30)
    other = Running(at(1, 1), log=log)
    other.handle = other.fake.launch(Plan(id="q", kind="launch", job=JOB, target=at(1, 1), reason=""))
    assert other.handle.id != first.handle.id
    other.controller = other.start_loop(at(1, 1))
    assert [each.number for each in other.turns(2)] == [0, 1]


def test_changes_by_others_are_followed() -> None:
    running = Running(at(1, 1), cooldown_s=500.0)
    running.turns(5)
    plan = Plan(id="p", kind="adjust", job=JOB, target=at(4, 1), current=at(1, 1), reason="by hand")
    running.fake.adjust(running.handle, plan)
    decisions = running.turns(5)
    assert [each.kind for each in decisions] == ["blind", "keep", "keep", "keep", "keep"]
    assert [each.allocation for each in decisions] == [at(4, 1)] * 5
    assert decisions[-1].evidence is not None
    assert decisions[-1].evidence.throughput == pytest.approx(rate(4, 1), rel=0.01)


def test_paused_loop_observes_and_changes_nothing() -> None:
    running = Running(at(1, 1))
    running.controller.paused = True
    decisions = running.turns(30)
    assert running.adjusted == []
    assert decisions[-1].reason.startswith("The loop is paused. ")
    running.controller.paused = False
    running.turns(2)
    assert len(running.adjusted) == 1


def test_background_fits_reach_the_same_allocation() -> None:
    with ThreadPoolExecutor(1) as pool:
        running = Running(at(1, 1), known=trials(wrong=0.5), pool=pool)
        running.turns(60)
    assert throughput(running.controller.allocation) > 0.95 * rate(8, 4)


def test_forecast_contains_the_finish_time() -> None:
    decisions = Running(at(8, 4)).turns(5)[-1]
    assert decisions.samples_left is not None
    assert decisions.forecast.finish_s == pytest.approx(decisions.samples_left / rate(8, 4), rel=0.01)
    assert (decisions.forecast.ps_peak_bytes, decisions.forecast.ps_limit_bytes) == (200 * MIB, 1024 * MIB)


def test_memory_forecast_is_passed_to_executors_that_restore_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    decisions: list[int] = []
    running = Running(at(8, 4))
    monkeypatch.setattr(running.fake, "expect_memory", lambda _, needed: decisions.append(needed))
    running.turns(5)
    assert decisions == []  # its tables do not grow
    watch = running.controller._stabilizer.memory
    monkeypatch.setattr(watch, "needed_bytes", lambda samples, ps: 7e8)
    running.turns(20)
    assert set(decisions) == {700_000_000}


def test_dry_run_records_plans_without_applying_them() -> None:
    running = Running(at(1, 1), dry_run=True)
    decisions = running.turns(10)
    assert running.adjusted == []
    adjustments = [each for each in decisions if each.kind == "adjust"]
    assert adjustments
    assert adjustments[0].target is not None
    assert adjustments[0].applied is None


def test_decisions_are_logged_with_evidence_and_a_restarted_loop_continues(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "decisions.jsonl")
    running = Running(at(1, 1), log=log)
    decisions = running.turns(30)
    assert log.read() == decisions
    assert [each.number for each in decisions] == list(range(30))
    changed = next(each for each in decisions if each.kind == "adjust")
    assert changed.evidence is not None
    assert changed.evidence.throughput == pytest.approx(rate(1, 1), rel=0.02)
    assert set(changed.timings_s) == set(STEPS)
    running.controller = running.start_loop(running.controller.allocation)
    (again,) = running.turns(1)
    assert again.number == 30
    assert len(running.turns(20)) == 20
    assert {each.kind for each in log.read()[31:]} == {"keep"}


def test_unwritable_log_does_not_stop_the_loop(tmp_path: Path) -> None:
    decisions: list[StoreError] = []
    running = Running(at(1, 1), log=DecisionLog(tmp_path / "no" / "such.jsonl"), on_error=decisions.append)
    running.turns(60)
    assert throughput(running.controller.allocation) > 0.95 * rate(8, 4)
    assert len(decisions) == 60


def test_without_evidence_of_other_allocations_nothing_changes() -> None:
    running = Running(at(1, 1), known=[])
    decisions = running.turns(20)
    assert running.adjusted == []
    assert "Too little is known" in decisions[-1].reason


def test_hot_ps_gets_a_rebalance_plan() -> None:
    running = Running(at(8, 4))
    running.turns(2)
    running.fake.skew_lookups(running.handle, (0.7, 0.1, 0.1, 0.1))
    decisions = running.turns(10)
    (plan,) = running.adjusted
    assert (plan.rebalance, plan.target, plan.migrate) == (True, at(8, 4), ())
    (done,) = (each for each in decisions if each.kind == "adjust")
    assert (done.rebalance, done.applied, done.stage) == (True, True, "stabilize")
    assert decisions[-1].throughput == pytest.approx(rate(8, 4), rel=0.01)


def test_rebalancing_without_success_is_given_up() -> None:
    running = Running(at(8, 4))
    running.turns(2)
    for _ in range(40):
        running.fake.skew_lookups(running.handle, (0.7, 0.1, 0.1, 0.1))
        decisions = running.turns(1)
    assert len(running.adjusted) == 3
    assert "tried 3 times and does not help" in decisions[-1].reason


def test_executor_without_rebalance_gets_no_rebalance_plan() -> None:
    running = Running(at(8, 4))
    running.fake.capabilities = running.fake.capabilities.model_copy(update={"rebalance": False})
    running.controller = running.start_loop(at(8, 4))
    running.fake.skew_lookups(running.handle, (0.7, 0.1, 0.1, 0.1))
    decisions = running.turns(10)
    assert running.adjusted == []
    assert "The executor cannot rebalance, so nothing is changed." in decisions[-1].reason


@pytest.mark.parametrize(
    ("limited_by", "learns"), [("none", False), ("affinity", False), ("cgroup", True), (None, True)]
)
def test_speed_of_replicas_without_cpu_limits_is_no_evidence(limited_by: str | None, learns: bool) -> None:
    running, decisions = Running(at(1, 1)), []
    for _ in range(12):
        running.fake.clock.sleep(5.0)
        metrics = running.fake.observe(running.handle)
        replicas = tuple(replica.model_copy(update={"limited_by": limited_by}) for replica in metrics.replicas)
        decisions.append(running.controller.reconcile(metrics.model_copy(update={"replicas": replicas})))
    assert any(decision.evidence for decision in decisions) is learns
    assert any(decision.target for decision in decisions) is learns
    assert any("not limited to their cores" in decision.reason for decision in decisions) is not learns


def test_cool_down_lasts_its_seconds() -> None:
    clock = ManualClock()
    cool_down = CoolDown(clock)
    assert cool_down.remaining_s <= 0
    clock.sleep(5.0)
    cool_down.begin(20.0)
    assert cool_down.remaining_s == 20.0
    clock.sleep(19.0)
    assert cool_down.remaining_s == 1.0
    clock.sleep(1.0)
    assert cool_down.remaining_s <= 0


def test_cool_down_restarts_when_the_clock_goes_back() -> None:
    now = 4000.0
    cool_down = CoolDown(lambda: now)
    cool_down.begin(20.0)
    now = 400.0
    assert cool_down.remaining_s == 20.0
    now = 420.0
    assert cool_down.remaining_s <= 0


def test_a_job_that_shares_a_cluster_follows_its_share() -> None:
    running = Running(at(2, 1))
    running.controller.granted = at(2, 1)
    running.turns(20)
    assert running.adjusted == []
    candidates = {each.allocation.replicas("worker"): each.throughput for each in running.controller.candidates()}
    assert max(candidates) == 8
    running.controller.granted = at(3, 1)
    decision = running.turns(1)[-1]
    assert decision.applied
    assert running.controller.allocation == at(3, 1)
    assert decision.reason.startswith(f"{at(3, 1).describe()} is the share of the job")


def test_what_others_change_is_kept_until_the_next_share() -> None:
    running = Running(at(2, 1), cooldown_s=5.0)
    running.controller.granted = at(2, 1)
    running.turns(5)
    plan = Plan(id="p", kind="adjust", job=JOB, target=at(4, 1), current=at(2, 1), reason="by hand")
    running.fake.adjust(running.handle, plan)
    running.turns(10)
    assert running.controller.allocation == at(4, 1)
