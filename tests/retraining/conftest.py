from __future__ import annotations

from pathlib import Path

import pytest

from sizewright.datasets.trial_bank.files import Bank
from sizewright.datasets.trials.store import TrialStore
from sizewright.retraining.registry import Registry


@pytest.fixture
def store(tmp_path: Path) -> TrialStore:
    return TrialStore(tmp_path / "trials.db")


@pytest.fixture(scope="session")
def parts(made_bank: Bank) -> tuple[Bank, Bank]:
    """Return a part of the bank without one family, and that family."""
    bases = ("mlperf-dlrm", "criteo-dlrm", "rm1", "wide-and-deep", "din", "ncf", "mlperf-dcnv2")
    selected = {key: job for key, job in made_bank.jobs.items() if job.base in bases}

    def part(mine: bool) -> Bank:
        jobs = {key: j for key, j in selected.items() if (j.job.model.family == "dcn") == mine}
        return made_bank._replace(jobs=jobs, trials=[t for t in made_bank.trials if t.job_hash in jobs])

    return part(False), part(True)


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory, parts: tuple[Bank, Bank]) -> TrialStore:
    """Return a store with the trials of all families."""
    store = TrialStore(tmp_path_factory.mktemp("store") / "trials.db")
    for part in parts:
        for job in part.jobs.values():
            store.history.add_job(job.job)
        for trial in part.trials:
            store.add(trial)
    return store


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    return Registry(f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db")
