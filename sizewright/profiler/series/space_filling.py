"""Fixed space-filling plans: allocations far apart, and the first point again at the end."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials.trial import Trial
from sizewright.errors import JobError
from sizewright.formatting import format_bytes, format_count
from sizewright.models.memory.memory_model import MemoryModel
from sizewright.profiler.series._base import SeriesPlanner, TrialPoint, fastest
from sizewright.spec import Allocation, Job, Role

SMALLER_SCALES = (1 / 4, 1 / 16)
_MIN_CORES = 0.1
_MEMORY_FACTOR = 2.0  # memory of a trial over the predicted peak
_MIN_MEMORY_FACTOR = 1.15  # where the host has less
_SHARE_OF_MEMORY = 0.9  # of the host, for the replicas of a command
_EPSILON = 1e-9  # instead of 0 PS, which has no logarithm
_NO_GPUS = 0.5  # instead of 0 GPUs
_SIZES = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)


class _Candidate(NamedTuple):
    """An allocation with one group per role, without memory."""

    workers: int
    ps: int
    worker_cpu: float
    ps_cpu: float
    worker_gpu: int
    batch_size: int
    loaders: int | None

    @property
    def logs(self) -> list[float]:
        """The logarithm of each axis."""
        gpus = max(self.worker_gpu, _NO_GPUS)
        loaders = self.loaders or _NO_GPUS
        axes = (self.workers, self.ps, self.worker_cpu, self.ps_cpu, gpus, self.batch_size, loaders)
        return [math.log(max(value, _EPSILON)) for value in axes]


class QueuePlanner(SeriesPlanner):
    """A fixed list of points, measured one after the other."""

    def __init__(self, points: Iterable[TrialPoint], full_scale: float = 1.0) -> None:
        self._queue = deque(points)
        self._trials: list[tuple[TrialPoint, Trial]] = []
        self._full_scale = full_scale

    @property
    def points(self) -> list[TrialPoint]:
        """The remaining points, in order."""
        return list(self._queue)

    def max_replicas(self, role: Role) -> int:
        """Return the maximum number of replicas of a role over the remaining points."""
        return max((point.allocation.replicas(role) for point in self._queue), default=0)

    def remaining(self) -> int:  # noqa: D102
        return len(self._queue)

    def ask(self) -> TrialPoint:  # noqa: D102
        if self.done():
            raise StopIteration
        return self._queue[0]

    def tell(self, point: TrialPoint, trial: Trial) -> None:  # noqa: D102
        self._trials.append((point, trial))
        if self._queue and self._queue[0] == point:
            self._queue.popleft()

    def done(self) -> bool:  # noqa: D102
        return not self._queue

    def best(self) -> Trial | None:  # noqa: D102
        return fastest(self._trials, self._full_scale)


class SpaceFillingPlanner(QueuePlanner):
    """Measure `count` allocations within `host_cores`, far apart in the logarithm of every axis.

    The anchor is measured first and last, and right after the first time at table scales of 1/4 and 1/16. The other
    allocations are sorted by decreasing PS, then workers: going to fewer replicas is cheap, and rows need not be
    redistributed.
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
        host_gpus: float = math.inf,
    ) -> None:
        allocations = space_filling_allocations(job, host_cores, count, whole_cores=whole_cores, host_gpus=host_gpus)
        allocations = fit_memory(allocations, MemoryModel(job), full_scale, host_memory_bytes)
        anchor = TrialPoint(allocations[0], full_scale)
        smaller = [TrialPoint(anchor.allocation, full_scale * scale) for scale in SMALLER_SCALES]
        others = [TrialPoint(allocation, full_scale) for allocation in allocations[1:]]
        super().__init__([anchor, *smaller, *others, anchor], full_scale)


class CommandPlanner(QueuePlanner):
    """Measure a user's command at `count` allocations within `host_cores` and `host_memory_bytes`, far apart.

    The command is restarted for each allocation, and the first one is measured again at the end. The memory that the
    command needs is unknown, so each replica gets an equal share of the host's, or the maximum of its bounds if that is
    less.
    """

    def __init__(
        self,
        job: Job,
        host_cores: float,
        host_memory_bytes: int,
        *,
        count: int = 6,
        whole_cores: bool = False,
        host_gpus: float = math.inf,
    ) -> None:
        sides = job.with_sides(Allocation.of(1, 0, 1.0, 1.0, 1))
        cores = host_cores - sides.cores("chief") - sides.cores("evaluator")
        available_bytes = host_memory_bytes * _SHARE_OF_MEMORY - sides.memory_bytes()
        points = []
        chosen = space_filling_allocations(job, cores, count, whole_cores=whole_cores, host_gpus=host_gpus)
        for allocation in chosen:
            replicas = allocation.replicas("worker") + allocation.replicas("ps")
            limited = allocation.model_copy(
                update={
                    role: tuple(
                        group.model_copy(
                            update={"memory_bytes": int(min(bounds.memory_bytes[1], available_bytes / replicas))}
                        )
                        for group in getattr(allocation, role)
                    )
                    for role, bounds in (("worker", job.bounds.worker), ("ps", job.bounds.ps))
                }
            )
            points.append(TrialPoint(job.with_sides(limited)))
        super().__init__([*points, points[0]])


