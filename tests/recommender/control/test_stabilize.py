from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sizewright.formatting import GIB, MIB
from sizewright.models.memory.embedding import peak_of
from sizewright.recommender.control.action import Action
from sizewright.recommender.control.stabilize import Stabilizer
from sizewright.recommender.control.windows import ReplicaWindow, Window
from sizewright.spec import Allocation, Bounds, Capabilities, ChangeCost, Job, Model, RoleBounds, Tables, Training

BOUNDS = Bounds(ps=RoleBounds(replicas=(1, 4), memory_bytes=(64 * MIB, GIB)))
JOB = Job(model=Model(tables=Tables(count=4, rows=500_000, dim=16)), bounds=BOUNDS)
LIVE, PODS = ChangeCost(seconds=0.5, lower=0.1, upper=2.0), ChangeCost(seconds=60.0, lower=30.0, upper=90.0)


def replica(name: str, **fields: Any) -> ReplicaWindow:
    role = name.partition("-")[0]
    defaults = dict.fromkeys(ReplicaWindow._fields, 0) | {"name": name, "role": role, "seconds": 5.0, "cpu_s": 2.5}
    work: dict[str, Any] = {"steps": 20, "compute_s": 3.0, "wait_s": 1.5}
    if role == "ps":
        work = {"exchanges": 60, "busy_s": 2.0, "lookups": 1000}
    return ReplicaWindow(**(defaults | work | fields))


def window(*replicas: ReplicaWindow, trained: int = 10_000, samples_left: int = 1_000_000, rate: int = 1000) -> Window:
    return Window(5.0, 5.0, 5 * rate, trained, samples_left, replicas)


CUT = {"steps": 4, "compute_s": 3.0, "throttled_s": 3.0, "cpu_s": 0.5}


def stabilized(
    *windows: Window, cost: ChangeCost = LIVE, memory: int = 0, capabilities: Capabilities | None = None, job: Job = JOB
) -> tuple[Stabilizer, Action | None]:
    allocation = Allocation.of(4, 2, 0.5, 0.3, 512, 0, memory)
    stabilizer = Stabilizer(job, capabilities) if capabilities else Stabilizer(job)
    action = None
    for each in windows:
        stabilizer.add(each, allocation)
        action = stabilizer.act(each, allocation, cost, 5.0)
    return stabilizer, action


def test_healthy_job_needs_no_action() -> None:
    fine = window(*(replica(f"worker-{i}") for i in range(4)), replica("ps-0"), replica("ps-1"))
    assert stabilized(*[fine] * 20)[1] is None


def test_throttled_worker_is_migrated() -> None:
    slow = window(*(replica(f"worker-{i}") for i in range(3)), replica("worker-3", **CUT))
    stabilizer, action = stabilized(*[slow] * 4)
    assert action is not None
    assert action.migrate == ("worker-3",)
    assert action.changes
    assert "its CPU quota throttles it 60 % of the time" in action.reason
    stabilizer.forget()
    assert stabilizer.findings == ()


def only_ps(seconds: float, **fields: Any) -> Window:
    workers = (replica(f"worker-{i}", wait_s=1.5) for i in range(3))
    return window(*workers, replica("ps-0", busy_s=seconds, **fields))


def test_only_ps_that_gets_slow_is_migrated() -> None:
    fine, slow = only_ps(1.0), only_ps(4.0, throttled_s=4.0, cpu_s=0.3)
    stabilizer, action = stabilized(*[fine] * 5, *[slow] * 3)
    assert action is not None
    assert action.migrate == ("ps-0",)
    assert (
        "times as long as before per exchange: its CPU quota throttles it 80 % of the time, before: 0 %"
        in action.reason
    )
    assert stabilizer.slowed_by_straggler


def test_only_ps_with_more_work_gets_a_new_reference() -> None:
    stabilizer, action = stabilized(*[only_ps(1.0)] * 5, *[only_ps(4.0, cpu_s=10.0, lookups=4000)] * 10)
    assert action is None
    assert stabilizer.findings == ()
    assert not stabilizer.slowed_by_straggler


def test_only_worker_and_only_ps_do_not_hide_each_other() -> None:
    """The worker is cut, and the PS meanwhile has more to do with all of its cores."""
    fine = window(replica("worker-0"), replica("ps-0", busy_s=1.0, cpu_s=0.5))
    worse = window(replica("worker-0", steps=5, throttled_s=2.0, cpu_s=0.6), replica("ps-0", busy_s=4.0, cpu_s=1.5))
    _, action = stabilized(*[fine] * 5, *[worse] * 5)
    assert action is not None
    assert action.migrate == ("worker-0",)


