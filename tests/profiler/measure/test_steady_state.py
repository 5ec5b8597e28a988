from __future__ import annotations

import numpy as np
import pytest

from sizewright.profiler.measure.steady_state import Series, find_steady


def series(rates: list[tuple[float, float]], every_s: float = 0.1, noise: float = 0.02, seed: int = 0) -> Series:
    """Return the reports of a run with consecutive phases of (seconds, samples/s)."""
    rng, at, count = np.random.default_rng(seed), 0.0, 0.0
    reports = [(0.0, 0)]
    for seconds, rate in rates:
        for _ in range(round(seconds / every_s)):
            at += every_s
            count += rate * every_s * (1 + noise * rng.standard_normal())
            reports.append((at, int(count)))
    return reports


def test_slow_start_is_cut_off() -> None:
    result = find_steady([series([(2.0, 1000.0), (8.0, 5000.0)])], 0.0)
    assert result is not None
    assert 1.5 <= result.since_s <= 3.5
    assert result.rate == pytest.approx(5000, rel=0.02)
    assert 0 < result.rate_se < 0.02 * result.rate


def test_rates_of_replicas_are_summed() -> None:
    result = find_steady([series([(8.0, 1000.0)], seed=1), series([(8.0, 500.0)], every_s=0.3, seed=2)], 0.0)
    assert result is not None
    assert result.rate == pytest.approx(1500, rel=0.02)


@pytest.mark.parametrize(
    "rates",
    [
        [(0.5, 1000.0)],  # too short
        [(1.0, r) for r in np.linspace(1000, 5000, 12)],  # ever faster
        [(4.0, 1000.0), (5.0, 3000.0)],  # a step near the middle
    ],
)
def test_unsteady_rates_give_no_result(rates: list[tuple[float, float]]) -> None:
    assert find_steady([series(rates)], 0.0) is None


def test_reports_before_the_start_are_ignored() -> None:
    reports = series([(4.0, 9000.0), (8.0, 3000.0)])
    result = find_steady([reports], 4.05)
    assert result is not None
    assert result.rate == pytest.approx(3000, rel=0.02)


def test_rare_reports_give_long_blocks() -> None:
    result = find_steady([series([(40.0, 100.0)], every_s=2.0, noise=0.0)], 0.0)
    assert result is not None
    assert result.rate == pytest.approx(100, rel=0.01)
    assert find_steady([series([(15.0, 100.0)], every_s=2.0)], 0.0) is None


def test_missing_reports_give_no_result() -> None:
    assert find_steady([], 0.0) is None
    assert find_steady([[(0.0, 0)]], 0.0) is None
