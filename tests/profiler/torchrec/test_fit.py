"""Fits of the planner's constants to steps whose constants are known."""

from __future__ import annotations

import numpy as np
import pytest

from sizewright.profiler.torchrec.fit import COSTS, constants_of, fit_costs, fit_storage, prior_costs, step_times
from tests.helpers.torchrec_calibrations import PROBES


def known_costs(rng: np.random.Generator) -> np.ndarray:
    costs = prior_costs(PROBES).expected * np.exp(rng.normal(0, 0.7, len(COSTS)))
    fixed = {"fused_input": 2e-5, "data_parallel_input": 1e-5, "distinct_row_ms": 5e-4}
    fixed |= {"shard_ms": 0.3, "table_ms": 0.8, "step_ms": 4.0, "exchange_ms": 2.0, "data_parallel_ms": 3.0}
    return np.array([fixed.get(name, cost) for name, cost in zip(COSTS, costs, strict=True)])


def steps_of(rng: np.random.Generator, count: int, ranks: int = 2) -> list[np.ndarray]:
    """Return times of ranks for one unit of each cost: bytes, and how often a fixed time counts."""
    steps = []
    for _ in range(count):
        units = np.exp(rng.uniform(np.log(1e5), np.log(3e7), (ranks, len(COSTS)))) * (rng.random(len(COSTS)) < 0.4)
        units[:, [COSTS.index("fused_input"), COSTS.index("data_parallel_input")]] /= 100
        units[:, COSTS.index("distinct_row_ms")] /= 1000
        fixed = [COSTS.index(name) for name in ("shard_ms", "table_ms", "step_ms", "exchange_ms", "data_parallel_ms")]
        units[:, fixed] = [rng.integers(1, 12), rng.integers(1, 12), 1, rng.integers(0, 3), rng.integers(0, 2)]
        steps.append(units)
    return steps


def test_known_costs_predict_steps_that_were_not_fitted() -> None:
    rng = np.random.default_rng(3)
    costs, training, others = known_costs(rng), steps_of(rng, 60), steps_of(rng, 40)
    fitted = fit_costs(training, step_times(training, costs), prior_costs(PROBES))
    errors = np.abs(step_times(others, fitted) / step_times(others, costs) - 1)
    assert np.median(errors) < 0.02
    assert errors.max() < 0.2


def test_costs_that_dominate_are_recovered() -> None:
    rng = np.random.default_rng(4)
    costs, training = known_costs(rng), steps_of(rng, 200)
    fitted = fit_costs(training, step_times(training, costs), prior_costs(PROBES))
    for name in ("step_ms", "reduce_scatter", "all_reduce", "fused_lookup"):
        assert fitted[COSTS.index(name)] == pytest.approx(costs[COSTS.index(name)], rel=0.1), name


def test_steps_that_other_work_lengthens_hardly_change_the_fit() -> None:
    rng = np.random.default_rng(5)
    costs, training, others = known_costs(rng), steps_of(rng, 60), steps_of(rng, 40)
    measured = step_times(training, costs)
    measured[::10] *= 3
    fitted = fit_costs(training, measured, prior_costs(PROBES))
    assert np.median(np.abs(step_times(others, fitted) / step_times(others, costs) - 1)) < 0.05


def test_costs_are_never_negative_and_unknown_ones_keep_the_measured_bandwidth() -> None:
    rng = np.random.default_rng(6)
    training = steps_of(rng, 30)
    unused = COSTS.index("all_reduce")
    for step in training:
        step[:, unused] = 0
    measured = step_times(training, known_costs(rng)) * np.exp(rng.normal(0, 0.5, 30))
    prior = prior_costs(PROBES)
    fitted = fit_costs(training, measured, prior)
    assert (fitted >= 0).all()
    assert fitted[unused] == pytest.approx(prior.expected[unused])


def test_one_rank_alone_has_a_prior_without_collectives() -> None:
    prior = prior_costs({name: PROBES[name] for name in ("lookup", "memory")})
    assert (prior.expected >= 0).all()
    assert prior.expected[COSTS.index("all_to_all")] == 1 / PROBES["memory"]


def test_constants_amount_to_the_costs() -> None:
    costs = known_costs(np.random.default_rng(7))
    constants = constants_of(costs, 2.5, PROBES["memory"])
    cost = dict(zip(COSTS, costs, strict=True))
    lookups = constants["fused_lookup"] * (1 + 2.5) / constants["fused_bandwidth"]
    assert lookups == pytest.approx(cost["fused_lookup"])
    outputs = constants["data_parallel_output"] * (1 + 2.5) / constants["dense_bandwidth"]
    assert outputs == pytest.approx(cost["data_parallel_output"])
    assert constants["all_reduce_bandwidth"] == pytest.approx(1 / cost["all_reduce"])
    assert constants["exchange_ms"] == cost["exchange_ms"]


def test_storage_factors_are_recovered() -> None:
    counted = np.random.default_rng(8).uniform(1e6, 1e8, (20, 2))
    factors = fit_storage(counted, counted @ [1.1, 3.0])
    assert factors == pytest.approx([1.1, 3.0], rel=0.02)
