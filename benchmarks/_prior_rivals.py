"""Simpler predictors of a job's throughput from trials of other jobs, which the learned prior is compared with."""

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
Predict = Callable[[BankJob, Sequence[Trial]], Floats]
"""Returns the logarithm of samples/s (n,) at the allocations of a job's trials."""


def learned(trials: Sequence[Trial], jobs: Mapping[str, BankJob]) -> Predict:
    prior = LearnedPrior.fit(trials, jobs)

    def predict(job: BankJob, at: Sequence[Trial]) -> Floats:
        return prior.curve(job.job, job.table_scale).log_rates(at)

    return predict


def flops_and_bytes(trials: Sequence[Trial], jobs: Mapping[str, BankJob]) -> Predict:
    """Fit seconds of a step as a · operations / cores + b · bytes exchanged · workers / cores of all PS + c."""
    rows = _rows(trials, jobs)
    seconds = rows.configs.workers * rows.configs.work.samples / np.exp(rows.observations.log_rates)
    coefficients, _ = nnls(_formula(rows) / seconds[:, None], np.ones(len(seconds)))

    def predict(job: BankJob, at: Sequence[Trial]) -> Floats:
        target = _rows(at, {job.job.hash: job})
        step = np.maximum(_formula(target) @ coefficients, 1e-9)
        return np.asarray(np.log(target.configs.workers * target.configs.work.samples / step))

    return predict


def workers_times_cores(trials: Sequence[Trial], jobs: Mapping[str, BankJob]) -> Predict:
    rows = _rows(trials, jobs)
    log_offset = float(np.median(rows.observations.log_rates - np.log(rows.configs.workers * rows.configs.worker_cpu)))

    def predict(job: BankJob, at: Sequence[Trial]) -> Floats:
        return log_offset + np.log([t.workers * (t.worker_cpu or 1.0) for t in at])

    return predict


def nearest_job(trials: Sequence[Trial], jobs: Mapping[str, BankJob]) -> Predict:
    """Use the curve of the most similar job, fitted to the trials of that job."""
    known = list(jobs.values())
    features = np.array([describe(j.job, j.table_scale) for j in known])
    job_effects = learn(known, features, np.zeros(len(known)), np.zeros(len(known)))

    def predict(job: BankJob, at: Sequence[Trial]) -> Floats:
        most_similar = job_effects.predict(job.job, job.table_scale).nearest
        nearest = next(key for key, each in jobs.items() if each.job.name == most_similar)
        model = ThroughputModel().fit([t for t in trials if t.job_hash == nearest])
        batch_size = jobs[nearest].job.training.batch_size
        at_its_batch = [t.model_copy(update={"batch_size": batch_size, "embedding_bytes": None}) for t in at]
        return np.asarray(np.log(model.predict(at_its_batch)))

    return predict


def lightgbm(trials: Sequence[Trial], jobs: Mapping[str, BankJob]) -> Predict:
    """Fit boosted trees over description and allocation. The fit is monotone in replicas and cores."""
    import lightgbm as lgb

    rows = _rows(trials, jobs)
    features, constraints = _features(rows, list(jobs.values()))
    settings = {
        "objective": "regression", "num_leaves": 15, "min_data_in_leaf": 5, "min_data_in_bin": 1,
        "learning_rate": 0.05, "verbosity": -1, "num_threads": 1, "deterministic": True, "seed": 0,
        "monotone_constraints": constraints,
    }  # fmt: skip
    booster = lgb.train(settings, lgb.Dataset(features, rows.observations.log_rates, params=settings), 400)
    return lambda job, at: np.asarray(booster.predict(_features(_rows(at, {job.job.hash: job}), [job])[0]))


def extra_trees(trials: Sequence[Trial], jobs: Mapping[str, BankJob]) -> Predict:
    from sklearn.ensemble import ExtraTreesRegressor

    rows = _rows(trials, jobs)
    model = ExtraTreesRegressor(300, min_samples_leaf=2, random_state=0)
    model.fit(_features(rows, list(jobs.values()))[0], rows.observations.log_rates)
    return lambda job, at: np.asarray(model.predict(_features(_rows(at, {job.job.hash: job}), [job])[0]))


def physics_and_lightgbm(trials: Sequence[Trial], jobs: Mapping[str, BankJob]) -> Predict:
    """Fit boosted trees over description and allocation to the residuals of the prior's mechanistic curve."""
    import lightgbm as lgb

    rows = _rows(trials, jobs)
    parameters = mechanistic.fit(rows.configs, rows.observations, rows.groups)
    residuals = rows.observations.log_rates - mechanistic.log_rates(parameters, rows.configs)
    settings = {
        "objective": "regression", "num_leaves": 7, "min_data_in_leaf": 10, "min_data_in_bin": 1, "lambda_l2": 5.0,
        "learning_rate": 0.03, "verbosity": -1, "num_threads": 1, "deterministic": True, "seed": 0,
    }  # fmt: skip
    booster = lgb.train(settings, lgb.Dataset(_features(rows, list(jobs.values()))[0], residuals, params=settings), 150)

    def predict(job: BankJob, at: Sequence[Trial]) -> Floats:
        target = _rows(at, {job.job.hash: job})
        correction: Any = booster.predict(_features(target, [job])[0])
        return np.asarray(mechanistic.log_rates(parameters, target.configs) + correction)

    return predict


RIVALS: dict[str, Callable[[Sequence[Trial], Mapping[str, BankJob]], Predict]] = {
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
    at = rows.configs
    exchanged = at.workers * at.work.row_floats / (at.ps * at.ps_cpu)
    return np.column_stack([at.work.flops / at.worker_cpu, exchanged, np.ones_like(exchanged)])


def _features(rows: PriorRows, jobs: Sequence[BankJob]) -> tuple[Floats, list[int]]:
    """Return the features (n, k) for trees, and their monotone constraints."""
    described = np.array([describe(j.job, j.table_scale) for j in jobs])[rows.job]
    axes = np.log(
        np.column_stack([rows.configs.workers, rows.configs.ps, rows.configs.worker_cpu, rows.configs.ps_cpu])
    )
    return np.hstack([axes, described]), [1] * axes.shape[1] + [0] * described.shape[1]
