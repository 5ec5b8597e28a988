from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from sizewright.profiler import TrialPlanner
from sizewright.profiler.planner.feasible import success_probability

PLACES = np.array(list(itertools.product(np.linspace(0, 1, 6), repeat=2)))
RNG = np.random.default_rng


def test_without_failures_all_candidates_are_feasible() -> None:
    assert success_probability(PLACES, [0, 5], [], RNG(0)).tolist() == [1.0] * len(PLACES)


def test_slanted_border_of_feasibility_is_learned() -> None:
    truth = PLACES.sum(axis=1) < 1.1
    tried = RNG(1).permutation(len(PLACES))[:14]
    chance = success_probability(PLACES, [i for i in tried if truth[i]], [i for i in tried if not truth[i]], RNG(0))
    assert np.mean((chance > 0.5) == truth) > 0.9
    assert chance[0] > 0.9
    assert chance[-1] < 0.2
    assert all(chance[i] == truth[i] for i in tried)


def test_one_failure_makes_its_neighbours_less_likely() -> None:
    chance = success_probability(PLACES, [], [35], RNG(0))
    assert chance[35] == 0
    assert 0.2 < chance[34] < 0.8
    assert chance[34] < chance[0]


def test_as_many_successes_as_failures_are_feasible() -> None:
    assert success_probability(PLACES, [7], [7], RNG(0))[7] == 1.0
    assert success_probability(PLACES, [7], [7, 7], RNG(0))[7] == 0.0


@pytest.mark.parametrize("most_cores", [8, 16])
@pytest.mark.parametrize("objective", ["time", "balanced"])
def test_recommended_allocation_runs_despite_memory_limit(most_cores: int, objective: str) -> None:
    """Half or a quarter of the candidates run out of memory, the fastest among them."""
    axes = itertools.product((1, 2, 4, 8, 12, 16), (1, 2, 4, 8), (1.0, 2.0, 4.0))
    frame = pd.DataFrame(axes, columns=["workers", "ps", "worker_cpu"])

    def rate(row: dict[str, float]) -> float:
        return row["workers"] / (0.1 / row["worker_cpu"] + 0.01 + 0.01 * row["workers"] / row["ps"])

    best = max(rate(row) for row in frame.to_dict("records") if row["workers"] * row["worker_cpu"] <= most_cores)
    for seed in range(3):
        planner = TrialPlanner(frame, objective, seed=seed, max_trials=8)
        while (asked := planner.ask()) is not None:
            planner.tell(asked, rate(asked) if asked["workers"] * asked["worker_cpu"] <= most_cores else 0.0)
        pick = planner.best()
        assert pick["workers"] * pick["worker_cpu"] <= most_cores
        if objective == "time":
            assert rate(pick) > 0.7 * best
