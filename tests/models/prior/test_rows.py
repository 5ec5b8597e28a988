from __future__ import annotations

import numpy as np
import pytest

from sizewright.datasets.bank.files import Bank
from sizewright.models.prior.rows import as_rows, fitted


def test_rows_of_a_job_at_one_place_are_one_that_tells_their_medians(made_bank: Bank) -> None:
    jobs = {key: each.job for key, each in made_bank.jobs.items()}
    trials = list(made_bank.trials[:40])
    one = trials[0]
    rates = [(one.throughput or 0.0) * factor for factor in (0.5, 0.9, 1.1)]
    unknown = {"worker_cpu_used": None, "series": "other"}
    more = [one.model_copy(update={"throughput": rate} | unknown) for rate in rates]
    before, rows = (as_rows(told, jobs).distinct() for told in (trials, [*trials, *more]))
    assert len(rows.job) == len(before.job)
    mine = int(np.flatnonzero(rows.trial == 0)[0])
    assert np.exp(rows.told.log_rates[mine]) == pytest.approx(0.95 * (one.throughput or 0.0), rel=0.1)
    others = np.arange(len(rows.job)) != mine
    assert rows.told.log_rates[others] == pytest.approx(before.told.log_rates[others], rel=0.02)
    assert np.isfinite(rows.told.cpu.worker[mine]) == np.isfinite(before.told.cpu.worker[mine])


def test_what_is_measured_again_and_again_bends_physics_no_more_than_once(made_bank: Bank) -> None:
    jobs = {key: each.job for key, each in made_bank.jobs.items()}
    trials = list(made_bank.trials)
    odd = trials[0].model_copy(update={"throughput": 3 * (trials[0].throughput or 0.0), "worker_cpu": 0.37})
    once, often = (fitted(as_rows([*trials, *([odd] * times)], jobs)) for times in (1, 50))
    assert often == pytest.approx(once, abs=1e-3)
