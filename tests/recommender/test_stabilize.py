from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sizewright.models.embedding_memory import peak_of
from sizewright.recommender.action import Action
from sizewright.recommender.stabilize import Stabilizer
from sizewright.recommender.windows import Doing, Window
from sizewright.spec import Allocation, Bounds, Capabilities, ChangeCost, Job, Model, RoleBounds, Tables
from sizewright.spec.units import GIB, MIB

BOUNDS = Bounds(ps=RoleBounds(replicas=(1, 4), memory_bytes=(64 * MIB, GIB)))
JOB = Job(model=Model(tables=Tables(count=4, rows=500_000, dim=16)), bounds=BOUNDS)
LIVE, PODS = ChangeCost(seconds=0.5, lower=0.1, upper=2.0), ChangeCost(seconds=60.0, lower=30.0, upper=90.0)


def doing(name: str, **told: Any) -> Doing:
    role = name.partition("-")[0]
    usual = dict.fromkeys(Doing._fields, 0) | {"name": name, "role": role, "seconds": 5.0, "cpu_s": 2.5}
    work: dict[str, Any] = {"steps": 20, "compute_s": 3.0, "wait_s": 1.5}
    if role == "ps":
        work = {"exchanges": 60, "busy_s": 2.0, "lookups": 1000}
    return Doing(**(usual | work | told))


def window(*replicas: Doing, trained: int = 10_000, left: int = 1_000_000, rate: int = 1000) -> Window:
    return Window(5.0, 5.0, 5 * rate, trained, left, replicas)


CUT = {"steps": 4, "compute_s": 3.0, "throttled_s": 3.0}


def stabilized(
    *windows: Window, cost: ChangeCost = LIVE, memory: int = 0, able: Capabilities | None = None
) -> tuple[Stabilizer, Action | None]:
    allocation = Allocation.of(4, 2, 0.5, 0.3, 512, 0, memory)
    made, action = Stabilizer(JOB, able) if able else Stabilizer(JOB), None
    for each in windows:
        made.look(each, allocation)
        action = made.act(each, allocation, cost, 5.0)
    return made, action


def test_where_nothing_is_wrong_nothing_is_done() -> None:
    fine = window(*(doing(f"worker-{i}") for i in range(4)), doing("ps-0"), doing("ps-1"))
    assert stabilized(*[fine] * 20)[1] is None


def test_a_worker_whose_cpu_is_cut_is_put_elsewhere() -> None:
    slow = window(*(doing(f"worker-{i}") for i in range(3)), doing("worker-3", **CUT))
    made, action = stabilized(*[slow] * 4)
    assert action is not None
    assert action.migrate == ("worker-3",)
    assert action.changes
    assert "its quota holds it back 60% of the time" in action.reason
    made.forget()
    assert made.findings == ()


def test_where_too_little_is_left_it_is_waited() -> None:
    slow = window(*(doing(f"worker-{i}") for i in range(3)), doing("worker-3", **CUT), left=20_000)
    assert stabilized(*[slow] * 4)[1].migrate  # type: ignore[union-attr]
    _, action = stabilized(*[slow] * 4, cost=PODS)
    assert action is not None
    assert not action.changes
    assert "may take 90" in action.reason


def test_what_nothing_would_help_is_told_and_waited_for() -> None:
    starved = window(*(doing(f"worker-{i}") for i in range(3)), doing("worker-3", steps=4, data_s=3.0, compute_s=0.6))
    _, action = stabilized(*[starved] * 4)
    assert action is not None
    assert not action.changes
    assert "waiting for samples" in action.reason


def grown(limit: int, bounds: Bounds = BOUNDS, cost: ChangeCost = LIVE) -> tuple[Action | None, float]:
    """After twelve looks at tables that grow without end; and the bytes of a PS by then."""
    job = JOB.model_copy(update={"bounds": bounds})
    made, allocation = Stabilizer(job), Allocation.of(2, 2, 0.5, 0.3, 512, 0, limit)
    for samples in np.linspace(20_000, 240_000, 12):
        rows = 2.0 * samples
        peak = float(peak_of(job, np.array([rows]), 2, 150.0 * MIB, 0.0).draws[0])
        server = {"rows": int(rows / 2), "memory_peak_bytes": int(peak)}
        told = window(doing("ps-0", **server), doing("ps-1", **server), trained=int(samples), rate=4000)
        made.look(told, allocation)
    made.memory.refit()
    return made.act(told, allocation, cost, 5.0), peak


