from __future__ import annotations

import json

import numpy as np
import pytest

from sizewright.datasets.trial_bank.shapes import bank_jobs
from sizewright.models.prior.job_effects import (
    AXES,
    FAMILIES,
    Hyperparameters,
    JobEffects,
    describe,
    from_record,
    krige,
    learn,
)
from sizewright.spec import Job, Model, Tables

JOBS = bank_jobs()


def known(levels: np.ndarray) -> JobEffects:
    places = np.array([describe(b.job, b.table_scale) for b in JOBS])
    return learn(JOBS, places, levels, np.full(len(JOBS), 0.05))


def process(
    features: np.ndarray, log_offsets: np.ndarray, hyperparameters: Hyperparameters, job_sd: float | None = None
) -> JobEffects:
    """Jobs with a few axes only."""
    jobs, axes = features.shape
    names = tuple(map(str, range(jobs)))
    return JobEffects(
        names=names,
        bases=names,
        hashes=names,
        features=features,
        centre=np.zeros(axes),
        scale=np.ones(axes),
        log_offsets=log_offsets,
        job_sd=np.full(jobs, hyperparameters.nugget_sd if job_sd is None else job_sd),
        noise=np.full(jobs, 1e-3),
        hyperparameters=hyperparameters,
        max_distance=1,
    )


def test_krige_returns_measured_offsets_and_the_mean_far_away() -> None:
    effects = process(np.array([[0.0], [1.0], [3.0]]), np.array([0.2, 0.1, -0.3]), Hyperparameters(1.0, 0.3, 0.0, 1e-3))
    mean, sd = krige(effects, np.array([[0.0], [3.0], [500.0]]), np.array([[1, 0, 0], [0, 0, 1], [0, 0, 0]], bool))
    assert mean[:2] == pytest.approx([0.2, -0.3], abs=0.01)
    assert mean[2] == pytest.approx(0, abs=1e-6)
    assert sd[0] < 0.01 < sd[2]
    assert sd[2] == pytest.approx(0.3, rel=0.01)


def test_krige_of_a_measured_job_returns_its_offset_and_exceptions_move_no_other_job() -> None:
    places = np.array([[0.0], [0.1], [0.1], [0.2]])
    effects = process(places, np.array([0.0, -0.9, -0.9, 0.0]), Hyperparameters(1.0, 0.05, 0.0, 0.05), job_sd=0.9)
    mean, sd = krige(effects, np.array([[0.1], [0.15]]), np.array([[0, 1, 0, 0], [0, 0, 0, 0]], bool))
    assert mean[0] == pytest.approx(-0.9, abs=0.01)
    assert abs(mean[1]) < 0.05
    assert sd[0] < 0.01 < sd[1]


def test_similar_jobs_predict_each_other() -> None:
    slow = np.array([-0.3 if b.job.model.family == "xdeepfm" else 0.0 for b in JOBS])
    effects = known(slow)
    measured = next(b for b in JOBS if b.base == "xdeepfm-small")
    other = next(b for b in JOBS if b.base == "rm1")
    assert effects.predict(measured.job, measured.table_scale).log_offset < -0.1
    assert abs(effects.predict(other.job, other.table_scale).log_offset) < 0.1


def test_family_effect_is_known_for_distant_jobs_of_the_family() -> None:
    measured = [0.0] * len(AXES) + [1.0] + [0.0] * len(FAMILIES)
    far = [500.0] * len(AXES) + measured[len(AXES) :]
    other = [0.0] * len(AXES) + [0.0, 1.0] + [0.0] * (len(FAMILIES) - 1)
    effects = process(np.array([measured]), np.array([-0.9]), Hyperparameters(1.0, 0.01, 1.0, 0.01))
    mean, sd = krige(effects, np.array([far, other]), np.zeros((2, 1), bool))
    assert mean == pytest.approx([-0.9, 0.0], abs=0.01)
    assert sd[0] < 0.03 < 0.9 < sd[1]


def test_one_exceptional_job_leaves_hyperparameters_unchanged() -> None:
    alike = np.array([0.1 * np.sin(describe(b.job, b.table_scale)[1]) for b in JOBS])
    unlike = alike.copy()
    (slow,) = [i for i, b in enumerate(JOBS) if b.job.name == "criteo-dlrm-a"]
    unlike[slow] = -1.2
    unchanged, effects = known(alike), known(unlike)
    assert effects.hyperparameters == pytest.approx(unchanged.hyperparameters, rel=0.05)
    assert effects.job_sd[slow] > 1
    assert np.delete(effects.job_sd, slow) == pytest.approx(np.delete(unchanged.job_sd, slow), rel=0.05)


def test_job_far_from_all_measured_jobs_exceeds_the_limit() -> None:
    rng = np.random.default_rng(1)
    effects = known(0.2 * rng.standard_normal(len(JOBS)))
    huge = Job(model=Model(tables=Tables(count=2000, rows=10**9, dim=1024)))
    effect = effects.predict(huge)
    assert effect.distance > effects.max_distance
    assert effect.axis in (*AXES, "family or mode")
    near = effects.predict(JOBS[0].job, JOBS[0].table_scale)
    assert near.distance == pytest.approx(0, abs=1e-9)
    assert near.nearest == JOBS[0].job.name
    assert near.sd <= effect.sd


def test_every_job_of_the_bank_lies_within_the_limit() -> None:
    effects = known(np.zeros(len(JOBS)))
    assert all(effects.predict(b.job, b.table_scale).distance <= effects.max_distance for b in JOBS)


def test_record_survives_json() -> None:
    effects = known(np.linspace(-0.1, 0.1, len(JOBS)))
    again = from_record(json.loads(json.dumps(effects.as_record())))
    assert again.predict(JOBS[5].job) == effects.predict(JOBS[5].job)
