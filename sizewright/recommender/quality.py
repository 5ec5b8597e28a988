"""Asynchronous workers overwrite each other's updates: speed says nothing of how good the model then becomes."""

from __future__ import annotations

from sizewright.spec import Job


def untested(job: Job, workers: float) -> str:
    """The warning where there are more asynchronous workers than the model's quality was tested with; else empty."""
    tested = job.bounds.tested_workers
    if job.training.sync == "sync" or tested is None or workers <= tested:
        return ""
    return f"Warning: the model's quality was tested with {tested} asynchronous workers, and these are {workers:g}."
