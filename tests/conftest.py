"""Fixtures that several test folders share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from sizewright.datasets.trial_bank.files import Bank
from sizewright.datasets.trial_bank.shapes import bank_jobs
from sizewright.datasets.trials.store import TrialStore
from sizewright.datasets.trials.trial import Trial
from sizewright.models.prior import mechanistic
from sizewright.models.prior.rows import configurations_of
from sizewright.models.table import AXES, as_columns
from sizewright.profiler.series.bank_points import first_points
from sizewright.spec import Job
from tests.helpers.formula_trials import formula_trials

ROOT = Path(__file__).resolve().parents[1]

# Each run tries the same examples, so that a change is judged by what it changes; `explore` looks for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(autouse=True)
def own_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep default stores away from the project folder, and give each test its own folder of runs."""
    monkeypatch.setenv("SIZEWRIGHT_STORE", str(tmp_path / "sizewright.db"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SIZEWRIGHT_SERIES_LOCK", f"sizewright-tests-{os.getpid()}")  # other profiles may run


@pytest.fixture(scope="module")
def one_ray() -> Iterator[None]:
    """Keep one Ray over the tests of a module, each of whose sessions would start one of its own."""
    pytest.importorskip("ray")
    from sizewright.training.ray.engine import Engine

    engine = Engine()
    yield
    engine.stop()


@pytest.fixture
def example() -> Path:
    return ROOT / "examples" / "criteo.yaml"


@pytest.fixture
def shared() -> Path:
    """Return the folder with data and schemas of others; tests that need it are skipped without it."""
    folder = Path(os.environ.get("SIZEWRIGHT_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip("the published data is not at hand (set SIZEWRIGHT_SHARED)")
    return folder


@pytest.fixture
def store(tmp_path: Path, example: Path) -> str:
    """Return a store with enough trials of the example."""
    path = str(tmp_path / "trials.db")
    with TrialStore(path) as opened:
        for trial in formula_trials(Job.load(example)):
            opened.add(trial)
    return path


@pytest.fixture(scope="session")
def made_bank() -> Bank:
    """Return a bank made from the prior's equations, with random errors of 5 % for each job and 4 % for each trial."""
    rng = np.random.default_rng(0)
    jobs = {b.job.hash: b for b in bank_jobs()[:36]}
    trials = []
    for number, bank_job in enumerate(jobs.values()):
        points = first_points(bank_job, number)
        columns = as_columns([point.allocation for point in points], (*AXES, "sync", "table_scale"))
        columns["table_scale"] = np.full(len(points), bank_job.table_scale)
        at = configurations_of(bank_job.job, columns)
        level = 0.05 * rng.standard_normal()
        rates = np.exp(mechanistic.log_rates(mechanistic.START, at) + level + 0.04 * rng.standard_normal(len(points)))
        cpu = mechanistic.cpu_seconds(mechanistic.START, at)
        steps = rates / at.work.samples
        for i, point in enumerate(points):
            a = point.allocation
            trials.append(
                Trial(
                    workers=a.replicas("worker"), ps=a.replicas("ps"), worker_cpu=a.worker[0].cpu, ps_cpu=a.ps[0].cpu,
                    batch_size=a.batch_size, sync=bank_job.job.training.sync, table_scale=point.table_scale,
                    throughput=rates[i], job=bank_job.job.name, job_hash=bank_job.job.hash, series=f"first-{number}",
                    worker_cpu_used=min(a.worker[0].cpu, cpu.worker[i] * steps[i] / a.replicas("worker")),
                    ps_cpu_used=min(a.ps[0].cpu, cpu.ps[i] * steps[i] / a.replicas("ps")), limited_by="cgroup",
                )
            )  # fmt: skip
    about = {"host": {"cores": 2, "versions": {}}, "how": {}, "discarded": [], "failed": 0}
    return Bank(trials, jobs, about | {"measured_from": None, "measured_to": None})
