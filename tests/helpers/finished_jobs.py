"""Records of finished jobs."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from sizewright.datasets.runs.finished_job import FinishedJob, Segment
from sizewright.spec import Allocation, Estimate, Job, Outcome

ALLOCATION = Allocation.of(2, 1, 0.5, 0.25, 512)


def run_of(job: Job | None, number: int = 0, rate: float = 1000.0, seconds: float = 60.0, **fields: Any) -> FinishedJob:
    """Return a run at this rate whose prediction was 900 to 1,100 samples/s."""
    segment = Segment(at_s=1.0, duration_s=seconds, allocation=ALLOCATION, samples=round(rate * seconds))
    defaults: dict[str, Any] = {
        "id": f"run-{number}",
        "name": "ctr",
        "job": job,
        "stretches": (segment,),
        "started_at": datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(hours=number),
        "outcome": Outcome(status="finished", samples=segment.samples or 0, duration_s=seconds),
        "expected": Estimate(value=1000.0, lower=900.0, upper=1100.0),
        "expected_by": "prior with sizewright-prior version 1",
    }
    return FinishedJob.model_validate(defaults | fields)
