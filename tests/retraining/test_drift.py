from __future__ import annotations

from made_runs import run_of

from sizewright.retraining.drift import LEAST_RUNS, drift
from sizewright.spec import Failure, Job, Outcome

JOB = Job(name="ctr")


def test_runs_that_go_as_foretold_are_no_drift() -> None:
    told = drift([run_of(JOB, i, rate=950 + 5 * i) for i in range(20)])
    assert not told.drifted
    assert (told.runs, told.missed) == (20, 0)
    assert told.median_error is not None
    assert told.median_error < 0.06


def test_runs_that_all_go_slower_are_drift() -> None:
    told = drift([run_of(JOB, i, rate=600) for i in range(LEAST_RUNS)])
    assert told.drifted
    assert told.missed == LEAST_RUNS
    assert told.bias is not None
    assert abs(told.bias + 0.4) < 0.01
    assert "more than chance allows" in told.reason


def test_one_of_ten_outside_is_what_a_90_percent_interval_means() -> None:
    assert not drift([run_of(JOB, i, rate=2000 if i % 10 == 0 else 1000) for i in range(50)]).drifted


def test_only_the_latest_count() -> None:
    old = [run_of(JOB, i, rate=100) for i in range(50)]
    new = [run_of(JOB, 100 + i, rate=1000) for i in range(50)]
    assert not drift([*new, *old]).drifted
    assert drift([*new, *old[:25], *[run_of(JOB, 200 + i, rate=100) for i in range(30)]]).drifted


def test_too_few_runs_say_so() -> None:
    told = drift([run_of(JOB, i, rate=1) for i in range(LEAST_RUNS - 1)])
    assert not told.drifted
    assert "are needed" in told.reason


def test_runs_that_tell_nothing_are_passed_over() -> None:
    oom = Outcome(status="failed", failures=(Failure(at_s=1.0, replica="ps-0", cause="oom"),))
    nothing = [
        run_of(JOB, rate=1, expected=None),
        run_of(JOB, rate=1, seconds=5),
        run_of(JOB, rate=1, outcome=oom),
        run_of(JOB, stretches=()),
    ]
    assert drift(nothing * 5).runs == 0
    by_another = [run_of(JOB, i, rate=1) for i in range(20)]
    assert drift(by_another, "sizewright-prior version 2").runs == 0
    assert drift(by_another, "sizewright-prior version 1").drifted
    of_twelve = [run_of(JOB, i, rate=1, expected_by="prior with sizewright-prior version 12") for i in range(20)]
    assert drift(of_twelve, "sizewright-prior version 1").runs == 0
