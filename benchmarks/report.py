"""The time and size of a report: `make bench NAME=report`.

The store has 20 runs and 1,000 trials of one job: the job of the bank with the most trials, each many times, with the
noise of repeats. `report_1000_s` is the complete command, its start and the fit included, and `report_1000_mb` the size
of the file. `page_1000_s` is drawing and writing alone, in a process that has imported everything. Seconds are medians
of five.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks._report import choose, finish
from sizewright.api.sizing import size
from sizewright.api.sizing_inputs import SizingInputs
from sizewright.datasets.runs.finished_job import FinishedJob, Segment
from sizewright.datasets.trial_bank.files import load_bank
from sizewright.datasets.trials.store import TrialStore
from sizewright.datasets.trials.trial import now
from sizewright.reporting.contents import ReportData
from sizewright.reporting.page import page
from sizewright.spec import Allocation, Estimate, Job, Outcome

TRIALS, RUNS, TURNS = choose(1000, 1000, 40), choose(20, 20, 2), choose(5, 2, 1)
TARGETS = {"report_1000_s": "≤ 3", "report_1000_mb": "≤ 5"}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, job = _filled(Path(folder))
        out = Path(folder) / "report.html"
        words = [sys.executable, "-m", "sizewright.cli.main", "report", "--store", str(store), "--out", str(out)]
        command_s = [_seconds(lambda: subprocess.run(words, check=True, capture_output=True)) for _ in range(TURNS)]
        data = ReportData(size(SizingInputs(job=job, store=str(store))))
        page_s = [_seconds(lambda: page(data, now())) for _ in range(TURNS)]
        size_mb = out.stat().st_size / 1e6
    figures = {
        "report_1000_s": statistics.median(command_s),
        "report_1000_mb": size_mb,
        "page_1000_s": statistics.median(page_s),
    }
    finish("report", figures, TARGETS, {"whole_s": command_s, "page_s": page_s})


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _filled(folder: Path) -> tuple[Path, Job]:
    rng, bank = np.random.default_rng(0), load_bank()
    usable = [trial for trial in bank.trials if trial.usable]
    job = bank.jobs[Counter(trial.job_hash or "" for trial in usable).most_common(1)[0][0]].job
    mine = [trial for trial in usable if trial.job_hash == job.hash]
    path = folder / "trials.db"
    with TrialStore(path) as store:
        store.history.add_job(job)
        for _ in range(TRIALS):
            trial = mine[rng.integers(len(mine))]
            rate = (trial.throughput or 0.0) * float(np.exp(0.08 * rng.standard_normal()))
            store.add(trial.model_copy(update={"throughput": rate}))
        store.history.add([_run(job, number) for number in range(RUNS)])
    return path, job


def _run(job: Job, number: int) -> FinishedJob:
    stretches = tuple(
        Segment(
            at_s=600.0 * part, duration_s=600, allocation=Allocation.of(1 + part, 1, 0.5, 0.5, 512), samples=6_000_000
        )
        for part in range(4)
    )
    return FinishedJob(
        id=f"run-{number}", name=f"run-{number}", job=job, started_at=now(), stretches=stretches,
        outcome=Outcome(status="finished"), expected=Estimate(value=9000, lower=8000, upper=11000),
    )  # fmt: skip


if __name__ == "__main__":
    main()
