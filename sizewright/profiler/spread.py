"""A fixed plan: a few allocations far apart, the tables at three scales, and the first point again at the end."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials import Trial
from sizewright.errors import JobError
from sizewright.models.memory import MemoryModel
from sizewright.profiler._base import Point, SeriesPlanner, fastest
from sizewright.spec import Allocation, Job, Role
from sizewright.spec.units import format_bytes

SMALLER_SCALES = (1 / 4, 1 / 16)
_LEAST_CORES = 0.1
_ROOM, _LEAST_ROOM = 2.0, 1.15  # a trial's memory over what is predicted
_NONE = 1e-9  # instead of 0 PS, which has no logarithm
_SIZES = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)


class QueuePlanner(SeriesPlanner):
    """Points that are known from the beginning, one after the other."""

    def __init__(self, points: Iterable[Point], full_scale: float = 1.0) -> None:
        self._queue = deque(points)
        self._told: list[tuple[Point, Trial]] = []
        self._full_scale = full_scale

    @property
    def points(self) -> list[Point]:
        """What is still to be measured, in order."""
        return list(self._queue)

    def most(self, role: Role) -> int:
        """Replicas of a role at the allocation that has the most of them."""
        return max((point.allocation.replicas(role) for point in self._queue), default=0)

    def left(self) -> int:  # noqa: D102
        return len(self._queue)

    def ask(self) -> Point:  # noqa: D102
        if self.done():
            raise StopIteration
        return self._queue[0]

    def tell(self, point: Point, trial: Trial) -> None:  # noqa: D102
        self._told.append((point, trial))
        if self._queue and self._queue[0] == point:
            self._queue.popleft()

    def done(self) -> bool:  # noqa: D102
        return not self._queue

    def best(self) -> Trial | None:  # noqa: D102
        return fastest(self._told, self._full_scale)


class SpreadPlanner(QueuePlanner):
    """`count` allocations within `host_cores`, spread in the logarithm of every axis; scales 1, 1/4 and 1/16.

    The scales come right after the anchor, which is measured first and last. The others shrink, and those with as
    many PS follow each other: going to fewer replicas is cheap, and rows need not be placed anew.
    """

    def __init__(
        self,
        job: Job,
        host_cores: float,
        host_memory_bytes: float = math.inf,
        *,
        count: int = 8,
        full_scale: float = 1.0,
        whole_cores: bool = False,
    ) -> None:
        allocations = spread_allocations(job, host_cores, count, whole_cores=whole_cores)
        allocations = held_by_memory(allocations, MemoryModel(job), full_scale, host_memory_bytes)
        anchor = Point(allocations[0], full_scale)
        smaller = [Point(anchor.allocation, full_scale * scale) for scale in SMALLER_SCALES]
        others = [Point(allocation, full_scale) for allocation in allocations[1:]]
        super().__init__([anchor, *smaller, *others, anchor], full_scale)


def with_memory(allocation: Allocation, memory: MemoryModel, table_scale: float = 1.0) -> Allocation:
    """Twice the memory that is predicted, so that a trial finds the need rather than the limit."""
    workers, ps = allocation.replicas("worker"), allocation.replicas("ps")
    servers, trainers = np.array([float(ps)]), np.array([float(workers)])
    return Allocation.of(
        workers,
        ps,
        allocation.worker[0].cpu,
        allocation.ps[0].cpu,
        allocation.batch_size,
        int(_ROOM * memory.worker_bytes(np.array([float(allocation.batch_size)]))[0]),
        int(_ROOM * memory.ps_bytes(servers, trainers, table_scale)[0]),
    )


def held_by_memory(
    allocations: Sequence[Allocation], memory: MemoryModel, table_scale: float, host_memory_bytes: float
) -> list[Allocation]:
    """Those that the host can hold with tables of this scale, with twice their memory or what the host has for them.

    Raises JobError where it can hold none.
    """
    sized = [with_memory(allocation, memory, table_scale) for allocation in allocations]
    held = [a for a in sized if a.memory_bytes() / _ROOM * _LEAST_ROOM <= host_memory_bytes]
    if not held:
        least = min(a.memory_bytes() for a in sized) / _ROOM
        raise JobError(
            f"A trial needs {format_bytes(least)} of memory, with tables of {table_scale:.2g} of their rows, and "
            f"{format_bytes(host_memory_bytes)} are free on this host.",
            "Free some, or profile on a larger host.",
        )
    return [_within_memory(allocation, host_memory_bytes) for allocation in held]


def _within_memory(allocation: Allocation, host_memory_bytes: float) -> Allocation:
    share = min(1.0, host_memory_bytes / allocation.memory_bytes())
    groups = {
        role: tuple(
            group.model_copy(update={"memory_bytes": int(group.memory_bytes * share)})
            for group in getattr(allocation, role)
        )
        for role in ("worker", "ps")
    }
    return allocation.model_copy(update=groups)


def spread_allocations(job: Job, host_cores: float, count: int, *, whole_cores: bool = False) -> list[Allocation]:
    """Allocations inside the job's bounds that this host can hold, each as far as possible from those before it.

    Cores below the bounds are used where the bounds do not fit the host. With `whole_cores` there are no fractions of
    a core. Raises JobError if nothing fits.
    """
    candidates = _all_candidates(job, host_cores, whole_cores)
    logs = np.log(np.maximum(np.array(candidates), _NONE))
    spread = np.ptp(logs, axis=0)
    scaled = logs / np.where(spread > 0, spread, 1.0)
    chosen = _farthest_first(scaled, min(count, len(candidates)))
    picked = [candidates[i] for i in chosen]
    first, rest = picked[0], sorted(picked[1:], key=lambda c: (c[1], c[0]), reverse=True)
    return [_allocation(job, c) for c in (first, *rest)]


def host_allocations(job: Job, host_cores: float, *, whole_cores: bool = False) -> list[Allocation]:
    """All allocations inside the job's bounds that this host can hold. Raises JobError if none can be."""
    return [_allocation(job, c) for c in _all_candidates(job, host_cores, whole_cores)]


