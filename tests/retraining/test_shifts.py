from __future__ import annotations

from datetime import datetime, timedelta, timezone

import numpy as np
import pytest

from sizewright.datasets.trials.trial import Trial
from sizewright.retraining.shifts import since_last_shift

DAY = datetime(2026, 1, 1, tzinfo=timezone.utc)


def runs_at(rates: list[float], workers: int = 2, first: int = 0, noise: float = 0.08) -> list[Trial]:
    rng = np.random.default_rng(len(rates) + workers)
    return [
        Trial(
            workers=workers, ps=1, throughput=rate * float(np.exp(noise * rng.standard_normal())),
            started_at=DAY + timedelta(hours=first + hour),
        )
        for hour, rate in enumerate(rates)
    ]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), [(1.0, 0.4), (1.0, 3.0), (0.5, 0.4)])
def test_trials_before_a_lasting_change_are_left_out(old: float, new: float) -> None:
    trials = runs_at([1000 * old] * 60 + [1000 * new] * 30)
    recent = since_last_shift(trials[::-1])  # in any order
    assert abs(len(recent) - 30) <= 3
    assert recent[-1] == trials[-1]


def test_last_of_two_changes_counts() -> None:
    assert len(since_last_shift(runs_at([1000.0] * 20 + [300.0] * 20 + [600.0] * 12))) in (11, 12, 13)


def test_noise_outliers_and_few_new_runs_are_no_change() -> None:
    for seed in range(30):
        constant = runs_at([1000.0] * (40 + seed))
        assert len(since_last_shift(constant)) == len(constant)
    outliers = runs_at([1000.0] * 20 + [10.0] * 3 + [1000.0] * 20 + [1e5] + [1000.0] * 10)
    assert len(since_last_shift(outliers)) == len(outliers)
    few_new_runs = runs_at([1000.0] * 40 + [300.0] * 5)
    assert len(since_last_shift(few_new_runs)) == len(few_new_runs)


def test_other_allocations_are_no_change() -> None:
    trials = [*runs_at([1000.0] * 20), *runs_at([4000.0] * 20, workers=8, first=20)]
    assert since_last_shift(trials) == trials
    assert since_last_shift([]) == []
    assert len(since_last_shift(runs_at([1000.0]))) == 1
