from __future__ import annotations

import numpy as np
import pytest

from sizewright.datasets.trial_bank.files import Bank
from sizewright.models.prior.outliers import drop_outliers
from sizewright.models.prior.rows import PriorRows, as_rows


@pytest.fixture(scope="module")
def names(made_bank: Bank) -> list[str]:
    return [bank_job.job.name for bank_job in made_bank.jobs.values()]


def rows_of(bank: Bank, **change: dict[int, float]) -> PriorRows:
    """Return rows of a bank in which columns of some trials are multiplied by these factors."""
    trials = list(bank.trials)
    for name, factors in change.items():
        for number, factor in factors.items():
            value = getattr(trials[number], name)
            trials[number] = trials[number].model_copy(update={name: type(value)(factor * value)})
    return as_rows(trials, {key: bank_job.job for key, bank_job in bank.jobs.items()})


def test_consistent_trials_are_kept(made_bank: Bank, names: list[str]) -> None:
    rows = rows_of(made_bank)
    clean = drop_outliers(rows, names)
    assert len(clean.rows.job) == len(rows.job)
    assert clean.flagged == ()


@pytest.mark.parametrize("axis", ["worker_cpu", "ps_cpu", "batch_size"])
def test_axis_in_other_units_is_an_outlier_even_where_throughput_agrees(
    made_bank: Bank, names: list[str], axis: str
) -> None:
    clean = drop_outliers(rows_of(made_bank, **{axis: {7: 1000.0, 200: 1000.0}}), names)
    assert not {7, 200} & set(clean.rows.trial.tolist())
    assert len(clean.flagged) == 2
    assert f"trial 8: {axis}" in clean.flagged[0]


def test_mild_outliers_are_dropped_after_worse_ones(made_bank: Bank, names: list[str]) -> None:
    worse = dict.fromkeys(range(3, 430, 12), 500.0)
    clean = drop_outliers(rows_of(made_bank, throughput=worse | {10: 3.0, 100: 1 / 3, 300: 1.3}), names)
    left_out = set(range(len(made_bank.trials))) - set(clean.rows.trial.tolist())
    assert left_out == {*worse, 10, 100}


def test_random_throughputs_are_flagged_without_a_crash(made_bank: Bank, names: list[str]) -> None:
    rng = np.random.default_rng(0)
    wild = {number: float(10 ** rng.uniform(-6, 6)) for number in range(len(made_bank.trials))}
    clean = drop_outliers(rows_of(made_bank, throughput=wild), names)
    assert len(clean.flagged) > 100
