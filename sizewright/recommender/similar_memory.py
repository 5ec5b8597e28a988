"""Memory that replicas of jobs like one that is to start took, beyond what is counted, as evidence for its own.

Of each run the peak of a role is held against what was foretold of it: peak / (base + counted). The greatest such
ratio of the nearest jobs is taken for the job, at the run's replicas: with B foretold of it there by the usual base b,
the base becomes max(0, ratio·B − (B − b)) bytes (ours). A peak that memory ended says only that more was needed: it may
raise the ratio, and is no measurement. Over the bank, each job told by four runs of its eight nearest, that holds all
peaks with the usual margin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sizewright.datasets.finished import FinishedJob
from sizewright.datasets.trials import Trial
from sizewright.models.memory import USUAL, Bases, MemoryModel
from sizewright.recommender.run_peaks import cut_off, peaks_of
from sizewright.recommender.similar import Similar
from sizewright.spec import Job, Role

_MOST_JOBS, _ENOUGH_JOBS = 8, 3
_UNSOUND = 4.0
"""Times the median of all: no peak of a job like it."""


class SimilarMemory(NamedTuple):
    """Bases as jobs like it showed them, and how many jobs and runs they rest on."""

    bases: Bases = USUAL
    jobs: int = 0
    runs: int = 0


NONE = SimilarMemory()


class _Told(NamedTuple):
    """By a run of one role: its peak over what was foretold of it, the base that makes for the job, and whether memory
    cut it off."""

    ratio: float
    base: float
    cut_off: bool


def memory_of(job: Job, found: Sequence[Similar]) -> SimilarMemory:
    """From similar jobs, the nearest first."""
    peaks = [[(run, peak) for run in each.runs for peak in peaks_of([run])] for each in found]
    nearest = [pairs for pairs in peaks if pairs][:_MOST_JOBS]
    enough = len(nearest) >= _ENOUGH_JOBS

    def base(role: Role, usual: float) -> float:
        told = [one for pairs in nearest for run, peak in pairs for one in _told(job, run, role, peak, usual)]
        return _base(told, usual, enough=enough)

    bases = Bases(base("ps", USUAL.ps), base("worker", USUAL.worker))
    return SimilarMemory(bases, len(nearest), sum(map(len, nearest)))


def _told(job: Job, run: FinishedJob, role: Role, peak: Trial, usual: float) -> Iterator[_Told]:
    measured = peak.ps_memory_bytes if role == "ps" else peak.worker_memory_bytes
    if measured and run.job:
        ours = _foretold(job, role, peak, job.training.batch_size)
        ratio = measured / _foretold(run.job, role, peak, peak.batch_size or run.job.training.batch_size)
        yield _Told(ratio, max(0.0, ratio * ours - (ours - usual)), cut_off(run, role))


def _foretold(job: Job, role: Role, at: Trial, batch_size: int) -> float:
    """Bytes of a replica before any peak is known."""
    model, batch = MemoryModel(job), np.array([float(batch_size)])
    if role == "worker":
        return float(model.worker_bytes(batch)[0])
    return float(model.ps_bytes(np.array([max(at.ps, 1.0)]), np.array([float(at.workers)]), batch_size=batch)[0])


def _base(told: Sequence[_Told], usual: float, *, enough: bool) -> float:
    """The greatest, and no less than usual where few measured it."""
    if not told:
        return usual
    limit = _UNSOUND * float(np.median([each.ratio for each in told]))
    sound = [each for each in told if each.ratio <= limit]
    measured = enough and not all(each.cut_off for each in sound)
    return max(*(each.base for each in sound), 0.0 if measured else usual)
