"""Fixtures that several rooms share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sizewright.datasets.store import TrialStore
from sizewright.datasets.trials import Trial
from sizewright.profiler.spread import spread_allocations
from sizewright.spec import Job

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def example() -> Path:
    return ROOT / "examples" / "criteo.yaml"


@pytest.fixture
def shared() -> Path:
    """Data and schemas that others published; tests that read them skip where they are not at hand."""
    folder = Path(os.environ.get("SIZEWRIGHT_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip("the published data is not at hand (set SIZEWRIGHT_SHARED)")
    return folder


def formula_trials(job: Job, count: int = 8) -> list[Trial]:
    """Trials as the model's own form would give them, for tests that need no measuring."""
    trials = []
    for i, a in enumerate(spread_allocations(job, 1.6, count)):
        w, p, wc, pc = a.replicas("worker"), a.replicas("ps"), a.worker[0].cpu, a.ps[0].cpu
        seconds = 0.002 + 4e-5 * a.batch_size / wc + 0.001 * w / (p * pc) + 1e-3 * w / p
        rate = w * a.batch_size / seconds * (1 + 0.02 * (-1) ** i)
        trials.append(
            Trial(
                workers=w, ps=p, worker_cpu=wc, ps_cpu=pc, batch_size=a.batch_size, throughput=rate,
                throughput_se=0.02 * rate, job=job.name, job_hash=job.hash, sync="async", table_scale=1.0,
                embedding_bytes=101_485_440, worker_memory_bytes=450 << 20, ps_memory_bytes=300 << 20,
                worker_cpu_used=wc * 0.95, ps_cpu_used=pc * 0.5, limited_by="cgroup", host="test-host", series="s",
            )
        )  # fmt: skip
    return trials


@pytest.fixture
def store(tmp_path: Path, example: Path) -> str:
    """A store with enough trials of the example."""
    path = str(tmp_path / "trials.db")
    with TrialStore(path) as opened:
        for trial in formula_trials(Job.load(example)):
            opened.add(trial)
    return path
