"""Where each job of the bank is measured: allocations far apart, other ones for each job."""

from __future__ import annotations

import itertools
import random

import numpy as np

from sizewright.datasets.bank.shapes import BankJob
from sizewright.models.memory import MemoryModel
from sizewright.profiler._base import Point
from sizewright.profiler.spread import with_memory
from sizewright.spec import Allocation, Job
from sizewright.spec.units import GIB

ALLOCATIONS = 12
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
    """The first by chance, each of the others far from those before it in the logarithm of every axis."""
    axes = itertools.product(WORKERS, PS, WORKER_CPU, PS_CPU)
    held = [axis for axis in axes if axis[0] * axis[2] + axis[1] * axis[3] <= MOST_CORES + 1e-9]
    rng.shuffle(held)
    logs = np.log(np.array(held))
    places = (logs - logs.min(axis=0)) / np.ptp(logs, axis=0)
    chosen = [0]
    while len(chosen) < ALLOCATIONS:
        gaps = np.min([((places - places[i]) ** 2).sum(axis=1) for i in chosen], axis=0)
        chosen.append(int(np.argmax(gaps * np.array([0.5 + rng.random() for _ in held]))))
    memory = MemoryModel(job)
    return [_roomy(with_memory(Allocation.of(*held[i], job.training.batch_size), memory)) for i in chosen]


def _roomy(allocation: Allocation) -> Allocation:
    ps = tuple(g.model_copy(update={"memory_bytes": max(g.memory_bytes, _ROOM_BYTES)}) for g in allocation.ps)
    return allocation.model_copy(update={"ps": ps})
