"""Memory that the replicas of similar jobs took, as evidence for the memory of a new job.

For each run, the peak of a role is divided by its forecast (base + calculated part). The largest such ratio of the
nearest jobs is applied to the new job, at the replicas of that run: if B is the forecast of the new job there, with the
default base b, the new base is max(0, ratio·B − (B − b)) bytes (ours). A peak that ended in an OOM kill is only a lower
bound: it may raise the base and does not count as a measurement. Over the trial bank, with four runs of each job's
eight nearest jobs, bases from these ratios cover all peaks with the usual margin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sizewright.datasets.trials.trial import Trial
from sizewright.models.memory.memory_model import DEFAULT_BASES, Bases, MemoryModel
from sizewright.recommender.similar_jobs.similarity import Neighbour
from sizewright.recommender.sizing.run_peaks import cut_off, run_peaks
from sizewright.spec import Job, Role

_MAX_JOBS = 8
_MIN_JOBS = 3
"""Number of jobs from which their measured bases may be below the default."""
_MAX_RATIO = 4.0
"""Of a ratio to the median of all; larger ones are ignored as outliers."""


class SimilarMemory(NamedTuple):
    """Bases learned from similar jobs, and the number of jobs and runs that they are based on."""

    bases: Bases = DEFAULT_BASES
    jobs: int = 0
    runs: int = 0


NONE = SimilarMemory()


class _PeakEvidence(NamedTuple):
    """The peak of one role in one run."""

    ratio: float
    """Peak over its forecast."""
    base: float
    """The base, in bytes, that this ratio gives for the new job."""
    cut_off: bool
    """True if the run ended in an OOM kill of the role."""


def similar_memory(job: Job, neighbours: Sequence[Neighbour]) -> SimilarMemory:
    """Return the bases for a job from the runs of its neighbours, which are sorted by distance."""
    nearest = [neighbour for neighbour in neighbours if any(run_peaks(neighbour.runs))][:_MAX_JOBS]
    bases = Bases(
        ps=_base(job, "ps", DEFAULT_BASES.ps, nearest), worker=_base(job, "worker", DEFAULT_BASES.worker, nearest)
    )
    runs = sum(len(list(run_peaks(neighbour.runs))) for neighbour in nearest)
    return SimilarMemory(bases, len(nearest), runs)


def _base(job: Job, role: Role, default: float, neighbours: Sequence[Neighbour]) -> float:
    """Return the largest base of the runs, and at least the default if few jobs measured one."""
    evidence = []
    for run in (run for neighbour in neighbours for run in neighbour.runs):
        for peak in run_peaks([run]):
            measured = peak.ps_memory_bytes if role == "ps" else peak.worker_memory_bytes
            if measured and run.job:
                batch_size = peak.batch_size or run.job.batch_size_for(peak.workers)
                ratio = measured / _forecast(run.job, role, peak, batch_size)
                forecast = _forecast(job, role, peak, job.batch_size_for(peak.workers))
                base = max(0.0, ratio * forecast - (forecast - default))
                evidence.append(_PeakEvidence(ratio, base, cut_off(run, role)))
    if not evidence:
        return default
    max_ratio = _MAX_RATIO * float(np.median([one.ratio for one in evidence]))
    plausible = [one for one in evidence if one.ratio <= max_ratio]
    may_be_lower = len(neighbours) >= _MIN_JOBS and not all(one.cut_off for one in plausible)
    return max(*(one.base for one in plausible), 0.0 if may_be_lower else default)


def _forecast(job: Job, role: Role, at: Trial, batch_size: int) -> float:
    """Return the bytes of a replica that are forecast without any measured peak."""
    model = MemoryModel(job)
    batch = np.array([float(batch_size)])
    if role == "worker":
        return float(model.worker_bytes(batch)[0])
    return float(model.ps_bytes(np.array([max(at.ps, 1.0)]), np.array([float(at.workers)]), batch_size=batch)[0])
