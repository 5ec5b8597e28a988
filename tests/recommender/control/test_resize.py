"""Cores and memory of running replicas follow what they use, within the bounds that the job file states."""

from __future__ import annotations

from typing import Any

import pytest

from sizewright.formatting import GIB, MIB
from sizewright.recommender.control.action import Action
from sizewright.recommender.control.resize import Resizer, Resizing
from sizewright.spec import Allocation, Group, Job, Metrics, ReplicaMetrics

TAKES_S = 40.0
WORKER = {"replicas": [1, 8], "cpu": [0.5, 8], "memory": ["256Mi", "4Gi"]}


def job(worker: dict[str, Any] = WORKER) -> Job:
    return Job.model_validate({"name": "ctr", "command": {"run": "train"}, "bounds": {"worker": worker}})


def allocation(cpu: float = 4.0, memory_bytes: int = GIB, workers: int = 2) -> Allocation:
    return Allocation(worker=(Group(replicas=workers, cpu=cpu, memory_bytes=memory_bytes),), ps=(), batch_size=64)


def metrics(
    at_s: float, *, cores: float = 3.9, peak: float = 100 * MIB, rate: float = 1000.0, left: int | None = None
) -> Metrics:
    replicas = [
        ReplicaMetrics(
            role="worker",
            index=index,
            at_s=1e9 + at_s,
            cpu_s=cores * at_s,
            throttled_s=0.0,
            memory_peak_bytes=int(peak * (1 - 0.1 * index)),
        )
        for index in range(2)
    ]
    return Metrics(replicas=tuple(replicas), samples_trained=int(rate * at_s), samples_left=left)


def watch(resizer: Resizer, seen: list[Metrics], current: Allocation, begin_s: float = 0.0) -> Action | None:
    """Return the first action, where a look is taken every ten seconds."""
    for number, each in enumerate(seen):
        if action := resizer.act(begin_s + 10.0 * number, each, current, TAKES_S):
            return action
    return None


def test_replicas_that_use_what_they_have_are_left_alone() -> None:
    assert watch(Resizer(job()), [metrics(10.0 * n) for n in range(60)], allocation()) is None


def test_memory_that_grows_is_enlarged_before_it_reaches_the_limit() -> None:
    current, resizer = allocation(), Resizer(job())
    for number in range(100):
        peak = 100 * MIB + number * 10 * MIB  # 1 MiB/s
        action = resizer.act(10.0 * number, metrics(10.0 * number, peak=peak), current, TAKES_S)
        if action:
            break
    assert action is not None
    assert peak < GIB - 40 * MIB, "in time for the change"
    assert peak > 0.8 * GIB, "not long before"
    assert action.target is not None
    (worker,) = action.target.worker
    assert worker.memory_bytes == pytest.approx((peak + 1800 * MIB) * 1.15, rel=0.05), "for half an hour"
    assert (worker.replicas, worker.cpu) == (2, 4.0)
    assert "grows by 60.0 MiB a minute" in action.reason


def test_memory_is_forecast_until_the_end_of_the_job() -> None:
    seen = [metrics(10.0 * n, peak=(900 + 5 * n) * MIB, left=20_000) for n in range(20)]
    action = watch(Resizer(job()), seen, allocation())
    assert action is not None
    assert action.target is not None
    assert action.target.worker[0].memory_bytes < 1.3 * GIB, "20 s are left"


def test_memory_stays_within_the_bounds() -> None:
    seen = [metrics(10.0 * n, peak=(900 + 20 * n) * MIB) for n in range(20)]
    action = watch(Resizer(job(WORKER | {"memory": ["256Mi", "1536Mi"]})), seen, allocation())
    assert action is not None
    assert action.target is not None
    assert action.target.worker[0].memory_bytes == 1536 * MIB
    at_bounds = watch(Resizer(job(WORKER | {"memory": ["256Mi", "1Gi"]})), seen, allocation())
    assert at_bounds is not None
    assert at_bounds.target is None
    assert "no more memory" in at_bounds.reason


def test_steady_memory_near_its_limit_is_left_alone() -> None:
    seen = [metrics(10.0 * n, peak=1020 * MIB) for n in range(40)]
    assert watch(Resizer(job()), seen, allocation()) is None


def test_idle_cores_are_given_back_with_headroom() -> None:
    action = watch(Resizer(job()), [metrics(10.0 * n, cores=1.0) for n in range(20)], allocation())
    assert action is not None
    assert action.target is not None
    assert action.target.worker[0].cpu == 1.25
    assert action.reason == "The busiest worker uses 1.000 of 4 cores; 1.25 cores are enough."


def test_cores_are_judged_over_a_minute() -> None:
    resizer = Resizer(job(), Resizing(watch_s=60))
    seen = [resizer.act(10.0 * n, metrics(10.0 * n, cores=1.0), allocation(), TAKES_S) for n in range(7)]
    assert seen[:6] == [None] * 6
    assert seen[6] is not None