def with_memory(allocation: Allocation, memory: MemoryModel, table_scale: float = 1.0) -> Allocation:
    """Return the allocation with twice the predicted memory, so that a trial measures the need and not the limit."""
    workers, ps = allocation.replicas("worker"), allocation.replicas("ps")
    worker_bytes = memory.worker_bytes(np.array([float(allocation.batch_size)]))[0]
    ps_bytes = memory.ps_bytes(np.array([float(ps)]), np.array([float(workers)]), table_scale)[0]
    (worker,), (server,) = allocation.worker, allocation.ps
    return allocation.model_copy(
        update={
            "worker": (worker.model_copy(update={"memory_bytes": int(_MEMORY_FACTOR * worker_bytes)}),),
            "ps": (server.model_copy(update={"memory_bytes": int(_MEMORY_FACTOR * ps_bytes)}),),
        }
    )


def fit_memory(
    allocations: Sequence[Allocation], memory: MemoryModel, table_scale: float, host_memory_bytes: float
) -> list[Allocation]:
    """Return the allocations that fit the host at a table scale, with up to twice their predicted memory.

    Raises JobError if none fits.
    """
    sized = [with_memory(allocation, memory, table_scale) for allocation in allocations]
    fitting = [a for a in sized if a.memory_bytes() / _MEMORY_FACTOR * _MIN_MEMORY_FACTOR <= host_memory_bytes]
    if not fitting:
        smallest = min(a.memory_bytes() for a in sized) / _MEMORY_FACTOR
        raise JobError(
            f"A trial with {table_scale:.2g} of the tables' rows needs {format_bytes(smallest)} of memory, but only "
            f"{format_bytes(host_memory_bytes)} are free on this host.",
            "Free memory, or profile on a larger host.",
        )
    return [_limit_memory(allocation, host_memory_bytes) for allocation in fitting]


def _limit_memory(allocation: Allocation, host_memory_bytes: float) -> Allocation:
    share = min(1.0, host_memory_bytes / allocation.memory_bytes())
    groups = {
        role: tuple(
            group.model_copy(update={"memory_bytes": int(group.memory_bytes * share)})
            for group in getattr(allocation, role)
        )
        for role in ("worker", "ps")
    }
    return allocation.model_copy(update=groups)


def space_filling_allocations(
    job: Job, host_cores: float, count: int, *, whole_cores: bool = False, host_gpus: float = math.inf
) -> list[Allocation]:
    """Return allocations within the job's bounds that fit the host, each as far as possible from those before it.

    Cores below the bounds are used where the bounds do not fit the host. With `whole_cores` there are no fractions of
    a core. The batch size and the loaders of a command vary within their bounds. Raises JobError if nothing fits.
    """
    candidates = _all_candidates(job, host_cores, whole_cores, host_gpus)
    logs = np.array([candidate.logs for candidate in candidates])
    width = np.ptp(logs, axis=0)
    scaled = logs / np.where(width > 0, width, 1.0)
    anchor, *others = (candidates[i] for i in _farthest_first(scaled, min(count, len(candidates))))
    others.sort(key=lambda candidate: (candidate.ps, candidate.workers), reverse=True)
    return [_allocation(job, candidate) for candidate in (anchor, *others)]


def has_cores_within_bounds(job: Job, allocation: Allocation) -> bool:
    """Return whether the cores of all replicas are within the bounds; those of a small host may not be."""
    sides = ((job.bounds.worker, allocation.worker), (job.bounds.ps, allocation.ps))
    return all(bounds.cpu[0] <= group.cpu <= bounds.cpu[1] for bounds, groups in sides for group in groups)


def host_allocations(
    job: Job, host_cores: float, *, whole_cores: bool = False, host_gpus: float = math.inf
) -> list[Allocation]:
    """Return all allocations within the job's bounds that fit the host. Raises JobError if none does."""
    return [_allocation(job, c) for c in _all_candidates(job, host_cores, whole_cores, host_gpus)]


def _allocation(job: Job, c: _Candidate) -> Allocation:
    batch_size = job.batch_size_for(c.workers) if job.training.global_batch_size else c.batch_size
    allocation = Allocation.of(c.workers, c.ps, c.worker_cpu, c.ps_cpu, batch_size, worker_gpu=c.worker_gpu)
    allocation = allocation.model_copy(update={"loaders": c.loaders})
    return job.with_gpu_kind(allocation)


