from __future__ import annotations

import numpy as np
import pytest

from sizewright.datasets.trial_bank.files import Bank
from sizewright.models.prior.rows import as_rows, fit_rows


def test_repeats_become_one_row_with_their_medians(made_bank: Bank) -> None:
    jobs = {key: each.job for key, each in made_bank.jobs.items()}
    trials = list(made_bank.trials[:40])
    one = trials[0]
    rates = [(one.throughput or 0.0) * factor for factor in (0.5, 0.9, 1.1)]
    unknown = {"worker_cpu_used": None, "series": "other"}
    more = [one.model_copy(update={"throughput": rate} | unknown) for rate in rates]
    before, rows = (as_rows(some, jobs).distinct() for some in (trials, [*trials, *more]))
    assert len(rows.job) == len(before.job)
    repeated = int(np.flatnonzero(rows.trial == 0)[0])
    assert np.exp(rows.observations.log_rates[repeated]) == pytest.approx(0.95 * (one.throughput or 0.0), rel=0.1)
    others = np.arange(len(rows.job)) != repeated
    assert rows.observations.log_rates[others] == pytest.approx(before.observations.log_rates[others], rel=0.02)
    assert np.isfinite(rows.observations.cpu.worker[repeated]) == np.isfinite(before.observations.cpu.worker[repeated])


def test_repeats_of_an_outlier_count_once_in_the_fit(made_bank: Bank) -> None:
    jobs = {key: each.job for key, each in made_bank.jobs.items()}
    trials = list(made_bank.trials)
    odd = trials[0].model_copy(update={"throughput": 3 * (trials[0].throughput or 0.0), "worker_cpu": 0.37})
    once, often = (fit_rows(as_rows([*trials, *([odd] * times)], jobs)) for times in (1, 50))
    assert often == pytest.approx(once, abs=1e-3)
