from __future__ import annotations

from sizewright.retraining.drift import MIN_RUNS, drift
from sizewright.spec import Failure, Job, Outcome
from tests.helpers.finished_jobs import run_of

JOB = Job(name="ctr")


def test_runs_within_their_intervals_are_no_drift() -> None:
    result = drift([run_of(JOB, i, rate=950 + 5 * i) for i in range(20)])
    assert not result.drifted
    assert (result.runs, result.missed) == (20, 0)
    assert result.median_error is not None
    assert result.median_error < 0.06


def test_slower_runs_are_drift() -> None:
    result = drift([run_of(JOB, i, rate=600) for i in range(MIN_RUNS)])
    assert result.drifted
    assert result.missed == MIN_RUNS
    assert result.bias is not None
    assert abs(result.bias + 0.4) < 0.01
    assert "more than chance allows" in result.reason


def test_one_run_in_ten_outside_its_interval_is_no_drift() -> None:
    assert not drift([run_of(JOB, i, rate=2000 if i % 10 == 0 else 1000) for i in range(50)]).drifted


def test_only_the_latest_runs_count() -> None:
    old = [run_of(JOB, i, rate=100) for i in range(50)]
    new = [run_of(JOB, 100 + i, rate=1000) for i in range(50)]
    assert not drift([*new, *old]).drifted
    assert drift([*new, *old[:25], *[run_of(JOB, 200 + i, rate=100) for i in range(30)]]).drifted


def test_too_few_runs_are_no_drift() -> None:
    result = drift([run_of(JOB, i, rate=1) for i in range(MIN_RUNS - 1)])
    assert not result.drifted
    assert "are needed" in result.reason


def test_runs_without_a_usable_prediction_are_ignored() -> None:
    oom = Outcome(status="failed", failures=(Failure(at_s=1.0, replica="ps-0", cause="oom"),))
    unusable = [
        run_of(JOB, rate=1, expected=None),
        run_of(JOB, rate=1, seconds=5),
        run_of(JOB, rate=1, outcome=oom),
        run_of(JOB, stretches=()),
    ]
    assert drift(unusable * 5).runs == 0
    by_another = [run_of(JOB, i, rate=1) for i in range(20)]
    assert drift(by_another, "sizewright-prior version 2").runs == 0
    assert drift(by_another, "sizewright-prior version 1").drifted
    of_twelve = [run_of(JOB, i, rate=1, expected_by="prior with sizewright-prior version 12") for i in range(20)]
    assert drift(of_twelve, "sizewright-prior version 1").runs == 0