def _all_candidates(job: Job, host_cores: float, whole_cores: bool, host_gpus: float) -> list[_Candidate]:
    for role, bounds in (("worker", job.bounds.worker), *([("ps", job.bounds.ps)] if job.has_ps else [])):
        if bounds.cpu[1] < _MIN_CORES:
            raise JobError(
                f"The maximum of bounds.{role}.cpu is {bounds.cpu[1]:g}, and limits below {_MIN_CORES:g} cores "
                "cannot be enforced.",
                f"Raise it to {_MIN_CORES:g} or more.",
            )
    _check_gpus(job, host_gpus)
    candidates = _candidates(job, host_cores, whole_cores, host_gpus)
    if not candidates:
        raise JobError(
            f"No allocation within the bounds fits the {host_cores:g} cores that this host has for trials.",
            "Lower the minimum replicas of worker and ps, or profile on a larger host.",
        )
    return candidates


def _check_gpus(job: Job, host_gpus: float) -> None:
    """Raise JobError if the host has fewer GPUs than the smallest allocation within the bounds."""
    workers = job.bounds.worker.replicas[0]
    gpus = job.bounds.worker.gpu.count[0] if job.bounds.worker.gpu else 0
    if workers * gpus > host_gpus:
        has = format_count(int(host_gpus), "GPU") if host_gpus else "no GPU"
        raise JobError(
            f"The bounds ask for at least {format_count(workers, 'worker')} of {format_count(gpus, 'GPU')} each, and "
            f"this host has {has} for trials.",
            "Lower bounds.worker.gpu, or profile on a host with as many and bring its trials here: sizewright trials "
            "export, then import.",
        )


def _gpu_counts(job: Job, host_gpus: float) -> list[int]:
    """Return the numbers of GPUs of a worker to measure: doublings within the bounds and the host, and both ends."""
    if job.bounds.worker.gpu is None:
        return [0]
    low, high = job.bounds.worker.gpu.count
    high = int(min(high, host_gpus))
    return sorted({low, *_doublings(max(low, 1), high)}) if high else [low]


def _batch_sizes(job: Job) -> list[int]:
    """Return the batch sizes to measure: doublings within the bounds of a command, which is restarted anyway."""
    if job.command is None or job.bounds.batch_size is None:
        return [job.training.batch_size]
    return _doublings(*job.bounds.batch_size)


def _loader_counts(job: Job) -> Sequence[int | None]:
    """Return the numbers of loaders to measure: doublings within the bounds, and both ends; None without bounds."""
    if job.bounds.loaders is None:
        return [None]
    low, high = job.bounds.loaders
    return sorted({low, *_doublings(max(low, 1), high)}) if high else [0]


def _doublings(low: int, high: int) -> list[int]:
    sizes = [low]
    while sizes[-1] * 2 <= high:
        sizes.append(sizes[-1] * 2)
    return sizes if sizes[-1] == high else [*sizes, high]


def _candidates(job: Job, host_cores: float, whole_cores: bool, host_gpus: float) -> list[_Candidate]:
    worker, ps = job.bounds.worker, job.bounds.ps
    max_workers = max(4, min(16, int(host_cores)), job.worker_counts[0])
    max_ps = max(3, min(8, int(host_cores / 2)), ps.replicas[0])
    workers = [count for count in job.worker_counts if count <= max_workers]
    servers = range(ps.replicas[0], min(ps.replicas[1], max_ps) + 1)
    if not job.has_ps:
        servers = range(1)
    if whole_cores:
        worker_sizes = ps_sizes = [size for size in _SIZES if size == int(size)]
    else:
        min_replicas = workers[0] + servers[0]
        available = max(0.0, (host_cores - _MIN_CORES * min_replicas) / min_replicas + _MIN_CORES)  # per replica
        worker_sizes = _sizes_within(worker.cpu, available)
        ps_sizes = _sizes_within(ps.cpu, available)
    if not job.has_ps:
        ps_sizes = [1.0]
    axes = (
        workers,
        servers,
        worker_sizes,
        ps_sizes,
        _gpu_counts(job, host_gpus),
        _batch_sizes(job),
        _loader_counts(job),
    )
    return [
        c
        for c in itertools.starmap(_Candidate, itertools.product(*axes))
        if c.workers * c.worker_cpu + c.ps * c.ps_cpu <= host_cores + 1e-9 and c.workers * c.worker_gpu <= host_gpus
    ]


def _sizes_within(bounds: tuple[float, float], available: float) -> list[float]:
    """Return sizes within the bounds; smaller ones too if the minimum exceeds the available cores."""
    low = bounds[0] if bounds[0] <= available else _MIN_CORES
    sizes = {size for size in _SIZES if low <= size <= bounds[1]}
    if bounds[0] <= available:
        sizes |= {end for end in bounds if end >= _MIN_CORES}
    return sorted(sizes)


def _farthest_first(points: NDArray[np.float64], count: int) -> list[int]:
    """Return indices of points: first the nearest to the centre, then each farthest from those before it."""
    centre = (points.max(axis=0) + points.min(axis=0)) / 2
    chosen = [int(np.argmin(np.linalg.norm(points - centre, axis=1)))]
    nearest = np.full(len(points), math.inf)
    while len(chosen) < count:
        nearest = np.minimum(nearest, np.linalg.norm(points - points[chosen[-1]], axis=1))
        chosen.append(int(np.argmax(nearest)))
    return chosen
