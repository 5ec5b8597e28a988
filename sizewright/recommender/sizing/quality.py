"""A warning about model quality: asynchronous workers overwrite each other's updates, and speed does not show it."""

from __future__ import annotations

from sizewright.spec import Job
from sizewright.spec.reason import Reason


def untested_workers_warning(job: Job, workers: float) -> Reason | None:
    """Return a warning if there are more asynchronous workers than the model's quality was tested with, else None."""
    tested = job.bounds.tested_workers
    if job.training.sync == "sync" or tested is None or workers <= tested:
        return None
    return Reason.of("workers_untested", tested=tested, workers=float(workers))
