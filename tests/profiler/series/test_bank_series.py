from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sizewright.datasets.trial_bank.files import SHIPPED, load_bank
from sizewright.datasets.trial_bank.noise import repeat_noise
from sizewright.datasets.trial_bank.shapes import BankJob, bank_jobs
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import StoreError, TrialError, TrialVoidError
from sizewright.profiler.measure.measure import Timing, measure
from sizewright.profiler.series._base import TrialPoint
from sizewright.profiler.series.bank_points import MAX_CORES, PS, REPEATED, WORKERS
from sizewright.profiler.series.bank_series import BankSeries, BankStep, all_series, measure_bank
from tests.helpers.fake_trainer import AT_ONCE, SteadyTrainer


class Host:
    """Opens sessions that train at once, and remembers of which jobs."""

    def __init__(self, **fails: Any) -> None:
        self.opened: list[str] = []
        self.fails = fails

    @contextmanager
    def session(self, bank_job: BankJob, points: Sequence[TrialPoint]) -> Iterator[SteadyTrainer]:
        self.opened.append(bank_job.job.name)
        yield SteadyTrainer(bank_job.job, **self.fails)


def at_once(trainer: Any, point: TrialPoint, timing: Timing) -> Trial:
    return measure(trainer, point, AT_ONCE)


def some(count: int = 2, points: int = 3) -> list[BankSeries]:
    return [series._replace(points=series.points[:points]) for series in all_series(bank_jobs()[:7])[:count]]


def test_every_job_is_measured_over_a_wide_range_within_the_host() -> None:
    series = all_series()
    first = [s for s in series if s.name.startswith("first")]
    assert len(first) == len(bank_jobs()) >= 50
    assert sum(len(s.points) for s in first) >= 600
    for one in first:
        allocations = [point.allocation for point in one.points]
        assert len({(a.replicas("worker"), a.replicas("ps")) for a in allocations}) == len(WORKERS) * len(PS) >= 12
        assert all(a.cores() <= MAX_CORES + 1e-9 for a in allocations)
        assert {point.table_scale for point in one.points} == {one.bank_job.table_scale}
    again = [s for s in series if s.name.startswith("again")]
    assert sum(len(s.points) for s in again) >= 60
    by_job = {s.bank_job.job.hash: set(s.points) for s in first}
    assert all(len(s.points) == REPEATED and set(s.points) < by_job[s.bank_job.job.hash] for s in again)
    assert series == all_series()


def test_interrupted_bank_is_continued(tmp_path: Path) -> None:
    host, steps = Host(), list[BankStep]()
    planned = some(3)
    options: dict[str, Any] = {"series": planned, "measure": at_once}
    card = measure_bank(tmp_path, host.session, max_series=1, progress=steps.append, **options)
    assert card["trials"] == len(load_bank(tmp_path).trials) == 3
    assert [(s.done, s.total) for s in steps] == [(1, 9), (2, 9), (3, 9)]
    with pytest.raises(StoreError, match="--resume"):
        measure_bank(tmp_path, host.session, **options)
    card = measure_bank(tmp_path, host.session, resume=True, **options)
    assert card["trials"] == 9
    assert host.opened == [s.bank_job.job.name for s in planned]
    again = measure_bank(tmp_path, host.session, resume=True, **options)
    assert again["sha256"] == card["sha256"]
    assert len(host.opened) == 3
    bank = load_bank(tmp_path)
    assert set(bank.jobs) == {s.bank_job.job.hash for s in planned}
    assert all(trial.host is None for trial in bank.trials)
    assert bank.card["host"]["versions"]["torch"]


def test_interrupted_series_loses_no_trials(tmp_path: Path) -> None:
    planned = some(1)
    with pytest.raises(KeyboardInterrupt):
        measure_bank(tmp_path, Host(fails={3: KeyboardInterrupt()}).session, series=planned, measure=at_once)
    steps: list[BankStep] = []
    measure_bank(tmp_path, Host().session, series=planned, measure=at_once, resume=True, progress=steps.append)
    assert [(s.done, s.total) for s in steps] == [(3, 3)]
    assert len(load_bank(tmp_path).trials) == 3


def test_failed_trial_is_a_result_and_missing_trials_are_still_run(tmp_path: Path) -> None:
    options: dict[str, Any] = {"series": some(1), "measure": at_once}
    void = TrialVoidError("Other work ran.")
    fails = {1: TrialError("It broke."), 2: void, 4: void, 5: void}
    card = measure_bank(tmp_path, Host(fails=fails).session, **options)
    assert (card["trials"], card["failed"]) == (2, 1)
    host = Host()
    card = measure_bank(tmp_path, host.session, resume=True, **options)
    assert (card["trials"], card["failed"], len(host.opened)) == (3, 1, 1)
    measure_bank(tmp_path, host.session, resume=True, **options)
    assert len(host.opened) == 1


def test_bank_of_another_host_is_not_overwritten(tmp_path: Path) -> None:
    shutil.copytree(SHIPPED, tmp_path / "copy")
    for resume in (False, True):
        with pytest.raises(StoreError, match="already contains other files"):
            measure_bank(tmp_path / "copy", Host().session, series=some(1), measure=at_once, resume=resume)
    assert len(load_bank(tmp_path / "copy").trials) > 600


@pytest.mark.parametrize("content", ["{", "[1]", "3"])
def test_unusable_folder_raises_store_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "host.json").write_text(content)
    for folder in (tmp_path, tmp_path / "host.json", tmp_path / "host.json" / "x"):
        with pytest.raises(StoreError, match="cannot be used for a bank"):
            measure_bank(folder, Host().session, series=some(1), measure=at_once, resume=True)


def test_void_trials_are_measured_again_and_counted(tmp_path: Path) -> None:
    fails = {2: TrialVoidError("Other work ran."), 4: TrialVoidError("Other work ran.")}
    card = measure_bank(tmp_path, Host(fails=fails).session, series=some(1), measure=at_once)
    assert card["trials"] == 3
    assert card["discarded"] == [{"reason": "Other work ran.", "trials": 2}]


def test_repeats_in_another_session_measure_the_noise(tmp_path: Path) -> None:
    series = all_series(bank_jobs()[:1])
    assert [s.name[:5] for s in series] == ["first", "again"]
    measure_bank(tmp_path, Host().session, series=series, measure=at_once)
    assert repeat_noise(load_bank(tmp_path).trials).pairs == REPEATED


def test_bank_is_not_continued_on_another_host(tmp_path: Path) -> None:
    options: dict[str, Any] = {"series": some(1), "measure": at_once, "resume": True}
    measure_bank(tmp_path, Host().session, **options)
    host_record = json.loads((tmp_path / "host.json").read_text())
    (tmp_path / "host.json").write_text(json.dumps(host_record | {"cores": 999}))
    with pytest.raises(StoreError, match=r"another host \(cores differ\)"):
        measure_bank(tmp_path, Host().session, **options)


@pytest.mark.long
def test_a_job_of_the_bank_is_measured_on_the_real_engine(tmp_path: Path) -> None:
    from sizewright.profiler.series.bank_series import open_session

    smallest = next(s for s in all_series() if s.bank_job.base == "small-dlrm")
    card = measure_bank(tmp_path, open_session, series=[smallest._replace(points=smallest.points[:2])], measure=measure)
    trials = load_bank(tmp_path).trials
    assert card["trials"] == 2
    assert all(trial.usable and trial.worker_cpu_used for trial in trials)
