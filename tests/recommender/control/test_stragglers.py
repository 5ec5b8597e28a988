from __future__ import annotations

import math

import numpy as np
import pytest

from sizewright.recommender.control.stragglers import StragglerDetector, paces
from sizewright.recommender.control.windows import ReplicaWindow, Window


def replica(name: str, own_s: float, steps: int = 1) -> ReplicaWindow:
    role = "worker" if name.startswith("worker") else "ps"
    work = {"compute_s": own_s * steps} if role == "worker" else {"busy_s": own_s * steps}
    defaults = dict.fromkeys(ReplicaWindow._fields, 0) | {"name": name, "role": role, "seconds": 1.0}
    return ReplicaWindow(**(defaults | {"steps": steps, "exchanges": steps} | work))


def window(*replicas: ReplicaWindow) -> Window:
    return Window(1.0, 1.0, 100, 100, 1000, replicas)


def steps_until_detected(ratio: float, seed: int, workers: int = 4, noise: float = 0.25) -> int | None:
    """Return the step at which a worker that takes `ratio` times as long is detected; a step a window."""
    rng, watch = np.random.default_rng(seed), StragglerDetector()
    for step in range(1, 101):
        seconds = 0.05 * np.exp(noise * rng.standard_normal(workers))
        seconds[1] *= ratio
        stragglers = watch.add(window(*(replica(f"worker-{i}", float(s)) for i, s in enumerate(seconds))))
        if stragglers:
            assert ratio == 1 or [slow.name for slow in stragglers] == ["worker-1"]
            return step
    return None


def test_worker_at_half_speed_is_detected_within_20_steps() -> None:
    steps = [steps_until_detected(2.0, seed) for seed in range(100)]
    assert np.mean([step is not None and step <= 20 for step in steps]) >= 0.95


def test_worker_at_a_fifth_of_the_speed_is_detected_in_10_steps() -> None:
    assert all(steps_until_detected(5.0, seed) == 10 for seed in range(20))


def test_noise_raises_no_alarm() -> None:
    assert [steps_until_detected(1.0, seed, noise=0.4) for seed in range(50)] == [None] * 50


def test_slowdown_of_all_replicas_raises_no_alarm() -> None:
    watch = StragglerDetector()
    for factor in (1.0, 5.0, 20.0, 1.0):
        for _ in range(20):
            assert watch.add(window(*(replica(f"worker-{i}", 0.05 * factor) for i in range(3)))) == []


def test_single_long_pause_raises_no_alarm() -> None:
    watch = StragglerDetector()
    assert (
        watch.add(
            window(
                replica("worker-0", 0.05, 20),
                replica("worker-1", 5.0, 20),
                replica("worker-2", 0.05, 20),
            )
        )
        == []
    )


def test_ps_are_compared_with_ps() -> None:
    watch = StragglerDetector()
    slow = window(
        replica("worker-0", 0.5, 10),
        replica("worker-1", 0.5, 10),
        replica("ps-0", 0.01, 20),
        replica("ps-1", 0.05, 20),
    )
    stragglers = [watch.add(slow) for _ in range(3)][-1]
    assert [(slow.name, slow.role) for slow in stragglers] == [("ps-1", "ps")]
    assert stragglers[0].ratio == pytest.approx(5.0)


def lone(*seconds: float) -> list[Window]:
    """Return windows of a job with three workers and one PS, which takes these seconds per exchange."""
    workers = [replica(f"worker-{i}", 0.05, 10) for i in range(3)]
    return [window(*workers, replica("ps-0", s, 20)) for s in seconds]


def test_only_ps_is_compared_with_its_earlier_windows() -> None:
    watch = StragglerDetector()
    stragglers = [watch.add(each) for each in lone(*[0.01] * 5, *[0.04] * 3)]
    assert stragglers[:-1] == [[]] * 7  # two slow windows may be the host's
    (slow,) = stragglers[-1]
    assert (slow.name, slow.ratio, slow.windows) == ("ps-0", pytest.approx(4 ** (1 - 0.7**3)), 3)  # smoothed
    assert slow.earlier is not None
    assert (slow.earlier.busy_s, slow.earlier.exchanges) == (pytest.approx(1.0), 100)  # slow windows are no reference


def test_only_replica_without_earlier_windows_is_not_slow() -> None:
    watch = StragglerDetector()
    assert [watch.add(each) for each in lone(*[0.1] * 20)] == [[]] * 20
    watch = StragglerDetector()
    few = [watch.add(window(replica("ps-0", s, 4))) for s in (*[0.01] * 5, *[0.1] * 5)]
    assert few == [[]] * 10  # 20 exchanges may be chance


def test_chief_is_not_compared() -> None:
    watch = StragglerDetector()
    chief = replica("worker-0", 0.1, 20)._replace(name="chief-0", role="chief")
    assert [watch.add(window(chief)) for _ in range(20)] == [[]] * 20


def test_only_replica_keeps_its_reference_over_a_migration() -> None:
    watch = StragglerDetector()
    for each in lone(*[0.01] * 5):
        watch.add(each)
    watch.forget(earlier=False)
    assert [watch.add(each) for each in lone(*[0.04] * 3)][-1]
    watch.forget()
    assert [watch.add(each) for each in lone(*[0.04] * 20)] == [[]] * 20


@pytest.mark.parametrize("role", ["worker", "ps"])
def test_noise_of_an_only_replica_raises_no_alarm(role: str) -> None:
    rng, watch = np.random.default_rng(0), StragglerDetector()
    for seconds in 0.05 * np.exp(0.3 * rng.standard_normal(2000)):
        assert watch.add(window(replica(f"{role}-0", float(seconds), 20))) == []


def test_single_replica_has_no_peers() -> None:
    assert paces([replica("ps-0", 0.1)]) == []
    assert paces([replica("worker-0", 0.1), replica("worker-1", 0.1, 0)]) == []
    (first, second) = paces([replica("worker-0", 0.1), replica("worker-1", 0.4)])
    assert (first.ratio, second.ratio) == (pytest.approx(0.25), pytest.approx(4.0))


def test_alarm_ends_when_the_replica_recovers() -> None:
    watch = StragglerDetector()
    slow = window(replica("worker-0", 0.05), replica("worker-1", 0.2), replica("worker-2", 0.05))
    fine = window(*(replica(f"worker-{i}", 0.05) for i in range(3)))
    assert [watch.add(slow) for _ in range(30)][-1]
    assert [watch.add(fine) for _ in range(30)][-1] == []
    watch.forget()
    assert watch.add(slow) == []
    assert math.isfinite(sum(each.ratio for _ in range(12) for each in watch.add(slow)))
