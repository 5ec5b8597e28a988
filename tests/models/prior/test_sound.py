from __future__ import annotations

import numpy as np
import pytest

from sizewright.datasets.bank.files import Bank
from sizewright.models.prior.rows import Rows, as_rows
from sizewright.models.prior.sound import sound


@pytest.fixture(scope="module")
def names(made_bank: Bank) -> list[str]:
    return [bank_job.job.name for bank_job in made_bank.jobs.values()]


def rows_of(bank: Bank, **change: dict[int, float]) -> Rows:
    """Rows of a bank some of whose trials have this many times what they had."""
    trials = list(bank.trials)
    for name, factors in change.items():
        for number, factor in factors.items():
            value = getattr(trials[number], name)
            trials[number] = trials[number].model_copy(update={name: type(value)(factor * value)})
    return as_rows(trials, {key: bank_job.job for key, bank_job in bank.jobs.items()})


def test_what_agrees_stays(made_bank: Bank, names: list[str]) -> None:
    rows = rows_of(made_bank)
    told = sound(rows, names)
    assert len(told.rows.job) == len(rows.job)
    assert told.flagged == ()


@pytest.mark.parametrize("axis", ["worker_cpu", "ps_cpu", "batch_size"])
def test_other_units_are_seen_even_where_throughput_agrees(made_bank: Bank, names: list[str], axis: str) -> None:
    told = sound(rows_of(made_bank, **{axis: {7: 1000.0, 200: 1000.0}}), names)
    assert not {7, 200} & set(told.rows.trial.tolist())
    assert len(told.flagged) == 2
    assert f"trial 8: {axis}" in told.flagged[0]


def test_what_hides_behind_worse_ones_is_seen_without_them(made_bank: Bank, names: list[str]) -> None:
    worse = dict.fromkeys(range(3, 430, 12), 500.0)
    told = sound(rows_of(made_bank, throughput=worse | {10: 3.0, 100: 1 / 3, 300: 1.3}), names)
    left_out = set(range(len(made_bank.trials))) - set(told.rows.trial.tolist())
    assert left_out == {*worse, 10, 100}


def test_nothing_but_wrong_trials_is_no_crash(made_bank: Bank, names: list[str]) -> None:
    rng = np.random.default_rng(0)
    wild = {number: float(10 ** rng.uniform(-6, 6)) for number in range(len(made_bank.trials))}
    told = sound(rows_of(made_bank, throughput=wild), names)
    assert len(told.flagged) > 100
