"""Simpler ways to foretell a job's throughput from other jobs' trials: what the learned prior is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from sizewright.datasets.trial_bank.shapes import BankJob
from sizewright.datasets.trials.trial import Trial
from sizewright.models.default.predictor import ThroughputModel
from sizewright.models.prior import LearnedPrior, mechanistic
from sizewright.models.prior.job_effects import describe, learn
from sizewright.models.prior.rows import PriorRows, as_rows

Floats = NDArray[np.float64]
Foretell = Callable[[BankJob, Sequence[Trial]], Floats]
"""Logarithm of samples/s (n,) at the allocations of a job's trials."""


def learned(trials: Sequence[Trial], jobs: Mapping[str, BankJob]) -> Foretell:
    prior = LearnedPrior.fit(trials, jobs)

    def foretell(job: BankJob, at: Sequence[Trial]) -> Floats:
        return prior.curve(job.job, job.table_scale).log_rates(at)

    return foretell


def flops_and_bytes(trials: Sequence[Trial], jobs: Mapping[str, BankJob]) -> Foretell:
    """Seconds of a step: a · operations / cores + b · bytes exchanged · workers / cores of all PS + c."""
    rows = _rows(trials, jobs)
    seconds = rows.at.workers * rows.at.work.samples / np.exp(rows.told.log_rates)
    found, _ = nnls(_formula(rows) / seconds[:, None], np.ones(len(seconds)))

    def foretell(job: BankJob, at: Sequence[Trial]) -> Floats:
        asked = _rows(at, {job.job.hash: job})
        step = np.maximum(_formula(asked) @ found, 1e-9)
        return np.asarray(np.log(asked.at.workers * asked.at.work.samples / step))

    return foretell


def workers_times_cores(trials: Sequence[Trial], jobs: Mapping[str, BankJob]) -> Foretell:
    rows = _rows(trials, jobs)
    level = float(np.median(rows.told.log_rates - np.log(rows.at.workers * rows.at.worker_cpu)))

    def foretell(job: BankJob, at: Sequence[Trial]) -> Floats:
        return level + np.log([t.workers * (t.worker_cpu or 1.0) for t in at])

    return foretell


def nearest_job(trials: Sequence[Trial], jobs: Mapping[str, BankJob]) -> Foretell:
    """The curve of the job that is most alike, fitted to its own trials."""
    known = list(jobs.values())
    places = np.array([describe(j.job, j.table_scale) for j in known])
    experience = learn(known, places, np.zeros(len(known)), np.zeros(len(known)))

    def foretell(job: BankJob, at: Sequence[Trial]) -> Floats:
        named = experience.guess(job.job, job.table_scale).nearest
        nearest = next(key for key, each in jobs.items() if each.job.name == named)
        model = ThroughputModel().fit([t for t in trials if t.job_hash == nearest])
        usual = jobs[nearest].job.training.batch_size
        asked = [t.model_copy(update={"batch_size": usual, "embedding_bytes": None}) for t in at]
        return np.asarray(np.log(model.predict(asked)))

    return foretell


def lightgbm(trials: Sequence[Trial], jobs: Mapping[str, BankJob]) -> Foretell:
    """Boosted trees over description and allocation; more replicas and more cores never slow it down."""
    import lightgbm as lgb

    rows = _rows(trials, jobs)
    places, constraints = _places(rows, list(jobs.values()))
    told = {
        "objective": "regression", "num_leaves": 15, "min_data_in_leaf": 5, "min_data_in_bin": 1,
        "learning_rate": 0.05, "verbosity": -1, "num_threads": 1, "deterministic": True, "seed": 0,
        "monotone_constraints": constraints,
    }  # fmt: skip
    booster = lgb.train(told, lgb.Dataset(places, rows.told.log_rates, params=told), 400)
    return lambda job, at: np.asarray(booster.predict(_places(_rows(at, {job.job.hash: job}), [job])[0]))


def extra_trees(trials: Sequence[Trial], jobs: Mapping[str, BankJob]) -> Foretell:
    from sklearn.ensemble import ExtraTreesRegressor

    rows = _rows(trials, jobs)
    model = ExtraTreesRegressor(300, min_samples_leaf=2, random_state=0)
    model.fit(_places(rows, list(jobs.values()))[0], rows.told.log_rates)
    return lambda job, at: np.asarray(model.predict(_places(_rows(at, {job.job.hash: job}), [job])[0]))


def physics_and_lightgbm(trials: Sequence[Trial], jobs: Mapping[str, BankJob]) -> Foretell:
    """What the prior's physics leaves, by boosted trees over description and allocation."""
    import lightgbm as lgb

    rows = _rows(trials, jobs)
    parameters = mechanistic.fit(rows.at, rows.told, rows.groups)
    left = rows.told.log_rates - mechanistic.log_rates(parameters, rows.at)
    told = {
        "objective": "regression", "num_leaves": 7, "min_data_in_leaf": 10, "min_data_in_bin": 1, "lambda_l2": 5.0,
        "learning_rate": 0.03, "verbosity": -1, "num_threads": 1, "deterministic": True, "seed": 0,
    }  # fmt: skip
    booster = lgb.train(told, lgb.Dataset(_places(rows, list(jobs.values()))[0], left, params=told), 150)

    def foretell(job: BankJob, at: Sequence[Trial]) -> Floats:
        asked = _rows(at, {job.job.hash: job})
        more: Any = booster.predict(_places(asked, [job])[0])
        return np.asarray(mechanistic.log_rates(parameters, asked.at) + more)

    return foretell


RIVALS: dict[str, Callable[[Sequence[Trial], Mapping[str, BankJob]], Foretell]] = {
    "learned": learned,
    "physics and lightgbm": physics_and_lightgbm,
    "lightgbm": lightgbm,
    "extra trees": extra_trees,
    "nearest job": nearest_job,
    "flops and bytes": flops_and_bytes,
    "workers × cores": workers_times_cores,
}


def _rows(trials: Sequence[Trial], jobs: Mapping[str, BankJob]) -> PriorRows:
    return as_rows(trials, {key: job.job for key, job in jobs.items()})


def _formula(rows: PriorRows) -> Floats:
    at = rows.at
    exchanged = at.workers * at.work.row_floats / (at.ps * at.ps_cpu)
    return np.column_stack([at.work.flops / at.worker_cpu, exchanged, np.ones_like(exchanged)])


def _places(rows: PriorRows, jobs: Sequence[BankJob]) -> tuple[Floats, list[int]]:
    """Columns (n, k) for trees, and which of them only ever help."""
    described = np.array([describe(j.job, j.table_scale) for j in jobs])[rows.job]
    axes = np.log(np.column_stack([rows.at.workers, rows.at.ps, rows.at.worker_cpu, rows.at.ps_cpu]))
    return np.hstack([axes, described]), [1] * axes.shape[1] + [0] * described.shape[1]