def test_only_ps_that_stays_slow_after_all_tries_gets_a_new_reference() -> None:
    stabilizer, allocation = Stabilizer(JOB), Allocation.of(3, 1, 0.5, 0.3, 512)
    tries = 0
    for each in [only_ps(1.0)] * 5 + [only_ps(4.0, throttled_s=4.0, cpu_s=0.3)] * 60:
        stabilizer.add(each, allocation)
        action = stabilizer.act(each, allocation, LIVE, 5.0)
        if action is not None and action.changes:
            tries += 1
            stabilizer.remedy_applied()
            stabilizer.forget()
    assert tries == 3
    assert not stabilizer.slowed_by_straggler


def test_memory_that_is_enlarged_keeps_the_reference_of_an_only_ps() -> None:
    stabilizer, allocation = Stabilizer(JOB), Allocation.of(3, 1, 0.5, 0.3, 512, 0, GIB)
    for each in [only_ps(1.0)] * 5:
        stabilizer.add(each, allocation)
    stabilizer.forget()
    for each in [only_ps(4.0, throttled_s=4.0, cpu_s=0.3)] * 3:
        stabilizer.add(each, Allocation.of(3, 1, 0.5, 0.3, 512, 0, 2 * GIB))
    assert [finding.slow.name for finding in stabilizer.findings] == ["ps-0"]


def test_rebalancing_waits_for_counts_of_the_time_since_the_skew() -> None:
    stabilizer, allocation = Stabilizer(JOB), Allocation.of(3, 3, 0.5, 0.3, 512)
    hot = with_ps(**HOT)
    reasons = []
    for _ in range(4):
        stabilizer.add(hot, allocation)
        action = stabilizer.act(hot, allocation, LIVE, 5.0)
        reasons.append("" if action is None else action.reason + " rebalance" * action.rebalance)
    assert "Rebalancing waits" in reasons[-2]
    assert reasons[-1].endswith("rebalance")


def test_speed_of_a_ps_that_needs_more_cores_is_evidence_of_the_allocation() -> None:
    ps = replica("ps-0", busy_s=4.0, throttled_s=4.0, cpu_s=1.5), replica("ps-1", cpu_s=1.4), replica("ps-2", cpu_s=1.4)
    stabilizer, _ = stabilized(*[window(*(replica(f"worker-{i}") for i in range(3)), *ps)] * 10)
    assert [finding.cause for finding in stabilizer.findings] == ["all_cores_used"]
    assert not stabilizer.slowed_by_straggler


def test_only_worker_that_gets_slow_is_migrated() -> None:
    fine, slow = replica("worker-0"), replica("worker-0", steps=5, throttled_s=2.0, cpu_s=0.6)
    ps = (replica("ps-0"), replica("ps-1"))
    _, action = stabilized(*[window(fine, *ps)] * 5, *[window(slow, *ps)] * 5)
    assert action is not None
    assert action.migrate == ("worker-0",)


def test_migration_that_does_not_pay_is_not_made() -> None:
    slow = window(*(replica(f"worker-{i}") for i in range(3)), replica("worker-3", **CUT), samples_left=20_000)
    assert stabilized(*[slow] * 4)[1].migrate  # type: ignore[union-attr]
    _, action = stabilized(*[slow] * 4, cost=PODS)
    assert action is not None
    assert not action.changes
    assert "may take 90" in action.reason


def test_straggler_without_remedy_is_reported() -> None:
    starved = window(
        *(replica(f"worker-{i}") for i in range(3)),
        replica("worker-3", steps=4, data_s=3.0, compute_s=0.6),
    )
    _, action = stabilized(*[starved] * 4)
    assert action is not None
    assert not action.changes
    assert "waiting for samples" in action.reason


def grown(limit: int, bounds: Bounds = BOUNDS, cost: ChangeCost = LIVE) -> tuple[Action | None, float]:
    """Return the action after twelve windows with growing tables, and the last memory peak of a PS."""
    job = JOB.model_copy(update={"bounds": bounds})
    stabilizer, allocation = Stabilizer(job), Allocation.of(2, 2, 0.5, 0.3, 512, 0, limit)
    for samples in np.linspace(20_000, 240_000, 12):
        rows = 2.0 * samples
        peak = float(peak_of(job, np.array([rows]), 2, 150.0 * MIB, 0.0).draws[0])
        server = {"rows": int(rows / 2), "memory_peak_bytes": int(peak)}
        latest = window(replica("ps-0", **server), replica("ps-1", **server), trained=int(samples), rate=4000)
        stabilizer.add(latest, allocation)
    stabilizer.memory.refit()
    return stabilizer.act(latest, allocation, cost, 5.0), peak


