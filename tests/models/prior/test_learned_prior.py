from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sizewright.datasets.bank.files import Bank
from sizewright.datasets.trials import Trial
from sizewright.errors import NotEnoughDataError, StoreError
from sizewright.models.prior import LearnedPrior, learned
from sizewright.spec import Job, Model, Tables, Training
from sizewright.spec.command import Command


@pytest.fixture(scope="module")
def prior(made_bank: Bank) -> LearnedPrior:
    return LearnedPrior.fit(made_bank.trials, made_bank.jobs)


def without(bank: Bank, base: str) -> Bank:
    jobs = {key: job for key, job in bank.jobs.items() if job.base != base}
    return Bank([t for t in bank.trials if t.job_hash in jobs], jobs, bank.card)


def test_jobs_that_were_left_out_are_foretold(made_bank: Bank) -> None:
    errors, held = [], []
    for base in ("rm1", "din", "wide-and-deep"):
        rest = without(made_bank, base)
        told = LearnedPrior.fit(rest.trials, rest.jobs)
        for key, job in made_bank.jobs.items():
            if job.base == base:
                mine = [t for t in made_bank.trials if t.job_hash == key]
                curve = told.curve(job.job, job.table_scale)
                left = np.log([t.throughput for t in mine]) - curve.log_rates(mine)
                errors += list(np.abs(left))
                held += list(np.abs(left) < 1.645 * curve.sd(mine))
    assert np.median(errors) < 0.12
    assert np.mean(held) > 0.75


def test_the_curve_tells_phases_and_its_uncertainty(prior: LearnedPrior, made_bank: Bank) -> None:
    job = next(iter(made_bank.jobs.values()))
    curve = prior.curve(job.job, job.table_scale)
    columns = {"workers": [1.0, 2.0], "ps": [1.0, 1.0], "worker_cpu": [0.2, 0.4], "ps_cpu": [0.2, 0.2]}
    phases = curve.phase_seconds(columns)
    assert phases["worker"][0] > phases["worker"][1] > 0
    assert phases["ps"][0] > 0
    assert (curve.sd(columns) > curve.sd(columns, trial=False)).all()
    far = {**columns, "workers": [40.0, 80.0]}
    assert (curve.sd(far) > curve.sd(columns)).all()


def test_it_is_the_same_after_it_was_written(prior: LearnedPrior, tmp_path: Path) -> None:
    prior.save(tmp_path / "prior.json")
    again = LearnedPrior.load(tmp_path / "prior.json")
    job = Job()
    axes = {"workers": [1, 4], "ps": [1, 2], "worker_cpu": [0.5, 1.0], "ps_cpu": [0.3, 0.3]}
    assert (again.curve(job).log_rates(axes) == prior.curve(job).log_rates(axes)).all()
    assert (again.curve(job).sd(axes) == prior.curve(job).sd(axes)).all()
    assert (tmp_path / "prior.json").stat().st_size < 5e6
    assert [path.name for path in tmp_path.iterdir()] == ["prior.json"]


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (Job(model=Model(tables=Tables(count=3000, rows=10**9, dim=2048))), "unlike the jobs"),
        (Job(command=Command(run="python train.py")), "its own code"),
        (Job(training=Training(device="cuda")), "on a GPU"),
    ],
)
def test_what_it_knows_nothing_of_is_refused(prior: LearnedPrior, job: Job, why: str) -> None:
    with pytest.raises(NotEnoughDataError, match=why):
        prior.curve(job)


def test_a_poisoned_trial_is_left_out_and_named(made_bank: Bank, prior: LearnedPrior) -> None:
    trials = list(made_bank.trials)
    trials[100] = trials[100].model_copy(update={"throughput": 1000 * (trials[100].throughput or 0)})
    told = LearnedPrior.fit(trials, made_bank.jobs)
    assert len(told.flagged) == 1
    assert "trial 101" in told.flagged[0]
    assert "times what" in told.flagged[0]
    assert told.trials == len(trials) - 1
    assert np.abs(told.parameters - prior.parameters).max() < 0.5


