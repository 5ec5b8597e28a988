from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizewright.datasets.trials.store import TrialStore
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import NoReportsError, ReplicaDiedError, TrialVoidError
from sizewright.profiler.series.series import REPEAT_SE, SeriesStep, drift, run_series
from sizewright.profiler.series.space_filling import SpaceFillingPlanner
from sizewright.spec import Job
from tests.helpers.fake_trainer import AT_ONCE, SteadyTrainer, failing

JOB = Job()


def planner() -> SpaceFillingPlanner:
    return SpaceFillingPlanner(JOB, 4.0, count=4)


TOTAL = len(planner().points)


def run(trainer: SteadyTrainer, store: TrialStore, finished: list[Trial] | None = None) -> list[SeriesStep]:
    plan = planner()
    steps = run_series(trainer, plan, store, "s-1", finished=finished or [], timing=AT_ONCE, host_speed=lambda: 1.25)
    return list(steps)


def test_every_trial_of_the_plan_is_kept_in_order() -> None:
    trainer = SteadyTrainer(JOB)
    with TrialStore("sqlite://") as store:
        steps = run(trainer, store)
        assert store.trials() == [step.trial for step in steps]
    assert trainer.scaled == [(point.allocation, point.table_scale) for point in planner().points]
    assert {(s.trial.series, s.trial.status, s.trial.host_speed, s.reused) for s in steps} == {
        ("s-1", "ok", 1.25, False)
    }
    assert all(step.trial.host for step in steps)
    assert trainer.paused == TOTAL  # the host's speed is taken while nothing trains


def test_command_that_never_reported_ends_the_series() -> None:
    trainer = SteadyTrainer(JOB, fails={1: NoReportsError("no samples")})
    with TrialStore("sqlite://") as store:
        with pytest.raises(NoReportsError):
            run(trainer, store)
        assert store.trials() == []


def test_series_continues_after_silence_unless_it_recurs() -> None:
    with TrialStore("sqlite://") as store:
        steps = run(SteadyTrainer(JOB, fails={3: NoReportsError("no samples")}), store)
        assert [step.trial.status for step in steps].count("failed") == 1
        with pytest.raises(NoReportsError):
            run(SteadyTrainer(JOB, fails={3: NoReportsError("on rank 0", recurs=True)}), store)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (failing(), "failed"),
        (ReplicaDiedError("it fell over"), "failed"),
        (ReplicaDiedError("it fell over", oom=True), "oom"),
        (ReplicaDiedError("it fell over", oom_memory="device"), "oom"),
        (TrialVoidError("it fell over"), "void"),
    ],
)
def test_failed_trial_is_recorded_and_the_series_continues(error: BaseException, status: str) -> None:
    trainer = SteadyTrainer(JOB, fails={3: error})
    with TrialStore("sqlite://") as store:
        steps = run(trainer, store)
        kept = store.trials()
    assert [trial.status for trial in kept] == [status if i == 2 else "ok" for i in range(TOTAL)]
    bad, point = kept[2], steps[2].point
    assert (bad.throughput, bad.message, bad.series) == (None, "it fell over", "s-1")
    assert (bad.workers, bad.ps) == (point.allocation.replicas("worker"), point.allocation.replicas("ps"))
    assert (bad.table_scale, bad.job_hash) == (point.table_scale, JOB.hash)
    assert bad.oom_memory == getattr(error, "oom_memory", None)
    assert trainer.discarded == 1


def test_finished_trials_stay_if_the_series_ends_early() -> None:
    with TrialStore("sqlite://") as store:
        with pytest.raises(KeyboardInterrupt):
            run(SteadyTrainer(JOB, fails={4: KeyboardInterrupt()}), store)
        assert [trial.status for trial in store.trials()] == ["ok"] * 3


def test_only_missing_trials_are_run_again() -> None:
    with TrialStore("sqlite://") as store:
        with pytest.raises(KeyboardInterrupt):
            run(SteadyTrainer(JOB, fails={2: failing(), 5: KeyboardInterrupt()}), store)
        finished = store.trials()
        trainer = SteadyTrainer(JOB)
        steps = run(trainer, store, finished)
        assert store.count() == TOTAL + 1  # the failed one stays too
    done = {0, 2, 3}
    assert [step.reused for step in steps] == [i in done for i in range(TOTAL)]
    expected = [(p.allocation, p.table_scale) for i, p in enumerate(planner().points) if i not in done]
    assert trainer.scaled == expected
    assert [step.trial for step in steps if step.reused] == [finished[i] for i in sorted(done)]