def test_ps_that_would_exceed_its_limit_is_enlarged_in_time() -> None:
    _, peak = grown(0)
    action, _ = grown(int(1.02 * peak))
    assert action is not None
    assert action.target is not None
    assert action.target.replicas("ps") == 2
    assert action.target.ps[0].memory_bytes > 1.3 * peak
    assert action.target.worker == Allocation.of(2, 2, 0.5, 0.3, 512).worker
    assert grown(GIB)[0] is None  # far enough
    assert grown(int(1.3 * peak))[0] is None
    assert grown(int(1.3 * peak), cost=PODS)[0] is not None  # a long change must start earlier


def test_ps_at_its_largest_are_multiplied() -> None:
    _, peak = grown(0)
    limit_bytes = int(1.05 * peak)
    small = Bounds(ps=RoleBounds(replicas=(1, 40), memory_bytes=(64 * MIB, limit_bytes)))
    action, _ = grown(int(1.02 * peak), small)
    assert action is not None
    assert action.target is not None
    assert action.target.replicas("ps") > 2
    assert action.target.ps[0].memory_bytes <= limit_bytes
    none = Bounds(ps=RoleBounds(replicas=(1, 2), memory_bytes=(64 * MIB, limit_bytes)))
    action, _ = grown(int(1.02 * peak), none)
    assert action is not None
    assert not action.changes
    assert "allow no more" in action.reason


def test_ps_without_a_limit_need_no_action() -> None:
    assert grown(0)[0] is None


HOT = {"busy_s": 4.0, "lookups": 3000, "cpu_s": 1.4}


def with_ps(**hot: Any) -> Window:
    return window(
        *(replica(f"worker-{i}") for i in range(4)),
        replica("ps-0", **hot),
        replica("ps-1"),
        replica("ps-2"),
    )


def test_without_migration_a_worker_is_added() -> None:
    slow = window(*(replica(f"worker-{i}") for i in range(3)), replica("worker-3", **CUT))
    _, action = stabilized(*[slow] * 4, capabilities=Capabilities(migrate=False, rebalance=True))
    assert action is not None
    assert action.target == Allocation.of(5, 2, 0.5, 0.3, 512)
    assert "Adding a worker saves" in action.reason


def test_cause_is_diagnosed_over_all_slow_windows() -> None:
    """The last window is short and shows no throttling."""
    slow = window(*(replica(f"worker-{i}") for i in range(3)), replica("worker-3", **CUT))
    last = window(*(replica(f"worker-{i}") for i in range(3)), replica("worker-3", **(CUT | {"throttled_s": 0.0})))
    _, action = stabilized(*[slow] * 4, last)
    assert action is not None
    assert action.migrate == ("worker-3",)


def test_hot_ps_is_rebalanced() -> None:
    _, action = stabilized(*[with_ps(**HOT)] * 4)
    assert action is not None
    assert (action.rebalance, action.migrate, action.changes) == (True, (), True)
    assert "serves 3.0 times as many look-ups" in action.reason
    assert "Rebalancing the look-ups saves" in action.reason
    _, action = stabilized(*[with_ps(**HOT)] * 4, cost=ChangeCost(seconds=1e3, lower=1e3, upper=1e3))
    assert action is not None
    assert not action.changes
    assert "may take 1000 s and cost 100 s of training, but would save only 0 s." in action.reason


def test_ps_that_stays_hot_is_rebalanced_a_few_times_at_most() -> None:
    stabilizer, _ = stabilized(*[with_ps(**HOT)] * 4)
    allocation = Allocation.of(4, 3, 0.5, 0.3, 512)

    def acts(current: Window) -> Action | None:
        for _ in range(4):
            stabilizer.add(current, allocation)
        return stabilizer.act(current, allocation, LIVE, 5.0)

    for changes in (True, True, True, False):
        still = acts(with_ps(**HOT))
        assert still is not None
        assert still.changes == changes
        if changes:
            stabilizer.remedy_applied()
            stabilizer.forget()
    assert "Rebalancing the look-ups was tried 3 times and does not help, so nothing is changed." in still.reason
    idle = with_ps(lookups=0)
    assert acts(idle) is None
    assert not acts(with_ps(**HOT)).changes  # type: ignore[union-attr]  # a short pause does not reset the count
    for _ in range(8):
        assert acts(with_ps()) is None
    for _ in range(8):
        later = acts(with_ps(**HOT))  # its keys have become skewed again
    assert later is not None
    assert later.rebalance


