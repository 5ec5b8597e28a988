"""What the shared part does around a session; the session here is made of arithmetic."""

from __future__ import annotations

import os
from typing import Any

import pytest

from sizewright.errors import EngineError, InputError
from sizewright.executors.change_costs import LIVE_PRIOR, START_PRIOR
from sizewright.executors.session._base import SessionExecutor, TrainingSession
from sizewright.executors.session.local import LocalExecutor
from sizewright.executors.session.ray_cluster import RayExecutor
from sizewright.spec import Allocation, Job, Plan
from sizewright.testing import ManualClock
from sizewright.testing.fake_session import FakeSession, default_throughput

ONE, TWO = Allocation.of(1, 1, 1.0, 1.0, 100), Allocation.of(2, 2, 1.0, 1.0, 100)
LAUNCH = Plan(id="p-1", kind="launch", job=Job(name="ctr"), target=ONE, reason="")
ADJUST = Plan(id="p-2", kind="adjust", job=Job(name="ctr"), current=ONE, target=TWO, reason="")


class Timed(SessionExecutor):
    """Changes take two seconds of its clock."""

    name = "timed"

    def __init__(self) -> None:
        self.clock = ManualClock()
        super().__init__(clock=self.clock)
        self.session: FakeSession | None = None

    def _open(self, job: Job) -> TrainingSession:
        self.clock.sleep(8)
        self.session = FakeSession(job, self.clock, default_throughput, change_s=lambda: 2.0)
        return self.session


def test_launches_and_changes_are_learned_separately() -> None:
    executor = Timed()
    assert executor.change_cost(LAUNCH) == START_PRIOR
    assert executor.change_cost(ADJUST) == LIVE_PRIOR
    handle = executor.launch(LAUNCH)
    executor.adjust(handle, ADJUST)
    start, change = executor.change_cost(LAUNCH), executor.change_cost(ADJUST)
    assert (start.changes, change.changes) == (1, 1)
    assert start.seconds == pytest.approx(8, rel=0.1)
    assert 0.5 < change.seconds < 3
    executor.adjust(handle, ADJUST.model_copy(update={"current": TWO}))  # it is there already
    assert executor.change_cost(ADJUST).changes == 1


def test_adjust_scales_then_migrates_then_rebalances() -> None:
    executor = Timed()
    handle = executor.launch(LAUNCH)
    executor.adjust(handle, ADJUST.model_copy(update={"migrate": ("worker-0",), "rebalance": True}))
    even = ADJUST.model_copy(update={"id": "p-3", "current": TWO, "rebalance": True})
    assert not even.changes_nothing
    executor.adjust(handle, even)
    kinds = [change.kind for change in executor.stop(handle).changes]
    assert kinds == ["scale", "replace", "rebalance", "rebalance"]
    assert (executor.change_cost(ADJUST).changes, executor.change_cost(even).changes) == (1, 1)


def test_failed_change_is_not_learned_and_starts_no_cool_down() -> None:
    executor = Timed()
    handle = executor.launch(LAUNCH)
    none = ADJUST.model_copy(update={"target": Allocation.of(0, 1, 1.0, 1.0, 100), "cooldown_s": 100.0})
    with pytest.raises(EngineError):
        executor.adjust(handle, none)
    assert executor.change_cost(ADJUST) == LIVE_PRIOR
    executor.adjust(handle, ADJUST)


def test_failed_launch_leaves_no_session() -> None:
    executor = Timed()
    with pytest.raises(EngineError):
        executor.launch(LAUNCH.model_copy(update={"target": Allocation.of(0, 1, 1.0, 1.0, 100)}))
    assert executor.session is not None
    assert executor.session.outcome().status == "stopped"


def test_refused_plans_name_the_fault() -> None:
    executor = Timed()
    handle = executor.launch(LAUNCH)
    stale = ADJUST.model_copy(update={"current": TWO, "target": ONE})
    with pytest.raises(InputError, match=r"made for 2 workers × 1 core.* but ctr runs with 1 worker × 1 core"):
        executor.adjust(handle, stale)
    with pytest.raises(InputError, match=r"is of kind 'adjust' for other, but .* is running"):
        executor.adjust(handle, ADJUST.model_copy(update={"job": Job(name="other")}))
    with pytest.raises(InputError, match="has no job p-9 of executor 'timed'"):
        executor.observe(handle.model_copy(update={"id": "p-9"}))
    with pytest.raises(InputError, match="of executor 'dlrover'"):
        executor.observe(handle.model_copy(update={"executor": "dlrover"}))
    even = ADJUST.model_copy(update={"target": ONE, "rebalance": True})
    with pytest.raises(
        InputError, match=r"p-2 rebalances look-ups, but its target has fewer than two PS.*two PS or more"
    ):
        executor.adjust(handle, even)
    executor.stop(handle)
    with pytest.raises(InputError, match=r"was stopped \(stopped\)\. Launch it again"):
        executor.observe(handle)


def test_options_are_passed_to_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    session = pytest.importorskip("sizewright.training.session")
    session_options: list[dict[str, Any]] = []

    def make(job: Job, **options: Any) -> FakeSession:
        session_options.append(options)
        return FakeSession(job, ManualClock(), default_throughput)

    monkeypatch.setattr(session, "Session", make)
    LocalExecutor(samples=9, folder="snapshots", snapshot_s=3.0).launch(LAUNCH)
    RayExecutor("h:1", resume="snapshots", timeout_s=5).launch(LAUNCH)
    local = {
        "samples": 9,
        "folder": os.path.abspath("snapshots"),
        "snapshot_s": 3.0,
        "resume": None,
        "timeout_s": 120.0,
        "hang_s": 30.0,
        "recover": True,
    }
    every = LAUNCH.job.samples
    ray = {
        "samples": every,
        "folder": None,
        "snapshot_s": 10.0,
        "resume": os.path.abspath("snapshots"),
        "timeout_s": 5,
        "hang_s": 30.0,
        "recover": True,
    }
    assert session_options == [local, ray | {"address": "h:1"}]


def test_ray_launch_needs_an_address() -> None:
    with pytest.raises(InputError, match="needs the address of a running Ray"):
        RayExecutor().launch(LAUNCH)
    assert 'get_executor("ray", address="HOST:PORT")' in RayExecutor().render(LAUNCH)
