"""A rebalance evens out the lookups of a job that mostly reach one PS."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from sizewright.spec import Allocation, Data, Job
from sizewright.testing.skewed_clicks import skewed_log
from sizewright.training.session import Session
from tests.helpers.training_parts import small_job

SERVERS, ROWS_OF_LOG = 3, 6000
AT = Allocation.of(1, SERVERS, 0.7, 0.2, 64)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    job, path = small_job(rows=(5000,) * 4), tmp_path / "skewed.tsv"
    skewed_log(path, job, SERVERS, share=0.6, rows=ROWS_OF_LOG)
    return job.model_copy(update={"data": Data(format="criteo", path=str(path))})


def shares(session: Session, steps: int = 60) -> np.ndarray:
    """Return each PS's share of the lookups over further steps."""
    before = session.observe()
    deadline = time.monotonic() + 60
    while True:
        session.wait(0.1)
        after = session.observe()
        if sum(w.steps for w in after.of("worker")) >= sum(w.steps for w in before.of("worker")) + steps:
            break
        assert time.monotonic() < deadline, "the workers took no steps"
    gained = np.array([b.lookups - a.lookups for a, b in zip(before.of("ps"), after.of("ps"), strict=True)])
    assert gained.sum() > 0
    return gained / gained.sum()


def test_rebalance_evens_lookups_and_trains_every_sample_once(job: Job) -> None:
    samples = 25_000
    with Session(job, samples=samples, timeout_s=90) as session:
        session.scale(AT)
        assert shares(session)[0] >= 0.55
        session.rebalance()
        np.testing.assert_allclose(shares(session), 1 / SERVERS, atol=0.05)
        assert session.wait(90)
        outcome = session.outcome()
        rows = sum(ps.rows for ps in session.observe().of("ps"))
    assert (outcome.status, outcome.samples, outcome.samples_repeated) == ("finished", samples, 0)
    assert [change.kind for change in outcome.changes] == ["rebalance"]
    assert rows == distinct_ids(job)


@pytest.mark.long
def test_changes_after_a_rebalance_keep_lookups_even(job: Job) -> None:
    """A PS that dies is restored, one goes, and each holds every row once."""
    with Session(job, samples=10**8, recover=True, snapshot_s=0.5, timeout_s=90) as session:
        session.scale(AT)
        session.wait(1.0)
        session.rebalance()
        session.wait(1.5)
        os.kill(session.pids()["ps-0"], signal.SIGKILL)
        while not session.outcome().failures:
            session.wait(0.2)
        np.testing.assert_allclose(shares(session), 1 / SERVERS, atol=0.05)
        session.scale(Allocation.of(1, 2, 0.7, 0.2, 64))
        np.testing.assert_allclose(shares(session), 1 / 2, atol=0.05)
        assert sum(ps.rows for ps in session.observe().of("ps")) <= distinct_ids(job)


def distinct_ids(job: Job) -> int:
    lines = Path(job.data.path or "").read_text(encoding="ascii").splitlines()
    columns = zip(*(line.split("\t")[-job.model.tables.count :] for line in lines), strict=True)
    return sum(len(set(column)) for column in columns)
