"""Finished jobs whose throughput is a multiple of the prediction of a prior."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import numpy as np

from sizewright.datasets.runs.finished_job import FinishedJob, JobUsage, Segment
from sizewright.models.prior import LearnedPrior
from sizewright.spec import Allocation, Failure, Job, Outcome

NOW = datetime(2026, 6, 1, tzinfo=timezone.utc)


def scaled_job(job: Job, times: float) -> Job:
    """Return the job with a multiple of its batch size."""
    return job.model_copy(update={"name": f"like-{times:g}"}).with_batch_size(round(times * job.training.batch_size))


def run(
    of: Job, prior: LearnedPrior, factor: float = 1.0, days: float = 1.0, workers: int = 2,
    peaks: tuple[int, int] | None = None, oom: str = "",
) -> FinishedJob:  # fmt: skip
    """Return a finished job at `factor` times the predicted rate.

    `peaks` are the memory peaks of a worker and a PS in bytes; `oom` names the replica that ran out of memory.
    """
    size = {"workers": float(workers), "ps": 1.0, "worker_cpu": 0.5, "ps_cpu": 0.3}
    rate = factor * float(np.exp(prior.curve(of).log_rates([size])[0]))
    allocation = Allocation.of(workers, 1, 0.5, 0.3, of.training.batch_size)
    worker, ps = (JobUsage(memory_peak_bytes=peak) for peak in peaks or (None, None))
    return FinishedJob(
        id=f"{of.hash}-{days}-{workers}", name=of.name, job=of, worker=worker, ps=ps,
        stretches=(Segment(at_s=0, duration_s=100, allocation=allocation, samples=round(100 * rate)),),
        started_at=NOW - timedelta(days=days),
        outcome=Outcome(
            status="failed" if oom else "finished",
            failures=(Failure(at_s=50, replica=oom, cause="oom"),) if oom else (),
        ),
    )  # fmt: skip
