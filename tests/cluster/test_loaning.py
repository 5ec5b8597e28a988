"""The number of loaned inference servers depends on past demand only and keeps a headroom."""

from __future__ import annotations

import numpy as np
import pytest

from sizewright.cluster.loaning import HEADROOM, MIN_ERRORS, forecast, lendable, shortfall
from sizewright.cluster.simulator.scenario import inference_day

DAY = 288


def test_most_idle_servers_are_loaned_with_rare_shortfalls() -> None:
    demand = inference_day(520, 10 * DAY, 300.0, seed=1)
    loaned = lendable(demand, 520, DAY)
    assert shortfall(demand, loaned, 520) < 0.03
    idle = 520 - demand[DAY:]
    assert loaned[DAY:].sum() > 0.8 * idle.sum()


def test_inference_demand_matches_the_published_range() -> None:
    demand = inference_day(1000, 4 * DAY, 300.0, seed=2) / 1000
    assert demand.min() == pytest.approx(0.42, abs=0.05)
    assert demand.max() == pytest.approx(0.95, abs=0.05)


def test_loans_depend_only_on_past_steps() -> None:
    demand = inference_day(100, 3 * DAY, 300.0, seed=3)
    changed = demand.copy()
    changed[400:] = 100.0
    assert np.array_equal(lendable(demand, 100, DAY)[:401], lendable(changed, 100, DAY)[:401])


def test_loans_start_once_errors_are_known_and_keep_the_headroom() -> None:
    loaned = lendable(np.full(100, 40.0), 100, DAY)
    assert not loaned[: MIN_ERRORS + 1].any()
    assert loaned[-1] == 100 - 40 - HEADROOM * 100


def test_forecast_repeats_yesterdays_rise_over_the_last_steps() -> None:
    assert forecast(np.array([1.0, 5.0, 2.0, 6.0]), 2) == 4.0 + (2.0 - 3.0)
    assert forecast(np.array([7.0]), 2) == 7.0
    steps = np.arange(4 * DAY) / DAY
    wave = 50 + 20 * np.sin(2 * np.pi * steps) + 10 * np.floor(steps)
    assert forecast(wave[:-1], DAY) == pytest.approx(wave[-1], abs=0.1)