def test_a_ps_that_would_break_its_limit_is_enlarged_in_time() -> None:
    _, peak = grown(0)
    action, _ = grown(int(1.02 * peak))
    assert action is not None
    assert action.target is not None
    assert action.target.replicas("ps") == 2
    assert action.target.ps[0].memory_bytes > 1.3 * peak
    assert action.target.worker == Allocation.of(2, 2, 0.5, 0.3, 512).worker
    assert grown(GIB)[0] is None  # far enough
    assert grown(int(1.3 * peak))[0] is None
    assert grown(int(1.3 * peak), cost=PODS)[0] is not None  # a change that takes so long must begin sooner


def test_where_one_may_not_be_larger_there_are_more() -> None:
    _, peak = grown(0)
    most = int(1.05 * peak)
    small = Bounds(ps=RoleBounds(replicas=(1, 40), memory_bytes=(64 * MIB, most)))
    action, _ = grown(int(1.02 * peak), small)
    assert action is not None
    assert action.target is not None
    assert action.target.replicas("ps") > 2
    assert action.target.ps[0].memory_bytes <= most
    none = Bounds(ps=RoleBounds(replicas=(1, 2), memory_bytes=(64 * MIB, most)))
    action, _ = grown(int(1.02 * peak), none)
    assert action is not None
    assert not action.changes
    assert "allow no more" in action.reason


def test_without_a_limit_there_is_none_to_break() -> None:
    assert grown(0)[0] is None


HOT = {"busy_s": 4.0, "lookups": 3000, "cpu_s": 4.9}


def with_ps(**hot: Any) -> Window:
    return window(*(doing(f"worker-{i}") for i in range(4)), doing("ps-0", **hot), doing("ps-1"), doing("ps-2"))


def test_where_nothing_can_be_put_elsewhere_one_more_worker_comes() -> None:
    slow = window(*(doing(f"worker-{i}") for i in range(3)), doing("worker-3", **CUT))
    _, action = stabilized(*[slow] * 4, able=Capabilities(migrate=False, rebalance=True))
    assert action is not None
    assert action.target == Allocation.of(5, 2, 0.5, 0.3, 512)
    assert "One more beside it saves" in action.reason


def test_the_cause_is_looked_for_since_it_has_been_slow() -> None:
    """A short last window alone tells of no throttling."""
    slow = window(*(doing(f"worker-{i}") for i in range(3)), doing("worker-3", **CUT))
    last = window(*(doing(f"worker-{i}") for i in range(3)), doing("worker-3", **(CUT | {"throttled_s": 0.0})))
    _, action = stabilized(*[slow] * 4, last)
    assert action is not None
    assert action.migrate == ("worker-3",)


def test_the_look_ups_of_a_hot_ps_are_evened_out() -> None:
    _, action = stabilized(*[with_ps(**HOT)] * 4)
    assert action is not None
    assert (action.rebalance, action.migrate, action.changes) == (True, (), True)
    assert "asked for 3.0 times as many rows" in action.reason
    assert "Evening out the look-ups saves" in action.reason
    _, action = stabilized(*[with_ps(**HOT)] * 4, cost=ChangeCost(seconds=1e3, lower=1e3, upper=1e3))
    assert action is not None
    assert not action.changes
    assert "may take 1000 s and would save 0, no more than the 100 that it may cost." in action.reason


