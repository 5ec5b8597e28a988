"""Runs that went through several allocations, for tests of what is shown of them."""

from __future__ import annotations

from datetime import datetime, timezone

from sizewright.datasets.finished import FinishedJob, Stretch, Usage
from sizewright.spec import Allocation, Change, Estimate, Failure, Job, Outcome


def run_of(job: Job, name: str = "nightly", actual: float = 20_000.0) -> FinishedJob:
    """Began with two workers, went on with four, lost a PS on the way."""
    two, four = (Allocation.of(workers, 1, 0.5, 0.3, job.training.batch_size) for workers in (2, 4))
    return FinishedJob(
        id=name, name=name, job=job, started_at=datetime(2026, 6, 1, tzinfo=timezone.utc),
        stretches=(
            Stretch(at_s=0, duration_s=600, allocation=two, samples=round(600 * actual / 2)),
            Stretch(at_s=600, duration_s=3000, allocation=four, samples=round(3000 * actual)),
        ),
        outcome=Outcome(
            status="finished", duration_s=3600,
            changes=(Change(at_s=600, kind="scale", seconds=2.5, description="two workers more"),),
            failures=(Failure(at_s=1200, replica="ps-0", cause="killed", action="its rows came back"),),
        ),
        worker=Usage(memory_peak_bytes=400 << 20), ps=Usage(memory_peak_bytes=350 << 20),
        expected=Estimate(value=19_000, lower=15_000, upper=24_000), expected_by="model",
    )  # fmt: skip
