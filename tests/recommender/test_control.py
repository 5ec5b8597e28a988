"""The control loop over an executor in memory, whose samples/s are known."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sizewright.datasets.trials import Trial
from sizewright.errors import EngineError, InputError, StoreError
from sizewright.recommender.action import Action
from sizewright.recommender.auto_scale import Scaling
from sizewright.recommender.control import STEPS, Tuner
from sizewright.recommender.decisions import Decision, DecisionLog
from sizewright.recommender.scaler import AutoScaler
from sizewright.spec import Allocation, Bounds, Job, Plan, RoleBounds, Training
from sizewright.spec.units import MIB
from sizewright.testing import FakeExecutor

MEMORY = (512 * MIB, 4096 * MIB)
BOUNDS = Bounds(
    worker=RoleBounds(replicas=(1, 8), cpu=(0.5, 0.5), memory_bytes=MEMORY),
    ps=RoleBounds(replicas=(1, 4), cpu=(0.3, 0.3), memory_bytes=MEMORY),
)
SAMPLES = 10**7
JOB = Job(name="ctr", bounds=BOUNDS, training=Training(samples=SAMPLES), objective="time")
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


def rate(workers: int, ps: int) -> float:
    """Each PS serves three workers."""
    return float(1000.0 * (workers**-4.0 + (3.0 * ps) ** -4.0) ** -0.25)


def throughput(allocation: Allocation) -> float:
    return rate(allocation.replicas("worker"), allocation.replicas("ps"))


def trials(wrong: float = 1.0) -> list[Trial]:
    rng = np.random.default_rng(0)
    told: dict[str, Any] = {"worker_cpu": 0.5, "ps_cpu": 0.3, "batch_size": 512, "job_hash": JOB.hash}
    places = [(1, 1), (2, 1), (4, 1), (8, 1), (4, 2), (8, 4), (6, 3), (1, 4)]
    return [
        Trial(workers=w, ps=p, throughput=wrong * rate(w, p) * float(np.exp(0.02 * rng.standard_normal())), **told)
        for w, p in places
    ]


def here(workers: int, ps: int) -> Allocation:
    return Allocation.of(workers, ps, 0.5, 0.3, 512, 1024 * MIB, 1024 * MIB)


class Running:
    """A job that runs, and a loop beside it."""

    def __init__(self, at: Allocation, known: list[Trial] | None = None, **options: Any) -> None:
        cooldown_s = options.pop("cooldown_s", 20.0)
        scaling = Scaling(cooldown_s=cooldown_s, warm_up_s=options.pop("warm_up_s", cooldown_s))
        self.fake = FakeExecutor(throughput=throughput)
        plan = Plan(id="p", kind="launch", job=JOB, target=at, reason="")
        self.handle = self.fake.launch(plan)
        self.options = options
        self.known = trials() if known is None else known
        self.scaling = scaling
        self.tuner = self.beside(options.pop("claimed", at))

    def beside(self, at: Allocation) -> Tuner:
        def now() -> datetime:
            return START + timedelta(seconds=self.fake.clock())

        scaler = AutoScaler(JOB, self.known, scaling=self.scaling)
        return Tuner(JOB, self.fake, self.handle, at, scaler, clock=self.fake.clock, now=now, **self.options)

    def turns(self, count: int) -> list[Decision]:
        told = []
        for _ in range(count):
            self.fake.clock.sleep(5.0)
            told.append(self.tuner.turn())
        return told

    @property
    def adjusted(self) -> list[Plan]:
        return [call.plan for call in self.fake.calls if call.method == "adjust" and call.plan]


def test_a_job_that_asked_for_too_little_is_near_the_best_after_three_changes_at_most() -> None:
    running = Running(here(1, 1))
    told = running.turns(60)
    assert throughput(running.tuner.allocation) > 0.95 * rate(8, 4)
    assert 1 <= len(running.adjusted) <= 3
    assert [each.applied for each in told if each.kind == "adjust"] == [True] * len(running.adjusted)
    assert {each.kind for each in told[-20:]} == {"keep"}


def test_a_job_that_is_well_sized_is_left_alone() -> None:
    running = Running(here(8, 4))
    told = running.turns(60)
    assert running.adjusted == []
    assert all(each.kind == "keep" for each in told[1:])
    assert told[-1].reason.startswith("It stays: ")
    assert told[-1].throughput == pytest.approx(rate(8, 4), rel=0.01)


def test_the_first_look_is_for_looking() -> None:
    first, second = Running(here(1, 1)).turns(2)
    assert (first.kind, "first look" in first.reason) == ("blind", True)
    assert second.kind == "keep"
    assert second.samples_trained > 0


def test_within_the_cool_down_nothing_is_changed() -> None:
    running = Running(here(1, 1), cooldown_s=100.0)
    told = running.turns(19)
    assert running.adjusted == []
    assert any("it may be changed again" in each.reason for each in told)
    running.turns(4)
    assert len(running.adjusted) == 1
    running.turns(15)
    assert len(running.adjusted) == 1


def test_before_its_first_change_a_loop_looks_for_a_while() -> None:
    running = Running(here(1, 1), cooldown_s=500.0, warm_up_s=50.0)
    running.turns(9)
    assert running.adjusted == []
    running.turns(3)
    assert len(running.adjusted) == 1


def test_what_was_believed_wrongly_is_learned_from_the_run() -> None:
    """Trials of another host claim half; only ratios to what is seen count."""
    running = Running(here(1, 1), known=trials(wrong=0.5))
    running.turns(60)
    assert throughput(running.tuner.allocation) > 0.95 * rate(8, 4)


def test_a_job_that_tells_nothing_is_left_as_it_is_until_it_does() -> None:
    running = Running(here(1, 1))
    running.turns(1)
    for _ in range(3):
        running.fake.fail_next("observe", EngineError("The cluster does not answer."))
    told = running.turns(3)
    assert {each.kind for each in told} == {"blind"}
    assert "The cluster does not answer" in told[0].reason
    running.turns(60)
    assert throughput(running.tuner.allocation) > 0.95 * rate(8, 4)


def test_a_plan_that_is_refused_is_told_and_not_tried_again_at_once() -> None:
    running = Running(here(1, 1))
    for _ in range(2):
        running.fake.fail_next("adjust", InputError("No room.", "Wait."))
    told = running.turns(40)
    refused = [each for each in told if each.applied is False]
    assert [each.error for each in refused] == ["No room."] * 2
    assert (refused[1].at - refused[0].at).total_seconds() >= 20
    assert refused[0].allocation == here(1, 1)
    assert throughput(running.tuner.allocation) > 0.95 * rate(8, 4)  # the third was taken


def test_what_stabilizes_is_not_tried_again_at_once_where_it_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running(here(8, 4))
    larger = Allocation.of(8, 4, 0.5, 0.3, 512, 1024 * MIB, 2048 * MIB)
    monkeypatch.setattr(running.tuner._stabilizer, "_enlarged", lambda *_: Action("It grows.", target=larger))
    for _ in range(20):
        running.fake.fail_next("adjust", InputError("There is no room."))
    told = running.turns(20)  # 100 s, of which 20 s each are a cool-down
    assert 3 <= len(running.adjusted) <= 5
    assert any(d.kind == "keep" and d.reason.endswith("s it may be changed again. It grows.") for d in told)


def test_what_runs_otherwise_than_was_asked_for_is_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the executor tells the replicas only."""
    running = Running(here(2, 1), claimed=here(4, 1))
    observe = running.fake.observe
    monkeypatch.setattr(running.fake, "observe", lambda h: observe(h).model_copy(update={"allocation": None}))
    told = running.turns(5)
    assert {each.kind for each in told} == {"blind"}
    assert "2 of 4 replicas of the worker are there" in told[-1].reason
    told += running.turns(3)
    (plan,) = running.adjusted
    assert plan.target == here(2, 1)
    assert plan.reason == "2 of 4 workers are there after 30 s, where 30 were to be enough: it goes on with these."


