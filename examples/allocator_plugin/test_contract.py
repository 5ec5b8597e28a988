"""The contract of allocators, for this one, and the paper's rule: pytest test_contract.py"""

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
    """Jobs that are as fast on k units, of which there are so many, as a power of k."""
    speed = np.arange(units + 1) ** powers[:, None]
    sizes = np.tile(np.arange(1, units + 1), (len(powers), 1))
    problem = problem_of(sizes, speed[:, 1:], [units], scheduler_state=True)
    return replace(problem, scheduler_state=replace(problem.scheduler_state, speed=speed, remaining=remaining))


def by_the_rule(powers: np.ndarray, remaining: np.ndarray, units: int) -> list[int]:
    """Unit by unit and pair by pair, as the paper has it."""
    has = [0] * len(powers)
    for _ in range(units):
        left = [w / max(k, 1) ** p for w, k, p in zip(remaining, has, powers, strict=True)]
        a, *others = np.argsort(left)
        for b in others:
            now, then = ([(has[j] + more) ** powers[j] if has[j] + more else 0 for j in (a, b)] for more in (0, 1))
            if now[0] and (then[1] - now[1]) / then[1] > (then[0] - now[0]) / now[0]:
                a = b
        has[a] += 1
    return has


@pytest.mark.parametrize("seed", range(20))
def test_units_go_to_whom_the_rule_gives_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    powers, remaining = rng.uniform(0.1, 1.0, 6), rng.lognormal(5, 1, 6)
    assert list(AfsL()(jobs(powers, remaining, 16)).choice) == by_the_rule(powers, remaining, 16)


def test_a_long_job_that_makes_more_of_units_has_more_of_them() -> None:
    short, long = AfsL()(jobs(np.array([0.2, 0.9]), np.array([100.0, 200.0]), 8)).choice
    assert long > short > 0
