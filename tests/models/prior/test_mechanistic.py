from __future__ import annotations

import numpy as np
import pytest

from sizewright.datasets.trial_bank.files import Bank
from sizewright.models.prior import mechanistic
from sizewright.models.prior.rows import PriorRows, as_rows
from sizewright.models.prior.work import work_of
from sizewright.spec import Job


@pytest.fixture(scope="module")
def rows(made_bank: Bank) -> PriorRows:
    return as_rows(made_bank.trials, {key: b.job for key, b in made_bank.jobs.items()})


def at(
    workers: float = 2, ps: float = 2, worker_cpu: float = 0.5, ps_cpu: float = 0.3, sync: float = 0.0
) -> mechanistic.Configurations:
    columns = (np.array([float(value)]) for value in (workers, ps, worker_cpu, ps_cpu, sync))
    return mechanistic.Configurations(*columns, work=work_of(Job(), np.array([512.0]), np.array([1.0])))


def rate(**change: float) -> float:
    return float(np.exp(mechanistic.log_rates(mechanistic.START, at(**change))[0]))


def test_fit_recovers_the_curves_of_generated_trials(rows: PriorRows) -> None:
    fitted = mechanistic.fit(rows.configs, rows.observations, rows.groups)
    residuals = rows.observations.log_rates - mechanistic.log_rates(fitted, rows.configs)
    assert np.median(np.abs(residuals)) < 0.06  # jobs stray by 0.05 and trials by 0.04
    truth = mechanistic.log_rates(mechanistic.START, rows.configs)
    assert np.median(np.abs(mechanistic.log_rates(fitted, rows.configs) - truth)) < 0.03


def test_single_outliers_hardly_change_the_fit(rows: PriorRows) -> None:
    wrong = rows.observations.log_rates.copy()
    wrong[::40] += np.log(1000)
    fitted = mechanistic.fit(rows.configs, rows.observations._replace(log_rates=wrong), rows.groups)
    truth = mechanistic.log_rates(mechanistic.START, rows.configs)
    assert np.median(np.abs(mechanistic.log_rates(fitted, rows.configs) - truth)) < 0.06


def test_uniformly_slower_jobs_do_not_change_the_shared_parameters(rows: PriorRows) -> None:
    slower = np.where(rows.job >= 30, 2.5, 1.0)  # six of 36
    cpu = mechanistic.Seconds(*(column * slower for column in rows.observations.cpu))
    fitted = mechanistic.fit(
        rows.configs, mechanistic.Observations(rows.observations.log_rates - np.log(slower), cpu), rows.groups
    )
    truth = mechanistic.log_rates(mechanistic.START, rows.configs)
    assert np.median(np.abs(mechanistic.log_rates(fitted, rows.configs) - truth)) < 0.06


@pytest.mark.parametrize("sync", [0.0, 1.0])
def test_more_resources_never_reduce_throughput(sync: float) -> None:
    base = rate(sync=sync)
    assert rate(sync=sync, worker_cpu=0.6) >= base
    assert rate(sync=sync, ps_cpu=0.4) >= base
    assert rate(sync=sync, workers=3) >= base


def test_ps_limit_is_reached_but_not_exceeded() -> None:
    many = at(workers=64, worker_cpu=1.0, ps=1, ps_cpu=0.1)
    served = mechanistic.cpu_seconds(mechanistic.START, many).ps[0]
    limit = 512 * 0.1 / served
    predicted = np.exp(mechanistic.log_rates(mechanistic.START, many)[0])
    assert 0.9 * limit < predicted <= limit * (1 + 1e-9)


def test_single_worker_is_limited_by_its_quota() -> None:
    alone = at(workers=1, worker_cpu=0.1, ps=4, ps_cpu=4.0)
    step_s = mechanistic.cpu_seconds(mechanistic.START, alone).worker[0] / 0.1
    assert np.exp(mechanistic.log_rates(mechanistic.START, alone)[0]) == pytest.approx(512 / step_s, rel=0.02)


def test_synchronous_training_is_slower() -> None:
    assert rate(sync=1.0, workers=4) < rate(sync=0.0, workers=4)


def test_parameters_are_named() -> None:
    record = mechanistic.as_record(mechanistic.START)
    assert tuple(record) == mechanistic.NAMES
    assert (mechanistic.from_record(record) == mechanistic.START).all()
    with pytest.raises(KeyError):
        mechanistic.from_record({})