def test_memory_is_watched_while_a_worker_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Running(here(2, 1), claimed=here(4, 1))
    observe = running.fake.observe
    monkeypatch.setattr(running.fake, "observe", lambda h: observe(h).model_copy(update={"allocation": None}))
    larger = Allocation.of(4, 1, 0.5, 0.3, 512, 1024 * MIB, 2048 * MIB)
    monkeypatch.setattr(running.tuner._stabilizer, "_enlarged", lambda *_: Action("It grows.", target=larger))
    running.turns(2)
    assert [plan.target for plan in running.adjusted] == [larger]


def test_a_run_goes_on_from_its_own_decisions_alone(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "decisions.jsonl")
    first = Running(here(1, 1), log=log)
    first.turns(30)
    other = Running(here(1, 1), log=log)
    other.handle = other.fake.launch(Plan(id="q", kind="launch", job=JOB, target=here(1, 1), reason=""))
    assert other.handle.id != first.handle.id
    other.tuner = other.beside(here(1, 1))
    assert [each.number for each in other.turns(2)] == [0, 1]


def test_changes_that_others_make_are_followed() -> None:
    running = Running(here(1, 1), cooldown_s=500.0)
    running.turns(5)
    plan = Plan(id="p", kind="adjust", job=JOB, target=here(4, 1), current=here(1, 1), reason="by hand")
    running.fake.adjust(running.handle, plan)
    told = running.turns(5)
    assert [each.kind for each in told] == ["blind", "keep", "keep", "keep", "keep"]
    assert [each.allocation for each in told] == [here(4, 1)] * 5
    assert told[-1].evidence is not None
    assert told[-1].evidence.throughput == pytest.approx(rate(4, 1), rel=0.01)


def test_while_it_is_paused_it_looks_and_changes_nothing() -> None:
    running = Running(here(1, 1))
    running.tuner.paused = True
    told = running.turns(30)
    assert running.adjusted == []
    assert told[-1].reason.startswith("The loop is paused. ")
    running.tuner.paused = False
    running.turns(2)
    assert len(running.adjusted) == 1


