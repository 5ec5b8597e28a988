from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sizewright.datasets.trial_bank.files import Bank
from sizewright.datasets.trials.trial import Trial
from sizewright.models.factory import make_predictor
from sizewright.models.prior import LearnedPrior
from sizewright.profiler.measure.measure import Timing, measure
from sizewright.profiler.series.adaptive import AdaptivePlanner, within_host
from sizewright.profiler.series.series import SeriesStep, run_series
from sizewright.profiler.series.space_filling import SMALLER_SCALES
from sizewright.spec import Bounds, Job, RoleBounds, Training
from tests.helpers.fake_trainer import AT_ONCE, SteadyTrainer


def job(**change: Any) -> Job:
    bounds = Bounds(worker=RoleBounds(replicas=(1, 3), cpu=(0.5, 1)), ps=RoleBounds(replicas=(1, 2), cpu=(0.2, 0.5)))
    return Job(bounds=bounds, **change)


def at_once(trainer: Any, point: Any, timing: Timing) -> Trial:
    return measure(trainer, point, AT_ONCE)


def run(planner: AdaptivePlanner, **options: Any) -> list[SeriesStep]:
    kept: list[Trial] = []

    class Sink:
        def add(self, trial: Trial) -> None:
            kept.append(trial)

    return list(run_series(SteadyTrainer(job(), **options), planner, Sink(), "s", measure=at_once))


def test_first_allocation_is_measured_at_three_scales_and_at_the_end() -> None:
    planner = AdaptivePlanner(job(), 4.0, count=7)
    assert planner.remaining() == 7 + len(SMALLER_SCALES) + 1
    steps = run(planner)
    points = [step.point for step in steps]
    first = points[0].allocation
    assert [p.table_scale for p in points[:4]] == [1.0, *SMALLER_SCALES, 1.0]
    assert {p.allocation for p in points[:3]} == {first}
    assert points[-1] == points[0]
    between = [p.allocation for p in points[3:-1]]
    assert len(set(between)) == len(between) <= 6
    assert first not in between
    assert planner.done()
    assert planner.remaining() == 0
    with pytest.raises(StopIteration):
        planner.ask()
    best = planner.best()
    assert best is not None
    assert best.throughput == max(
        s.trial.throughput for s in steps if s.point.table_scale == 1.0 and s.trial.throughput
    )


def test_continued_series_plans_the_same_trials() -> None:
    full = run(AdaptivePlanner(job(), 4.0, count=6))
    known = [step.trial for step in full[:5]]
    again = list(
        run_series(
            SteadyTrainer(job()), AdaptivePlanner(job(), 4.0, count=6), _Nowhere(), "s", finished=known, measure=at_once
        )
    )
    assert [s.point for s in again] == [s.point for s in full]
    assert [s.reused for s in again[:5]] == [True] * 5


def test_trials_that_fail_do_not_end_the_series_and_are_not_the_best() -> None:
    from sizewright.errors import ReplicaDiedError

    planner = AdaptivePlanner(job(), 4.0, count=7)
    steps = run(planner, fails={5: ReplicaDiedError("It died.", oom=True)})
    assert [s.trial.status for s in steps].count("oom") == 1
    assert len(steps) > 6
    assert planner.best() is not None


@pytest.mark.parametrize("objective", ["time", "cost", "balanced"])
def test_every_allocation_is_within_bounds_and_host(objective: str) -> None:
    for step in run(AdaptivePlanner(job(objective=objective), 2.5, count=8)):
        allocation = step.point.allocation
        assert allocation.cores("worker") + allocation.cores("ps") <= 2.5 + 1e-9
        assert 1 <= allocation.replicas("worker") <= 3
        assert 0.5 <= allocation.worker[0].cpu <= 1


def test_within_host_compares_the_maximum_of_the_bounds() -> None:
    assert within_host(job(), 4.0)
    assert not within_host(job(), 3.9)


class _Nowhere:
    def add(self, trial: Trial) -> None:
        pass


def test_prior_starts_at_the_best_prediction_and_may_need_two_trials(made_bank: Bank) -> None:
    bank_job = next(b.job for b in made_bank.jobs.values() if b.job.name == "criteo-dlrm-a")
    mine = bank_job.model_copy(update={"bounds": job().bounds, "training": job().training})
    curve = LearnedPrior.fit(made_bank.trials, made_bank.jobs).curve(mine)
    planner = AdaptivePlanner(mine, 4.0, count=9, predictor=make_predictor(curve, min_allocations=1))
    first = planner.ask().allocation
    assert first.cores() > 2  # where time times cost is expected to be least, not in the middle
    while not planner.done():
        point = planner.ask()
        rate = float(np.exp(curve.log_rates([point.allocation])[0]))
        planner.tell(point, Trial(workers=1, ps=1, throughput=rate, throughput_se=0.01 * rate))
    plain = AdaptivePlanner(mine, 4.0, count=9)
    while not plain.done():
        point = plain.ask()
        rate = float(np.exp(curve.log_rates([point.allocation])[0]))
        plain.tell(point, Trial(workers=1, ps=1, throughput=rate, throughput_se=0.01 * rate))
    assert len(planner._trials) < len(plain._trials)


def test_every_planned_trial_has_the_global_batch() -> None:
    bounds = Bounds(worker=RoleBounds(replicas=(1, 4), cpu=(0.2, 0.3)), ps=RoleBounds(replicas=(1, 2), cpu=(0.2, 0.3)))
    job = Job(bounds=bounds, training=Training(global_batch_size=600))
    planner = AdaptivePlanner(job, 2.0, count=4)
    seen = set()
    while not planner.done():
        point = planner.ask()
        workers, batch_size = point.allocation.replicas("worker"), point.allocation.batch_size
        assert workers * batch_size == 600
        seen.add(workers)
        planner.tell(point, Trial(workers=workers, ps=1, batch_size=batch_size, throughput=100.0 * workers))
    assert len(seen) > 1
