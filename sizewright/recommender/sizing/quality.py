"""A warning about model quality: asynchronous workers overwrite each other's updates, and speed does not show it."""

from __future__ import annotations

from sizewright.spec import Job


def untested_workers_warning(job: Job, workers: float) -> str:
    """Return a warning if there are more asynchronous workers than the model's quality was tested with, else ""."""
    tested = job.bounds.tested_workers
    if job.training.sync == "sync" or tested is None or workers <= tested:
        return ""
    return f"Warning: the model's quality was tested with up to {tested} asynchronous workers, not with {workers:g}."
