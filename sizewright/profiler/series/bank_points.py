"""The points at which each job of the bank is measured: all numbers of replicas, with random cores for each job."""

from __future__ import annotations

import itertools
import random

from sizewright.datasets.trial_bank.shapes import BankJob
from sizewright.formatting import GIB
from sizewright.models.memory.memory_model import MemoryModel
from sizewright.profiler.series._base import TrialPoint
from sizewright.profiler.series.space_filling import with_memory
from sizewright.spec import Allocation, Job

REPEATED = 7
"""Points of a job that are measured again in another session."""
MAX_CORES = 1.6
WORKERS, PS = (1, 2, 3, 4), (1, 2, 3)
WORKER_CPU = (0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
PS_CPU = (0.1, 0.15, 0.2, 0.3, 0.4, 0.6)
# A PS that held more rows a moment ago must not run out of memory: these trials measure speed.
_MIN_PS_BYTES = GIB


def first_points(bank_job: BankJob, number: int) -> list[TrialPoint]:
    """Return all points of a job, in random order; `number` is the seed."""
    rng = random.Random(number)
    points = [TrialPoint(allocation, bank_job.table_scale) for allocation in _allocations(bank_job.job, rng)]
    rng.shuffle(points)
    return points


def repeated_points(bank_job: BankJob, number: int) -> list[TrialPoint]:
    """Return some of the points, to be measured again in another session."""
    return random.Random(-number).sample(first_points(bank_job, number), REPEATED)


def _allocations(job: Job, rng: random.Random) -> list[Allocation]:
    """Return every number of workers with every number of PS, with random cores that fit the host."""
    memory, batch = MemoryModel(job), job.training.batch_size
    chosen = []
    for workers, ps in itertools.product(WORKERS, PS):
        sizes = itertools.product(WORKER_CPU, PS_CPU)
        fitting = [(w, p) for w, p in sizes if workers * w + ps * p <= MAX_CORES + 1e-9]
        chosen.append(Allocation.of(workers, ps, *rng.choice(fitting), batch))
    return [_with_min_ps_memory(with_memory(allocation, memory)) for allocation in chosen]


def _with_min_ps_memory(allocation: Allocation) -> Allocation:
    ps = tuple(g.model_copy(update={"memory_bytes": max(g.memory_bytes, _MIN_PS_BYTES)}) for g in allocation.ps)
    return allocation.model_copy(update={"ps": ps})
