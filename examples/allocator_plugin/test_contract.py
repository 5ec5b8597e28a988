"""Run the contract of allocators, and compare with the rule of the paper: pytest test_contract.py"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sizewright_afs import AfsL

from sizewright.cluster import Problem
from sizewright.testing import AllocatorContract
from sizewright.testing.problems import problem_of


class TestAfsL(AllocatorContract):
    @pytest.fixture
    def allocator(self) -> AfsL:
        return AfsL()


def jobs(powers: np.ndarray, remaining: np.ndarray, units: int) -> Problem:
    """Return a problem of jobs whose speed on k units is a power of k, with `units` units in total."""
    speed = np.arange(units + 1) ** powers[:, None]
    sizes = np.tile(np.arange(1, units + 1), (len(powers), 1))
    problem = problem_of(sizes, speed[:, 1:], [units], scheduler_state=True)
    return replace(problem, scheduler_state=replace(problem.scheduler_state, speed=speed, remaining=remaining))


def allocate_by_rule(powers: np.ndarray, remaining: np.ndarray, units: int) -> list[int]:
    """Return the units of each job by the rule of the paper, applied one unit and one pair at a time."""
    allocated = [0] * len(powers)
    for _ in range(units):
        remaining_s = [w / max(k, 1) ** p for w, k, p in zip(remaining, allocated, powers, strict=True)]
        a, *others = np.argsort(remaining_s)
        for b in others:
            now = [allocated[j] ** powers[j] if allocated[j] else 0 for j in (a, b)]
            then = [(allocated[j] + 1) ** powers[j] for j in (a, b)]
            if now[0] and (then[1] - now[1]) / then[1] > (then[0] - now[0]) / now[0]:
                a = b
        allocated[a] += 1
    return allocated


@pytest.mark.parametrize("seed", range(20))
def test_units_are_allocated_by_the_rule_of_the_paper(seed: int) -> None:
    rng = np.random.default_rng(seed)
    powers, remaining = rng.uniform(0.1, 1.0, 6), rng.lognormal(5, 1, 6)
    assert list(AfsL()(jobs(powers, remaining, 16)).choice) == allocate_by_rule(powers, remaining, 16)


def test_long_job_with_better_scaling_gets_more_units() -> None:
    short, long = AfsL()(jobs(np.array([0.2, 0.9]), np.array([100.0, 200.0]), 8)).choice
    assert long > short > 0