def _allocation(job: Job, candidate: tuple[float, float, float, float]) -> Allocation:
    workers, ps, worker_cpu, ps_cpu = candidate
    return Allocation.of(int(workers), int(ps), worker_cpu, ps_cpu, job.training.batch_size)


def _all_candidates(job: Job, host_cores: float, whole_cores: bool) -> list[tuple[float, float, float, float]]:
    for role, bounds in (("worker", job.bounds.worker), *([("ps", job.bounds.ps)] if job.has_ps else [])):
        if bounds.cpu[1] < _LEAST_CORES:
            raise JobError(
                f"bounds.{role}.cpu ends at {bounds.cpu[1]:g}, and less than {_LEAST_CORES:g} cores cannot be held.",
                f"Raise it to {_LEAST_CORES:g} or more.",
            )
    candidates = _candidates(job, host_cores, whole_cores)
    if not candidates:
        raise JobError(
            f"No allocation within the bounds fits the {host_cores:g} cores that this host has for trials.",
            "Lower the least replicas of worker and ps, or profile on a larger host.",
        )
    return candidates


def _candidates(job: Job, host_cores: float, whole_cores: bool) -> list[tuple[float, float, float, float]]:
    worker, ps = job.bounds.worker, job.bounds.ps
    most_workers, most_ps = max(4, min(16, int(host_cores))), max(3, min(8, int(host_cores / 2)))
    workers = range(worker.replicas[0], min(worker.replicas[1], max(most_workers, worker.replicas[0])) + 1)
    servers = range(ps.replicas[0], min(ps.replicas[1], max(most_ps, ps.replicas[0])) + 1)
    if not job.has_ps:
        servers = range(1)
    if whole_cores:
        worker_sizes = ps_sizes = [size for size in _SIZES if size == int(size)]
    else:
        least = _LEAST_CORES * (workers[0] + servers[0])
        room = max(0.0, (host_cores - least) / (workers[0] + servers[0]) + _LEAST_CORES)
        worker_sizes, ps_sizes = _sizes_within(worker.cpu, room), _sizes_within(ps.cpu, room)
    if not job.has_ps:
        ps_sizes = [1.0]
    combinations = itertools.product(workers, servers, worker_sizes, ps_sizes)
    return [c for c in combinations if c[0] * c[2] + c[1] * c[3] <= host_cores + 1e-9]


def _sizes_within(bounds: tuple[float, float], room: float) -> list[float]:
    """Sizes inside the bounds; where their least does not fit, all that fit below it."""
    low = bounds[0] if bounds[0] <= room else _LEAST_CORES
    sizes = {size for size in _SIZES if low <= size <= bounds[1]}
    if bounds[0] <= room:
        sizes |= {end for end in bounds if end >= _LEAST_CORES}
    return sorted(sizes)


def _farthest_first(points: NDArray[np.float64], count: int) -> list[int]:
    """Indices of points, starting nearest to the centre, each next one farthest from those chosen."""
    centre = (points.max(axis=0) + points.min(axis=0)) / 2
    chosen = [int(np.argmin(np.linalg.norm(points - centre, axis=1)))]
    nearest = np.full(len(points), math.inf)
    while len(chosen) < count:
        nearest = np.minimum(nearest, np.linalg.norm(points - points[chosen[-1]], axis=1))
        chosen.append(int(np.argmax(nearest)))
    return chosen