@pytest.mark.parametrize(
    ("slow", "able", "message"),
    [
        (with_ps(**HOT), Capabilities(migrate=True), "The executor cannot rebalance"),
        (with_ps(busy_s=5.0, throttled_s=3.0, cpu_s=0.3), Capabilities(), "The executor cannot migrate"),
    ],
)
def test_unsupported_remedy_is_not_proposed(slow: Window, able: Capabilities, message: str) -> None:
    stabilizer, allocation = Stabilizer(JOB, able), Allocation.of(4, 3, 0.5, 0.3, 512)
    for _ in range(4):
        stabilizer.add(slow, allocation)
    action = stabilizer.act(slow, allocation, LIVE, 5.0)
    assert action is not None
    assert not action.changes
    assert message in action.reason


def test_live_change_costs_a_part_of_its_time() -> None:
    """900 s are left; a worker that is no longer slow would save a part of them."""
    slow = window(*(replica(f"worker-{i}") for i in range(3)), replica("worker-3", **CUT), samples_left=900_000)
    pods = ChangeCost(seconds=300.0, lower=150.0, upper=400.0)
    live, restarts = (Capabilities(live=live, migrate=True) for live in (True, False))
    for capabilities, changes in ((live, True), (restarts, False)):
        _, action = stabilized(*[slow] * 4, cost=pods, capabilities=capabilities)
        assert action is not None
        assert action.changes == changes


def test_remedy_without_success_is_given_up() -> None:
    """The new worker gets the same busy host, or waits for the slow worker as well."""
    slow = window(*(replica(f"worker-{i}") for i in range(3)), replica("worker-3", **CUT))
    for able, max_changes in ((Capabilities(live=True, migrate=True), 4), (Capabilities(live=True), 3)):
        stabilizer, allocation, changes = Stabilizer(JOB, able), Allocation.of(4, 2, 0.5, 0.3, 512), 0
        for _ in range(80):
            stabilizer.add(slow, allocation)
            action = stabilizer.act(slow, allocation, LIVE, 5.0)
            if action and action.changes:
                changes += 1
                stabilizer.remedy_applied()
                stabilizer.forget()
        assert changes == max_changes


def test_nearly_finished_job_is_not_changed() -> None:
    """However little the last window tells: nothing is left, or hardly anything was trained in it."""
    replicas = [*(replica(f"worker-{i}") for i in range(3)), replica("worker-3", **CUT)]
    for last in (window(*replicas, samples_left=0), window(*replicas, samples_left=1000, rate=1)):
        _, action = stabilized(*[window(*replicas, samples_left=2000)] * 4, last)
        assert action is not None
        assert not action.changes


def test_straggler_that_waits_for_the_ps_anyway_is_not_migrated() -> None:
    """It computes for longer, and makes as many steps as the others."""
    busy = window(
        *(replica(f"worker-{i}") for i in range(3)),
        replica("worker-3", **(CUT | {"steps": 20, "compute_s": 9.0})),
    )
    stabilizer, action = stabilized(*[busy] * 4)
    assert action is not None
    assert not action.changes
    assert "would save only 0 s" in action.reason
    assert (len(stabilizer.findings), stabilizer.slowed_by_straggler) == (1, False)
    slow = window(*(replica(f"worker-{i}") for i in range(3)), replica("worker-3", **CUT))
    assert stabilized(*[slow] * 4)[0].slowed_by_straggler


@pytest.mark.parametrize(("total", "adds"), [(10_240, True), (2048, False)])
def test_worker_is_added_only_where_all_share_the_global_batch(total: int, adds: bool) -> None:
    job = JOB.model_copy(update={"training": Training(global_batch_size=total)})
    slow = window(*(replica(f"worker-{i}") for i in range(3)), replica("worker-3", **CUT))
    _, action = stabilized(*[slow] * 4, capabilities=Capabilities(live=True), job=job)
    assert action is not None
    assert (action.target is not None) == adds
    if action.target:
        assert action.target.replicas("worker") * action.target.batch_size == total