def test_fits_in_the_background_lead_to_the_same() -> None:
    with ThreadPoolExecutor(1) as pool:
        running = Running(here(1, 1), known=trials(wrong=0.5), pool=pool)
        running.turns(60)
    assert throughput(running.tuner.allocation) > 0.95 * rate(8, 4)


def test_it_tells_when_the_job_will_end() -> None:
    told = Running(here(8, 4)).turns(5)[-1]
    assert told.samples_left is not None
    assert told.forecast.finish_s == pytest.approx(told.samples_left / rate(8, 4), rel=0.01)
    assert (told.forecast.ps_peak_bytes, told.forecast.ps_limit_bytes) == (200 * MIB, 1024 * MIB)


def test_what_memory_is_forecast_to_be_is_told_to_who_restores_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    running = Running(here(8, 4))
    monkeypatch.setattr(running.fake, "expect_memory", lambda _, needed: told.append(needed))
    running.turns(5)
    assert told == []  # its tables do not grow
    watch = running.tuner._stabilizer.memory
    monkeypatch.setattr(watch, "wanted_bytes", lambda samples, ps: 7e8)
    running.turns(20)
    assert set(told) == {700_000_000}


def test_a_dry_run_says_what_it_would_do() -> None:
    running = Running(here(1, 1), dry_run=True)
    told = running.turns(10)
    assert running.adjusted == []
    wanted = [each for each in told if each.kind == "adjust"]
    assert wanted
    assert wanted[0].target is not None
    assert wanted[0].applied is None


def test_every_decision_is_kept_with_its_evidence_and_a_loop_that_begins_anew_goes_on(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "decisions.jsonl")
    running = Running(here(1, 1), log=log)
    told = running.turns(30)
    assert log.read() == told
    assert [each.number for each in told] == list(range(30))
    changed = next(each for each in told if each.kind == "adjust")
    assert changed.evidence is not None
    assert changed.evidence.throughput == pytest.approx(rate(1, 1), rel=0.02)
    assert set(changed.timings_s) == set(STEPS)
    running.tuner = running.beside(running.tuner.allocation)
    (again,) = running.turns(1)
    assert again.number == 30
    assert len(running.turns(20)) == 20
    assert {each.kind for each in log.read()[31:]} == {"keep"}


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    told: list[StoreError] = []
    running = Running(here(1, 1), log=DecisionLog(tmp_path / "no" / "such.jsonl"), forgive=told.append)
    running.turns(60)
    assert throughput(running.tuner.allocation) > 0.95 * rate(8, 4)
    assert len(told) == 60


def test_without_evidence_of_other_allocations_it_stays() -> None:
    running = Running(here(1, 1), known=[])
    told = running.turns(20)
    assert running.adjusted == []
    assert "Too little is known" in told[-1].reason


def test_a_hot_ps_is_relieved_by_a_plan_that_evens_out_its_look_ups() -> None:
    running = Running(here(8, 4))
    running.turns(2)
    running.fake.skew_lookups(running.handle, (0.7, 0.1, 0.1, 0.1))
    told = running.turns(10)
    (plan,) = running.adjusted
    assert (plan.rebalance, plan.target, plan.migrate) == (True, here(8, 4), ())
    (done,) = (each for each in told if each.kind == "adjust")
    assert (done.rebalance, done.applied, done.stage) == (True, True, "stabilize")
    assert told[-1].throughput == pytest.approx(rate(8, 4), rel=0.01)


def test_what_cannot_be_evened_out_is_tried_a_few_times() -> None:
    running = Running(here(8, 4))
    running.turns(2)
    for _ in range(40):
        running.fake.skew_lookups(running.handle, (0.7, 0.1, 0.1, 0.1))
        told = running.turns(1)
    assert len(running.adjusted) == 3
    assert "tried 3 times and does not help" in told[-1].reason


def test_an_executor_that_cannot_rebalance_is_not_asked_to() -> None:
    running = Running(here(8, 4))
    running.fake.capabilities = running.fake.capabilities.model_copy(update={"rebalance": False})
    running.tuner = running.beside(here(8, 4))
    running.fake.skew_lookups(running.handle, (0.7, 0.1, 0.1, 0.1))
    told = running.turns(10)
    assert running.adjusted == []
    assert "The executor cannot rebalance: it is waited" in told[-1].reason


@pytest.mark.parametrize(
    ("limited_by", "learns"), [("none", False), ("affinity", False), ("cgroup", True), (None, True)]
)
def test_the_speed_of_replicas_that_nothing_holds_to_their_cores_is_not_learned(
    limited_by: str | None, learns: bool
) -> None:
    running, decisions = Running(here(1, 1)), []
    for _ in range(12):
        running.fake.clock.sleep(5.0)
        look = running.fake.observe(running.handle)
        replicas = tuple(replica.model_copy(update={"limited_by": limited_by}) for replica in look.replicas)
        decisions.append(running.tuner.turn(look.model_copy(update={"replicas": replicas})))
    assert any(decision.evidence for decision in decisions) is learns
    assert any(decision.target for decision in decisions) is learns
    assert any("not held to their cores" in decision.reason for decision in decisions) is not learns
