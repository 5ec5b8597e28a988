from __future__ import annotations

import math

import numpy as np
import pytest

from sizewright.recommender.slow_replicas import SlowReplicas, paces
from sizewright.recommender.windows import Doing, Window


def doing(name: str, own_s: float, steps: int = 1) -> Doing:
    role = "worker" if name.startswith("worker") else "ps"
    work = {"compute_s": own_s * steps} if role == "worker" else {"busy_s": own_s * steps}
    usual = dict.fromkeys(Doing._fields, 0) | {"name": name, "role": role, "seconds": 1.0}
    return Doing(**(usual | {"steps": steps, "exchanges": steps} | work))


def window(*replicas: Doing) -> Window:
    return Window(1.0, 1.0, 100, 100, 1000, replicas)


def steps_until_found(ratio: float, seed: int, workers: int = 4, noise: float = 0.25) -> int | None:
    """One of the workers takes so many times as long; a step a window."""
    rng, watch = np.random.default_rng(seed), SlowReplicas()
    for step in range(1, 101):
        seconds = 0.05 * np.exp(noise * rng.standard_normal(workers))
        seconds[1] *= ratio
        found = watch.add(window(*(doing(f"worker-{i}", float(s)) for i, s in enumerate(seconds))))
        if found:
            assert ratio == 1 or [slow.name for slow in found] == ["worker-1"]
            return step
    return None


def test_a_worker_at_half_speed_is_found_within_20_steps() -> None:
    steps = [steps_until_found(2.0, seed) for seed in range(100)]
    assert np.mean([step is not None and step <= 20 for step in steps]) >= 0.95


def test_one_at_a_fifth_is_found_as_soon_as_may_be() -> None:
    assert all(steps_until_found(5.0, seed) == 10 for seed in range(20))


def test_noise_is_no_finding() -> None:
    assert [steps_until_found(1.0, seed, noise=0.4) for seed in range(50)] == [None] * 50


def test_what_slows_all_is_no_ones_fault() -> None:
    watch = SlowReplicas()
    for factor in (1.0, 5.0, 20.0, 1.0):
        for _ in range(20):
            assert watch.add(window(*(doing(f"worker-{i}", 0.05 * factor) for i in range(3)))) == []


def test_a_single_long_pause_is_no_finding() -> None:
    watch = SlowReplicas()
    assert watch.add(window(doing("worker-0", 0.05, 20), doing("worker-1", 5.0, 20), doing("worker-2", 0.05, 20))) == []


def test_ps_are_held_against_ps() -> None:
    watch = SlowReplicas()
    told = window(
        doing("worker-0", 0.5, 10), doing("worker-1", 0.5, 10), doing("ps-0", 0.01, 20), doing("ps-1", 0.05, 20)
    )
    found = [watch.add(told) for _ in range(3)][-1]
    assert [(slow.name, slow.role) for slow in found] == [("ps-1", "ps")]
    assert found[0].ratio == pytest.approx(5.0)


def test_one_alone_has_nothing_to_be_held_against() -> None:
    assert paces([doing("ps-0", 0.1)]) == []
    assert paces([doing("worker-0", 0.1), doing("worker-1", 0.1, 0)]) == []
    (first, second) = paces([doing("worker-0", 0.1), doing("worker-1", 0.4)])
    assert (first.ratio, second.ratio) == (pytest.approx(0.25), pytest.approx(4.0))


def test_one_that_is_as_fast_again_is_no_finding_any_more() -> None:
    watch = SlowReplicas()
    slow = window(doing("worker-0", 0.05), doing("worker-1", 0.2), doing("worker-2", 0.05))
    fine = window(*(doing(f"worker-{i}", 0.05) for i in range(3)))
    assert [watch.add(slow) for _ in range(30)][-1]
    assert [watch.add(fine) for _ in range(30)][-1] == []
    watch.forget()
    assert watch.add(slow) == []
    assert math.isfinite(sum(each.ratio for _ in range(12) for each in watch.add(slow)))
