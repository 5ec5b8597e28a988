"""How many inference servers are lent: told from the past alone, with a headroom that holds."""

from __future__ import annotations

import numpy as np
import pytest

from sizewright.cluster.loaning import HEADROOM, MIN_ERRORS, forecast, lendable, shortfall
from sizewright.cluster.simulator.scenario import inference_day

DAY = 288


def test_inference_seldom_lacks_servers_that_are_lent_and_most_of_what_is_idle_is_lent() -> None:
    demand = inference_day(520, 10 * DAY, 300.0, seed=1)
    lent = lendable(demand, 520, DAY)
    assert shortfall(demand, lent, 520) < 0.03
    idle = 520 - demand[DAY:]
    assert lent[DAY:].sum() > 0.8 * idle.sum()


def test_the_day_is_as_the_paper_tells_it() -> None:
    demand = inference_day(1000, 4 * DAY, 300.0, seed=2) / 1000
    assert demand.min() == pytest.approx(0.42, abs=0.05)
    assert demand.max() == pytest.approx(0.95, abs=0.05)


def test_what_is_lent_is_told_by_the_steps_before() -> None:
    demand = inference_day(100, 3 * DAY, 300.0, seed=3)
    changed = demand.copy()
    changed[400:] = 100.0
    assert np.array_equal(lendable(demand, 100, DAY)[:401], lendable(changed, 100, DAY)[:401])


def test_nothing_is_lent_before_errors_are_known_and_headroom_is_kept() -> None:
    lent = lendable(np.full(100, 40.0), 100, DAY)
    assert not lent[: MIN_ERRORS + 1].any()
    assert lent[-1] == 100 - 40 - HEADROOM * 100


def test_the_forecast_is_as_far_above_the_last_steps_as_the_days_before() -> None:
    assert forecast(np.array([1.0, 5.0, 2.0, 6.0]), 2) == 4.0 + (2.0 - 3.0)
    assert forecast(np.array([7.0]), 2) == 7.0
    steps = np.arange(4 * DAY) / DAY
    wave = 50 + 20 * np.sin(2 * np.pi * steps) + 10 * np.floor(steps)
    assert forecast(wave[:-1], DAY) == pytest.approx(wave[-1], abs=0.1)