def test_a_job_in_other_units_is_left_out_as_a_whole(made_bank: Bank) -> None:
    key = next(iter(made_bank.jobs))
    trials = [
        t.model_copy(update={"throughput": (t.throughput or 0) / 1000}) if t.job_hash == key else t
        for t in made_bank.trials
    ]
    told = LearnedPrior.fit(trials, made_bank.jobs)
    assert len(told.flagged) == 1
    assert made_bank.jobs[key].job.name in told.flagged[0]
    assert "all 12 trials" in told.flagged[0]


def test_what_one_job_alone_claims_widens_no_experience(made_bank: Bank, prior: LearnedPrior) -> None:
    trials = list(made_bank.trials)
    trials[50] = trials[50].model_copy(update={"worker_cpu": 1000.0, "workers": 500})
    trials[60] = trials[60].model_copy(update={"worker_cpu_used": 50.0})
    told = LearnedPrior.fit(trials, made_bank.jobs)
    assert told.ranges["worker_cpu"][1] <= prior.ranges["worker_cpu"][1]
    assert told.ranges["workers"] == prior.ranges["workers"]
    assert any("more than their cores" in reason for reason in told.flagged)
    axes = {"workers": [1, 4], "ps": [1, 2], "worker_cpu": [0.5, 0.3], "ps_cpu": [0.3, 0.3]}
    assert told.curve(Job()).log_rates(axes) == pytest.approx(prior.curve(Job()).log_rates(axes), abs=0.05)


@pytest.mark.parametrize("cell", [-1.0, float("nan"), float("inf")])
def test_what_is_no_throughput_is_no_trial(cell: float) -> None:
    with pytest.raises(ValueError, match="throughput"):
        Trial(workers=1, ps=1, throughput=cell)


def test_too_little_is_said_to_be(made_bank: Bank) -> None:
    with pytest.raises(NotEnoughDataError, match="cannot make a prior"):
        LearnedPrior.fit(made_bank.trials[:20], made_bank.jobs)
    with pytest.raises(NotEnoughDataError, match="1 base shape cannot"):
        LearnedPrior.fit(made_bank.trials[:36], made_bank.jobs)
    with pytest.raises(NotEnoughDataError):
        LearnedPrior.fit([], made_bank.jobs)


def change(record: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    inner = record
    *outer, last = path.split(".")
    for name in outer:
        inner = inner[name]
    inner[last] = value
    return record


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("physics.worker_flops", float("nan")),
        ("physics.worker_flops", "fast"),
        ("experience.levels", [0.1]),
        ("experience", {}),
        ("widen", -1),
        ("experience.limit", float("nan")),
        ("experience.length", 0),
        ("ranges", {"workers": [1]}),
        ("ranges", 3),
    ],
)
def test_a_damaged_file_is_refused(prior: LearnedPrior, tmp_path: Path, path: str, value: Any) -> None:
    file = tmp_path / "prior.json"
    prior.save(file)
    record = change(json.loads(file.read_text()), path, value)
    file.write_text(json.dumps(record))
    with pytest.raises(StoreError, match="damaged: it is not what was written"):
        LearnedPrior.load(file)
    del record["sha256"]
    file.write_text(json.dumps(record | {"sha256": learned._digest(record)}))
    with pytest.raises(StoreError, match="damaged"):
        LearnedPrior.load(file)


@pytest.mark.parametrize(
    ("text", "why"), [("{", "cannot be read"), ("[]", "no prior of version"), ('{"version": 0}', "tells 0")]
)
def test_what_is_no_prior_is_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "prior.json"
    file.write_text(text)
    with pytest.raises(StoreError, match=why):
        LearnedPrior.load(file)
    with pytest.raises(StoreError, match="no prior at"):
        LearnedPrior.load(tmp_path / "nothing.json")


def test_loading_and_asking_needs_no_learning_library(prior: LearnedPrior, tmp_path: Path) -> None:
    file = tmp_path / "prior.json"
    prior.save(file)
    code = f"""
import sys
from sizewright.models.prior import LearnedPrior, learned
from sizewright.spec import Job
print(LearnedPrior.load({str(file)!r}).curve(Job()).guess.nearest)
print(sorted({{m.partition('.')[0] for m in sys.modules}} & {{'torch', 'ray', 'sklearn', 'lightgbm', 'pandas'}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == "[]"
