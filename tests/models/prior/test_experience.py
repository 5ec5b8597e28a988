from __future__ import annotations

import json

import numpy as np
import pytest

from sizewright.datasets.bank.shapes import bank_jobs
from sizewright.models.prior import experience
from sizewright.models.prior.experience import Experience, Scales, describe, krige, learn
from sizewright.spec import Job, Model, Tables

JOBS = bank_jobs()


def known(levels: np.ndarray) -> Experience:
    places = np.array([describe(b.job, b.table_scale) for b in JOBS])
    return learn(JOBS, places, levels, np.full(len(JOBS), 0.05))


def process(places: np.ndarray, levels: np.ndarray, scales: Scales, own: float | None = None) -> Experience:
    """Jobs at places with no more axes than told."""
    jobs, axes = places.shape
    names = tuple(map(str, range(jobs)))
    each = np.full(jobs, scales.own if own is None else own)
    return Experience(
        names, names, names, places, np.zeros(axes), np.ones(axes), levels, each, np.full(jobs, 1e-3), scales, 1
    )


def test_a_process_tells_what_it_was_told_and_little_far_away() -> None:
    told = process(np.array([[0.0], [1.0], [3.0]]), np.array([0.2, 0.1, -0.3]), Scales(1.0, 0.3, 0.0, 1e-3))
    mean, sd = krige(told, np.array([[0.0], [3.0], [500.0]]), np.array([[1, 0, 0], [0, 0, 1], [0, 0, 0]], bool))
    assert mean[:2] == pytest.approx([0.2, -0.3], abs=0.01)
    assert mean[2] == pytest.approx(0, abs=1e-6)
    assert sd[0] < 0.01 < sd[2]
    assert sd[2] == pytest.approx(0.3, rel=0.01)


def test_a_job_that_was_measured_is_told_as_it_was_and_what_it_has_to_itself_moves_no_other() -> None:
    places = np.array([[0.0], [0.1], [0.1], [0.2]])
    told = process(places, np.array([0.0, -0.9, -0.9, 0.0]), Scales(1.0, 0.05, 0.0, 0.05), own=0.9)
    mean, sd = krige(told, np.array([[0.1], [0.15]]), np.array([[0, 1, 0, 0], [0, 0, 0, 0]], bool))
    assert mean[0] == pytest.approx(-0.9, abs=0.01)
    assert abs(mean[1]) < 0.05
    assert sd[0] < 0.01 < sd[1]


def test_jobs_that_are_alike_are_told_by_each_other() -> None:
    slow = np.array([-0.3 if b.job.model.family == "xdeepfm" else 0.0 for b in JOBS])
    told = known(slow)
    mine = next(b for b in JOBS if b.base == "xdeepfm-small")
    other = next(b for b in JOBS if b.base == "rm1")
    assert told.guess(mine.job, mine.table_scale).level < -0.1
    assert abs(told.guess(other.job, other.table_scale).level) < 0.1


def test_what_a_family_shares_is_known_of_one_of_its_jobs_however_far_the_others_are() -> None:
    mine = [0.0] * len(experience.AXES) + [1.0] + [0.0] * len(experience.FAMILIES)
    far = [500.0] * len(experience.AXES) + mine[len(experience.AXES) :]
    other = [0.0] * len(experience.AXES) + [0.0, 1.0] + [0.0] * (len(experience.FAMILIES) - 1)
    told = process(np.array([mine]), np.array([-0.9]), Scales(1.0, 0.01, 1.0, 0.01))
    mean, sd = krige(told, np.array([far, other]), np.zeros((2, 1), bool))
    assert mean == pytest.approx([-0.9, 0.0], abs=0.01)
    assert sd[0] < 0.03 < 0.9 < sd[1]


def test_one_job_that_is_unlike_all_leaves_scales_about_as_they_were() -> None:
    alike = np.array([0.1 * np.sin(describe(b.job, b.table_scale)[1]) for b in JOBS])
    unlike = alike.copy()
    (slow,) = [i for i, b in enumerate(JOBS) if b.job.name == "criteo-dlrm-a"]
    unlike[slow] = -1.2
    usual, told = known(alike), known(unlike)
    assert told.scales == pytest.approx(usual.scales, rel=0.05)
    assert told.to_itself[slow] > 1
    assert np.delete(told.to_itself, slow) == pytest.approx(np.delete(usual.to_itself, slow), rel=0.05)


def test_where_nothing_is_alike_nothing_is_claimed() -> None:
    rng = np.random.default_rng(1)
    told = known(0.2 * rng.standard_normal(len(JOBS)))
    huge = Job(model=Model(tables=Tables(count=2000, rows=10**9, dim=1024)))
    guess = told.guess(huge)
    assert guess.distance > told.limit
    assert guess.axis in (*experience.AXES, "family or mode")
    near = told.guess(JOBS[0].job, JOBS[0].table_scale)
    assert near.distance == pytest.approx(0, abs=1e-9)
    assert near.nearest == JOBS[0].job.name
    assert near.sd <= guess.sd


def test_every_job_of_the_bank_lies_within_its_own_limit() -> None:
    told = known(np.zeros(len(JOBS)))
    assert all(told.guess(b.job, b.table_scale).distance <= told.limit for b in JOBS)


def test_it_is_written_in_plain_numbers() -> None:
    told = known(np.linspace(-0.1, 0.1, len(JOBS)))
    again = experience.from_record(json.loads(json.dumps(told.as_record())))
    assert again.guess(JOBS[5].job) == told.guess(JOBS[5].job)
