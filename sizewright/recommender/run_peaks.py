"""Memory peaks of a job's own runs, as evidence for what its replicas need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sizewright.datasets.finished import FinishedJob
from sizewright.datasets.trials import Trial
from sizewright.spec import Role

OOM_GROWTH = 1.2
"""A peak that its limit cut off was to be higher: as Kubernetes VPA takes it after a kill."""


def peaks_of(runs: Iterable[FinishedJob]) -> Iterator[Trial]:
    """A trial without a throughput for each run that tells a peak, at the allocation that lasted longest."""
    for run in runs:
        if run.stretches and (run.worker.memory_peak_bytes or run.ps.memory_peak_bytes):
            a = max(run.stretches, key=lambda stretch: stretch.duration_s).allocation
            yield Trial(
                workers=a.replicas("worker"), ps=a.replicas("ps"), batch_size=a.batch_size,
                worker_memory_bytes=_peak(run, "worker"), ps_memory_bytes=_peak(run, "ps"),
            )  # fmt: skip


def cut_off(run: FinishedJob, role: Role) -> bool:
    """Whether memory ended a replica of the role, so that its peak tells of the limit."""
    return any(f.cause == "oom" and (not f.replica or f"{role}-" in f.replica) for f in run.outcome.failures)


def _peak(run: FinishedJob, role: Role) -> int | None:
    peak = run.worker.memory_peak_bytes if role == "worker" else run.ps.memory_peak_bytes
    return round(peak * (OOM_GROWTH if cut_off(run, role) else 1.0)) if peak else None
