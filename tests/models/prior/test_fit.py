from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sizewright.datasets.trial_bank.files import Bank
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import NotEnoughDataError, StoreError
from sizewright.models.prior import LearnedPrior
from sizewright.models.prior import fit as learned
from sizewright.spec import Job, Model, Tables, Training
from sizewright.spec.command import Command


@pytest.fixture(scope="module")
def prior(made_bank: Bank) -> LearnedPrior:
    return LearnedPrior.fit(made_bank.trials, made_bank.jobs)


def without(bank: Bank, base: str) -> Bank:
    jobs = {key: job for key, job in bank.jobs.items() if job.base != base}
    return Bank([t for t in bank.trials if t.job_hash in jobs], jobs, bank.card)


def test_left_out_jobs_are_predicted(made_bank: Bank) -> None:
    errors, covered = [], []
    for base in ("rm1", "din", "wide-and-deep"):
        remaining = without(made_bank, base)
        prior_without = LearnedPrior.fit(remaining.trials, remaining.jobs)
        for key, job in made_bank.jobs.items():
            if job.base == base:
                of_job = [t for t in made_bank.trials if t.job_hash == key]
                curve = prior_without.curve(job.job, job.table_scale)
                residuals = np.log([t.throughput for t in of_job]) - curve.log_rates(of_job)
                errors += list(np.abs(residuals))
                covered += list(np.abs(residuals) < 1.645 * curve.sd(of_job))
    assert np.median(errors) < 0.12
    assert np.mean(covered) > 0.75


def test_curve_grows_uncertain_outside_the_measured_ranges(prior: LearnedPrior, made_bank: Bank) -> None:
    job = next(iter(made_bank.jobs.values()))
    curve = prior.curve(job.job, job.table_scale)
    columns = {"workers": [1.0, 2.0], "ps": [1.0, 1.0], "worker_cpu": [0.2, 0.4], "ps_cpu": [0.2, 0.2]}
    assert (curve.sd(columns) > curve.sd(columns, trial=False)).all()
    far = {**columns, "workers": [40.0, 80.0]}
    assert (curve.sd(far) > curve.sd(columns)).all()


def test_saved_prior_loads_unchanged(prior: LearnedPrior, tmp_path: Path) -> None:
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
def test_curve_of_an_unsupported_job_is_refused(prior: LearnedPrior, job: Job, why: str) -> None:
    with pytest.raises(NotEnoughDataError, match=why):
        prior.curve(job)


def test_fit_leaves_out_and_names_a_wrong_trial(made_bank: Bank, prior: LearnedPrior) -> None:
    trials = list(made_bank.trials)
    trials[100] = trials[100].model_copy(update={"throughput": 1000 * (trials[100].throughput or 0)})
    prior_without = LearnedPrior.fit(trials, made_bank.jobs)
    assert len(prior_without.flagged) == 1
    assert "trial 101" in prior_without.flagged[0]
    assert "times what" in prior_without.flagged[0]
    assert prior_without.trials == len(trials) - 1
    assert np.abs(prior_without.parameters - prior.parameters).max() < 0.5


def test_fit_leaves_out_all_trials_of_a_job_in_other_units(made_bank: Bank) -> None:
    key = next(iter(made_bank.jobs))
    trials = [
        t.model_copy(update={"throughput": (t.throughput or 0) / 1000}) if t.job_hash == key else t
        for t in made_bank.trials
    ]
    prior_without = LearnedPrior.fit(trials, made_bank.jobs)
    assert len(prior_without.flagged) == 1
    assert made_bank.jobs[key].job.name in prior_without.flagged[0]
    assert "all 12 trials" in prior_without.flagged[0]


def test_values_of_a_single_job_do_not_widen_ranges(made_bank: Bank, prior: LearnedPrior) -> None:
    trials = list(made_bank.trials)
    trials[50] = trials[50].model_copy(update={"worker_cpu": 1000.0, "workers": 500})
    trials[60] = trials[60].model_copy(update={"worker_cpu_used": 50.0})
    prior_without = LearnedPrior.fit(trials, made_bank.jobs)
    assert prior_without.ranges["worker_cpu"][1] <= prior.ranges["worker_cpu"][1]
    assert prior_without.ranges["workers"] == prior.ranges["workers"]
    assert any("more than their cores" in reason for reason in prior_without.flagged)
    axes = {"workers": [1, 4], "ps": [1, 2], "worker_cpu": [0.5, 0.3], "ps_cpu": [0.3, 0.3]}
    assert prior_without.curve(Job()).log_rates(axes) == pytest.approx(prior.curve(Job()).log_rates(axes), abs=0.05)


@pytest.mark.parametrize("cell", [-1.0, float("nan"), float("inf")])
def test_trial_with_invalid_throughput_is_refused(cell: float) -> None:
    with pytest.raises(ValueError, match="throughput"):
        Trial(workers=1, ps=1, throughput=cell)


def test_fit_with_too_few_trials_or_bases_is_refused(made_bank: Bank) -> None:
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
    with pytest.raises(StoreError, match="damaged: its checksum does not match"):
        LearnedPrior.load(file)
    del record["sha256"]
    file.write_text(json.dumps(record | {"sha256": learned._digest(record)}))
    with pytest.raises(StoreError, match="damaged"):
        LearnedPrior.load(file)


@pytest.mark.parametrize(
    ("text", "why"),
    [("{", "Cannot read the prior"), ("[]", "not a prior of version"), ('{"version": 0}', "its version is 0")],
)
def test_loading_something_else_is_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "prior.json"
    file.write_text(text)
    with pytest.raises(StoreError, match=why):
        LearnedPrior.load(file)
    with pytest.raises(StoreError, match="no prior at"):
        LearnedPrior.load(tmp_path / "nothing.json")


def test_loading_and_predicting_imports_no_learning_library(prior: LearnedPrior, tmp_path: Path) -> None:
    file = tmp_path / "prior.json"
    prior.save(file)
    code = f"""
import sys
from sizewright.models.prior import LearnedPrior
from sizewright.spec import Job
print(LearnedPrior.load({str(file)!r}).curve(Job()).effect.nearest)
print(sorted({{m.partition('.')[0] for m in sys.modules}} & {{'torch', 'ray', 'sklearn', 'lightgbm', 'pandas'}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == "[]"
