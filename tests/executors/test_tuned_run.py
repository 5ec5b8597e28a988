"""A run that a control loop watches; it is trained by an executor in memory."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import numpy as np
import pytest

from sizewright.datasets.finished import FinishedJob
from sizewright.datasets.trials import Trial
from sizewright.errors import EngineError, UnsupportedError
from sizewright.executors.run import run_plan
from sizewright.recommender.control import Tuner
from sizewright.recommender.decisions import Decision
from sizewright.recommender.scaler import AutoScaler
from sizewright.spec import Allocation, Bounds, Capabilities, Handle, Job, Outcome, Plan, RoleBounds, Training
from sizewright.testing import FakeExecutor

BOUNDS = Bounds(worker=RoleBounds(replicas=(1, 8), cpu=(1.0, 1.0)), ps=RoleBounds(replicas=(1, 4), cpu=(1.0, 1.0)))
JOB = Job(name="ctr", bounds=BOUNDS, training=Training(samples=1_000_000), objective="time")
ONE = Allocation.of(1, 1, 1.0, 1.0, 512)


def rate(allocation: Allocation) -> float:
    return 1000.0 * min(allocation.replicas("worker"), 3 * allocation.replicas("ps"))


def trials() -> list[Trial]:
    told = {"worker_cpu": 1.0, "ps_cpu": 1.0, "batch_size": 512}
    places = [(1, 1), (2, 1), (4, 1), (8, 1), (4, 2), (8, 4), (6, 3), (1, 4)]
    return [Trial(workers=w, ps=p, throughput=rate(Allocation.of(w, p, 1, 1, 512)), **told) for w, p in places]


def run(*, tuned: bool) -> tuple[FakeExecutor, Outcome, FinishedJob, list[Decision]]:
    fake, kept, decided = FakeExecutor(throughput=rate), list[FinishedJob](), list[Decision]()

    def now() -> datetime:
        return datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=fake.clock())

    def tune(handle: Handle, allocation: Allocation) -> Tuner:
        return Tuner(JOB, fake, handle, allocation, AutoScaler(JOB, trials()), clock=fake.clock, now=now)

    plan = Plan(id="p", kind="launch", job=JOB, target=ONE, reason="")
    outcome = run_plan(
        fake, plan, record=kept.append, tune=tune if tuned else None, decided=decided.append, every_s=1,
        clock=fake.clock,
    )  # fmt: skip
    (told,) = kept
    return fake, outcome, told, decided


def test_a_job_that_asked_for_too_little_ends_sooner_and_each_allocation_is_in_the_history() -> None:
    _, plain, alone, _ = run(tuned=False)
    _, outcome, told, decided = run(tuned=True)
    assert (plain.status, outcome.status) == ("finished", "finished")
    assert (plain.samples, outcome.samples) == (1_000_000, 1_000_000)
    assert outcome.duration_s < 0.4 * plain.duration_s
    assert len(alone.stretches) == 1
    assert [s.allocation for s in told.stretches] == [ONE, *(d.target for d in decided if d.applied)]
    assert told.stretches[0].throughput == pytest.approx(1000.0, rel=0.01)
    assert told.stretches[-1].throughput == pytest.approx(rate(told.stretches[-1].allocation), rel=0.05)
    assert 15 < len(decided) < 60


def test_an_executor_that_cannot_change_jobs_tunes_none() -> None:
    fake = FakeExecutor(capabilities=Capabilities(launch=True, observe=True, stop=True))
    plan = Plan(id="p", kind="launch", job=JOB, target=ONE, reason="")
    with pytest.raises(UnsupportedError, match="cannot adjust"):
        run_plan(fake, plan, tune=lambda *_: pytest.fail("never made"))
    assert [call.method for call in fake.calls] == []


def test_whatever_goes_wrong_in_a_turn_the_job_trains_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(FakeExecutor, "change_cost", _unknown)
    _, outcome, _, _ = run(tuned=True)
    assert (outcome.status, outcome.samples) == ("finished", 1_000_000)
    assert "A turn was cut short: Nobody knows." in caplog.text


def test_what_cannot_be_fitted_is_told_and_the_job_trains_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refit(scaler: AutoScaler, evidence: list[Trial]) -> str:
        if evidence:
            raise np.linalg.LinAlgError("Singular matrix")
        return fit(scaler, evidence)

    fit = AutoScaler.refit
    monkeypatch.setattr(AutoScaler, "refit", refit)
    _, outcome, _, decided = run(tuned=True)
    assert outcome.status == "finished"
    assert "cannot be fitted (Singular matrix)" in decided[-1].reason


def _unknown(*_: object) -> None:
    raise EngineError("Nobody knows.")