@pytest.mark.parametrize("cores", [0.0, 2.8])
def test_unknown_and_almost_used_cores_are_kept(cores: float) -> None:
    assert watch(Resizer(job()), [metrics(10.0 * n, cores=cores) for n in range(40)], allocation()) is None


def test_amounts_without_bounds_are_left_alone() -> None:
    seen = [metrics(10.0 * n, cores=1.0, peak=(900 + 20 * n) * MIB) for n in range(20)]
    assert watch(Resizer(job({"replicas": [1, 8]})), seen, allocation()) is None


def test_cores_that_are_missed_come_back_and_stay() -> None:
    resizer, before = Resizer(job()), allocation()
    action = watch(resizer, [metrics(10.0 * n, cores=1.0) for n in range(20)], before)
    assert action is not None
    assert action.target is not None
    resizer.changed(before, action.target)
    slower = [metrics(200 + 10.0 * n, cores=1.0, rate=900.0) for n in range(20)]
    restored = watch(resizer, slower, action.target, begin_s=200.0)
    assert restored is not None
    assert restored.target == before
    resizer.changed(action.target, before)
    assert watch(resizer, [metrics(500 + 10.0 * n, cores=1.0) for n in range(40)], before, begin_s=500.0) is None


def test_cores_that_are_not_missed_stay_away() -> None:
    resizer, before = Resizer(job()), allocation()
    action = watch(resizer, [metrics(10.0 * n, cores=1.0) for n in range(20)], before)
    assert action is not None
    assert action.target is not None
    resizer.changed(before, action.target)
    same = [metrics(200 + 10.0 * n, cores=1.0, rate=990.0) for n in range(40)]
    assert watch(resizer, same, action.target, begin_s=200.0) is None


def test_replicas_of_several_sizes_are_left_alone() -> None:
    small, large = Group(replicas=1, cpu=1.0, memory_bytes=GIB), Group(replicas=1, cpu=4.0, memory_bytes=GIB)
    mixed = Allocation(worker=(small, large), ps=(), batch_size=64)
    assert watch(Resizer(job()), [metrics(10.0 * n, cores=0.5) for n in range(20)], mixed) is None


def test_restarted_replicas_are_watched_anew() -> None:
    resizer = Resizer(job())
    assert watch(resizer, [metrics(10.0 * n, cores=1.0) for n in range(6)], allocation()) is None
    assert watch(resizer, [metrics(10.0 * n, cores=1.0) for n in range(6)], allocation(), begin_s=60.0) is None


def test_cores_come_back_without_the_memory_of_then() -> None:
    resizer, before = Resizer(job()), allocation()
    action = watch(resizer, [metrics(10.0 * n, cores=1.0) for n in range(20)], before)
    assert action is not None
    assert action.target is not None
    resizer.changed(before, action.target)
    larger = allocation(cpu=action.target.worker[0].cpu, memory_bytes=4 * GIB)
    resizer.changed(action.target, larger)
    restored = watch(resizer, [metrics(300 + 10.0 * n, cores=1.0, rate=500.0) for n in range(20)], larger, 300.0)
    assert restored is not None
    assert restored.target == allocation(memory_bytes=4 * GIB)


def test_start_without_training_says_nothing_of_cores() -> None:
    seen = [metrics(10.0 * n, cores=0.05, rate=0.0) for n in range(20)]
    assert watch(Resizer(job()), seen, allocation()) is None


def test_silence_of_a_log_is_not_idleness() -> None:
    """Nothing is printed during an evaluation, which uses all cores."""

    def at(look_s: float) -> Metrics:
        told_s = min(look_s, 60.0)
        seen = metrics(told_s, cores=3.9)
        replicas = [r.model_copy(update={"at_s": 1e9 + look_s, "last_step_at_s": 1e9 + told_s}) for r in seen.replicas]
        return seen.model_copy(update={"replicas": tuple(replicas), "samples_trained": int(1000 * look_s)})

    assert watch(Resizer(job()), [at(10.0 * n) for n in range(30)], allocation()) is None


def test_role_at_its_bounds_does_not_hide_another() -> None:
    bounds = {"worker": WORKER | {"memory": ["256Mi", "1Gi"]}, "ps": WORKER}
    both = Job.model_validate({"name": "ctr", "command": {"run": "train", "rendezvous": "hosts"}, "bounds": bounds})
    current = allocation().model_copy(update={"ps": (Group(replicas=1, cpu=4.0, memory_bytes=GIB),)})

    def at(number: int) -> Metrics:
        seen = metrics(10.0 * number, peak=(900 + 20 * number) * MIB)
        ps = seen.replicas[0].model_copy(update={"role": "ps"})
        return seen.model_copy(update={"replicas": (*seen.replicas, ps)})

    action = watch(Resizer(both), [at(n) for n in range(20)], current)
    while action is not None and action.target is None:
        action = watch(Resizer(both), [at(n) for n in range(20)], current)
    assert action is not None
    assert action.target is not None
    assert action.target.ps[0].memory_bytes > GIB
    assert action.target.worker == current.worker