def test_complete_series_is_not_run_again() -> None:
    with TrialStore("sqlite://") as store:
        run(SteadyTrainer(JOB), store)
        trainer = SteadyTrainer(JOB)
        assert all(step.reused for step in run(trainer, store, store.trials()))
        assert trainer.scaled == []
        assert store.count() == TOTAL


def test_the_anchor_measured_once_is_measured_at_the_end() -> None:
    with TrialStore("sqlite://") as store:
        run(SteadyTrainer(JOB), store)
        steps = run(SteadyTrainer(JOB), store, store.trials()[:-1])
    assert [step.reused for step in steps] == [True] * (TOTAL - 1) + [False]


def trial(throughput: float | None, se: float = 0.0, **change: Any) -> Trial:
    known = {"workers": 2, "ps": 1, "worker_cpu": 0.5, "ps_cpu": 0.5, "throughput": throughput, "throughput_se": se}
    return Trial.model_validate(known | change)


ELSEWHERE = trial(500.0, workers=4)


@given(change=st.floats(-0.5, 1.0), first_se=st.floats(0, 0.2), last_se=st.floats(0, 0.2))
def test_drift_is_void_beyond_two_standard_errors_of_the_difference(
    change: float, first_se: float, last_se: float
) -> None:
    last = 100 * (1 + change)
    limit = 2 * (max(first_se, REPEAT_SE) ** 2 + max(last_se, REPEAT_SE) ** 2) ** 0.5
    if abs(abs(change) - limit) < 1e-9:
        return
    got, void = drift([trial(100.0, 100 * first_se), ELSEWHERE, trial(last, last * last_se)])
    assert got == pytest.approx(change)
    assert void == (abs(change) > limit)


def test_drift_compares_the_first_trial_with_its_repeat() -> None:
    failed = trial(None, status="failed")
    assert drift([trial(100.0), failed, trial(150.0), ELSEWHERE, trial(101.0)]) == (pytest.approx(0.01), False)
    assert drift([trial(100.0), trial(150.0)])[1]
    for unknown in (
        [],
        [failed],
        [trial(100.0)],
        [trial(100.0), ELSEWHERE],
        [failed, trial(100.0), trial(150.0)],
        [trial(100.0), trial(150.0), failed],
        [trial(100.0, table_scale=1.0), trial(9.0)],
    ):
        assert drift(unknown) == (None, False)


@pytest.mark.parametrize(("last_cores", "expected", "void"), [(2.0, 0.0, False), (1.6, -0.2, True)])
def test_a_change_that_the_cpu_seconds_of_a_sample_explain_is_no_drift(
    last_cores: float, expected: float, void: bool
) -> None:
    first = trial(100.0).model_copy(update={"worker_cpu_used": 1.0, "ps_cpu_used": 1.0, "workers": 1, "ps": 1})
    last = first.model_copy(update={"throughput": 80.0, "worker_cpu_used": last_cores - 1.0})
    assert drift([first, ELSEWHERE, last]) == (pytest.approx(expected, abs=1e-9), void)


def test_slowdown_of_the_host_is_reported_as_drift() -> None:
    def slower(after: int) -> Callable[[int], float]:
        return lambda scaled: 0.1 if scaled <= after else 0.125

    for step_s, void in ((0.1, False), (slower(TOTAL - 1), True)):
        with TrialStore("sqlite://") as store:
            trials = [step.trial for step in run(SteadyTrainer(JOB, step_s=step_s), store)]
        change, is_void = drift(trials)
        assert is_void == void
        assert change == pytest.approx(-0.2 if void else 0.0, abs=0.01)


def test_best_trial_is_the_fastest_at_full_tables() -> None:
    plan = planner()
    assert plan.best() is None
    for number, _ in zip(itertools.count(1), list(plan.points), strict=False):
        point = plan.ask()
        rate = 1000.0 if point.table_scale < 1 else float(number)
        plan.tell(point, trial(rate))
    best = plan.best()
    assert best is not None
    assert best.throughput == TOTAL
    assert plan.done()
    with pytest.raises(StopIteration):
        plan.ask()
