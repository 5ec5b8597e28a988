"""The pipeline example, from start to finish on the real engine, and again after runs have drifted."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sizewright.datasets.runs.finished_job import FinishedJob, Segment
from sizewright.datasets.trials.store import TrialStore

PIPELINE = Path(__file__).resolve().parents[1] / "examples" / "pipeline.py"
BOUNDS = {
    "worker": {"replicas": [1, 2], "cpu": [0.3, 0.5], "memory": ["256Mi", "2Gi"]},
    "ps": {"replicas": [1, 1], "cpu": [0.2, 0.3], "memory": ["256Mi", "2Gi"]},
}


def run(folder: Path, samples: int) -> str:
    environment = os.environ | {
        "SIZEWRIGHT_STORE": str(folder / "s.db"),
        "SIZEWRIGHT_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    args = [sys.executable, PIPELINE, folder / "job.yaml", "--samples", samples, "--plan", folder / "plan.yaml"]
    completed = subprocess.run(
        [*map(str, args)], capture_output=True, text=True, timeout=900, env=environment, cwd=folder
    )
    assert completed.returncode == 0, completed.stderr[-3000:]
    return completed.stdout


@pytest.mark.long
def test_from_nothing_to_a_retrained_prior(tmp_path: Path, example: Path) -> None:
    job = yaml.safe_load(example.read_text()) | {"bounds": BOUNDS}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    output = run(tmp_path, 400_000)
    assert "finished: 400,000 samples" in output
    assert "are needed" in output  # one run is not enough for drift
    with TrialStore(tmp_path / "s.db", create=False) as store:
        (run_record,) = store.history.finished()
        trials = store.count()
        assert trials >= 4
        assert run_record.expected is not None
        assert run_record.throughput is not None
        assert 0.5 < run_record.throughput / run_record.expected.value < 2
        store.history.add([slower(run_record, number) for number in range(40)])
    output = run(tmp_path, 20_000)
    assert "more than chance allows" in output
    assert "Better: median error" in output.splitlines()[-1], output
    with TrialStore(tmp_path / "s.db", create=False) as store:
        assert store.count() == trials  # it has enough trials
        assert len(store.history.finished()) == 42


def slower(run: FinishedJob, number: int) -> FinishedJob:
    """Return a run at about a third of the predicted throughput; runs of one allocation differ by some 8 %."""
    assert run.expected is not None
    rate = run.expected.value / 3 * math.exp(random.Random(number).gauss(0, 0.08))
    stretch = Segment(at_s=0, duration_s=100, allocation=run.stretches[0].allocation, samples=round(100 * rate))
    return run.model_copy(update={"id": f"slow-{number}", "stretches": (stretch,)})