def test_a_ps_that_stays_hot_is_evened_out_a_few_times_at_most() -> None:
    made, _ = stabilized(*[with_ps(**HOT)] * 4)
    allocation = Allocation.of(4, 3, 0.5, 0.3, 512)

    def acts(told: Window) -> Action | None:
        for _ in range(4):
            made.look(told, allocation)
        return made.act(told, allocation, LIVE, 5.0)

    for changes in (True, True, True, False):
        still = acts(with_ps(**HOT))
        assert still is not None
        assert still.changes == changes
        if changes:
            made.relieved()
            made.forget()
    assert "Evening out the look-ups was tried 3 times and does not help: it is waited" in still.reason
    idle = with_ps(lookups=0)
    assert acts(idle) is None
    assert not acts(with_ps(**HOT)).changes  # type: ignore[union-attr]  # a short while without is no help
    for _ in range(8):
        assert acts(with_ps()) is None
    for _ in range(8):
        later = acts(with_ps(**HOT))  # its keys have become skewed anew
    assert later is not None
    assert later.rebalance


@pytest.mark.parametrize(
    ("slow", "able", "told"),
    [
        (with_ps(**HOT), Capabilities(migrate=True), "The executor cannot rebalance"),
        (with_ps(busy_s=5.0, throttled_s=3.0), Capabilities(), "The executor cannot migrate"),
    ],
)
def test_what_the_executor_cannot_do_is_not_asked_of_it(slow: Window, able: Capabilities, told: str) -> None:
    made, allocation = Stabilizer(JOB, able), Allocation.of(4, 3, 0.5, 0.3, 512)
    for _ in range(4):
        made.look(slow, allocation)
    action = made.act(slow, allocation, LIVE, 5.0)
    assert action is not None
    assert not action.changes
    assert told in action.reason


def test_a_change_during_which_it_trains_on_costs_a_part_of_its_time() -> None:
    """900 s are left, of which a worker that is not slow any more would save a part."""
    slow = window(*(doing(f"worker-{i}") for i in range(3)), doing("worker-3", **CUT), left=900_000)
    pods = ChangeCost(seconds=300.0, lower=150.0, upper=400.0)
    live, restarts = (Capabilities(live=live, migrate=True) for live in (True, False))
    for able, changes in ((live, True), (restarts, False)):
        _, action = stabilized(*[slow] * 4, cost=pods, able=able)
        assert action is not None
        assert action.changes == changes


def test_a_remedy_that_does_not_help_ends() -> None:
    """The newcomer comes to the same busy host, or is one more that the slow one holds up."""
    slow = window(*(doing(f"worker-{i}") for i in range(3)), doing("worker-3", **CUT))
    for able, most in ((Capabilities(live=True, migrate=True), 4), (Capabilities(live=True), 3)):
        made, allocation, changes = Stabilizer(JOB, able), Allocation.of(4, 2, 0.5, 0.3, 512), 0
        for _ in range(80):
            made.look(slow, allocation)
            action = made.act(slow, allocation, LIVE, 5.0)
            if action and action.changes:
                changes += 1
                made.relieved()
                made.forget()
        assert changes == most


def test_a_job_that_is_nearly_done_is_left_alone() -> None:
    """However little the last window tells: nothing is left, or hardly anything was trained in it."""
    replicas = [*(doing(f"worker-{i}") for i in range(3)), doing("worker-3", **CUT)]
    for last in (window(*replicas, left=0), window(*replicas, left=1000, rate=1)):
        _, action = stabilized(*[window(*replicas, left=2000)] * 4, last)
        assert action is not None
        assert not action.changes


def test_a_worker_that_waits_for_the_ps_anyway_is_left_alone() -> None:
    """It computes for longer, and makes as many steps as the others."""
    busy = window(
        *(doing(f"worker-{i}") for i in range(3)), doing("worker-3", **(CUT | {"steps": 20, "compute_s": 9.0}))
    )
    made, action = stabilized(*[busy] * 4)
    assert action is not None
    assert not action.changes
    assert "would save 0" in action.reason
    assert (len(made.findings), made.held_up) == (1, False)
    slow = window(*(doing(f"worker-{i}") for i in range(3)), doing("worker-3", **CUT))
    assert stabilized(*[slow] * 4)[0].held_up
