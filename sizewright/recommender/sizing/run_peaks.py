"""Memory peaks of a job's own runs, as evidence for the memory that its replicas need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sizewright.datasets.runs.finished_job import FinishedJob
from sizewright.datasets.trials.trial import Trial
from sizewright.spec import Role

OOM_GROWTH = 1.2
"""Factor on a peak that the memory limit cut off, as the Kubernetes VPA applies it after an OOM kill."""


def run_peaks(runs: Iterable[FinishedJob]) -> Iterator[Trial]:
    """Yield a trial without a throughput for each run with a memory peak, at its longest-lived allocation."""
    for run in runs:
        if run.stretches and (run.worker.memory_peak_bytes or run.ps.memory_peak_bytes):
            allocation = max(run.stretches, key=lambda segment: segment.duration_s).allocation
            yield Trial(
                workers=allocation.replicas("worker"),
                ps=allocation.replicas("ps"),
                batch_size=allocation.batch_size,
                worker_memory_bytes=_peak(run, "worker"),
                ps_memory_bytes=_peak(run, "ps"),
            )


def cut_off(run: FinishedJob, role: Role) -> bool:
    """Return whether a replica of the role ran out of memory, so that its peak is only a lower bound of its need."""
    return any(f.cause == "oom" and (not f.replica or f"{role}-" in f.replica) for f in run.outcome.failures)


def _peak(run: FinishedJob, role: Role) -> int | None:
    peak = run.worker.memory_peak_bytes if role == "worker" else run.ps.memory_peak_bytes
    return round(peak * (OOM_GROWTH if cut_off(run, role) else 1.0)) if peak else None
