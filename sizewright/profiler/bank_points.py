"""Where each job of the bank is measured: all numbers of replicas, with other cores for each job."""

from __future__ import annotations

import itertools
import random

from sizewright.datasets.bank.shapes import BankJob
from sizewright.models.memory import MemoryModel
from sizewright.profiler._base import Point
from sizewright.profiler.spread import with_memory
from sizewright.spec import Allocation, Job
from sizewright.spec.units import GIB

REPEATED = 7
MOST_CORES = 1.6
WORKERS, PS = (1, 2, 3, 4), (1, 2, 3)
WORKER_CPU = (0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
PS_CPU = (0.1, 0.15, 0.2, 0.3, 0.4, 0.6)
# A PS that held more rows a moment ago must not die of it: these trials are about speed.
_ROOM_BYTES = GIB


def first_points(bank_job: BankJob, number: int) -> list[Point]:
    """All allocations, in random order."""
    rng = random.Random(number)
    points = [Point(allocation, bank_job.table_scale) for allocation in _allocations(bank_job.job, rng)]
    rng.shuffle(points)
    return points


def repeated_points(bank_job: BankJob, number: int) -> list[Point]:
    """Some of them, to be measured again in another session."""
    return random.Random(-number).sample(first_points(bank_job, number), REPEATED)


def _allocations(job: Job, rng: random.Random) -> list[Allocation]:
    """Every number of workers with every number of PS, each with cores by chance that the host can hold."""
    memory, batch = MemoryModel(job), job.training.batch_size
    chosen = []
    for workers, ps in itertools.product(WORKERS, PS):
        sizes = itertools.product(WORKER_CPU, PS_CPU)
        held = [(w, p) for w, p in sizes if workers * w + ps * p <= MOST_CORES + 1e-9]
        chosen.append(Allocation.of(workers, ps, *rng.choice(held), batch))
    return [_roomy(with_memory(allocation, memory)) for allocation in chosen]


def _roomy(allocation: Allocation) -> Allocation:
    ps = tuple(g.model_copy(update={"memory_bytes": max(g.memory_bytes, _ROOM_BYTES)}) for g in allocation.ps)
    return allocation.model_copy(update={"ps": ps})
