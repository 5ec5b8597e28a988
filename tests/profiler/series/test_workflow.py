from __future__ import annotations

from typing import Any

import pytest

from sizewright.datasets.trials.store import TrialStore
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import TrialVoidError
from sizewright.profiler.measure.measure import Timing, measure
from sizewright.profiler.series import workflow
from sizewright.profiler.series._base import TrialPoint
from sizewright.profiler.series.space_filling import SpaceFillingPlanner
from sizewright.spec import Job
from tests.helpers.fake_trainer import AT_ONCE, SteadyTrainer

JOB = Job()


def planner() -> SpaceFillingPlanner:
    return SpaceFillingPlanner(JOB, 4.0, count=4)


TOTAL = len(planner().points)


class Hosts:
    """Trains as the engine would: `slow` says at which trials, counted over everything, the host is slow."""

    def __init__(self, *slow: int) -> None:
        self.ran = 0
        self.slow = slow

    def trainer(self) -> SteadyTrainer:
        hosts = self

        class Counted(SteadyTrainer):
            def scale(self, *args: Any, **options: Any) -> None:
                hosts.ran += 1
                super().scale(*args, **options)

        return Counted(JOB, step_s=lambda _: 0.125 if hosts.ran in hosts.slow else 0.1)


def profile(hosts: Hosts, store: TrialStore, **options: Any) -> list[Trial]:
    trainer = hosts.trainer()
    trainer.host = options.pop("host", "here")

    def at_once(trainer: Any, point: TrialPoint, timing: Timing) -> Trial:
        return measure(trainer, point, AT_ONCE)

    return workflow.profile_job(trainer, planner, store, measure=at_once, **options)


def test_stable_host_gives_one_series() -> None:
    hosts = Hosts()
    progress_steps: list[tuple[bool, int]] = []
    with TrialStore("sqlite://") as store:
        trials = profile(hosts, store, progress=lambda step, total: progress_steps.append((step.reused, total)))
        assert trials == store.trials()
        assert profile(hosts, store) == trials  # nothing is left to measure
        assert hosts.ran == TOTAL
        assert len(profile(hosts, store, fresh=True)) == TOTAL
        assert hosts.ran == 2 * TOTAL
        assert len({trial.series for trial in store.trials()}) == 2
    assert progress_steps == [(False, TOTAL)] * TOTAL


def test_a_series_that_drifted_is_void_and_measured_once_more() -> None:
    hosts, totals = Hosts(TOTAL), []
    with TrialStore("sqlite://") as store:
        trials = profile(hosts, store, progress=lambda _, total: totals.append(total))
        kept = store.trials()
    assert hosts.ran == 2 * TOTAL
    assert totals == [TOTAL] * TOTAL + [2 * TOTAL] * TOTAL
    assert [t.status for t in kept] == ["void"] * TOTAL + ["ok"] * TOTAL
    assert trials == kept[TOTAL:]
    assert "speed changed by -20 %" in (kept[0].message or "")


def test_two_series_that_drifted_are_an_error() -> None:
    hosts = Hosts(TOTAL, 2 * TOTAL)
    with TrialStore("sqlite://") as store:
        with pytest.raises(TrialVoidError, match=r"changed by -20 %.* So did the attempt before.*--accept-drift"):
            profile(hosts, store)
        assert {t.status for t in store.trials()} == {"void"}
        hosts.slow = ()
        assert {t.status for t in profile(hosts, store)} == {"ok"}  # a void series is not gone on with
    assert hosts.ran == 3 * TOTAL


def test_accepted_drift_is_kept_with_wider_errors() -> None:
    hosts = Hosts(TOTAL)
    with TrialStore("sqlite://") as store:
        trials = profile(hosts, store, accept_drift=True)
        assert trials == store.trials()
    assert hosts.ran == TOTAL
    assert {t.status for t in trials} == {"ok"}
    host_sd = 0.2 / 12**0.5  # of a steady change by a fifth
    assert all((t.throughput_se or 0) / (t.throughput or 1) >= 0.999 * host_sd for t in trials)
    assert "speed changed" in (trials[0].message or "")


def test_series_of_another_host_is_not_continued() -> None:
    hosts = Hosts()
    with TrialStore("sqlite://") as store:
        profile(hosts, store)
        profile(hosts, store, host="elsewhere")
    assert hosts.ran == 2 * TOTAL
