"""A fixed plan for the user's own command: a few allocations far apart, and the first one again at the end."""

from __future__ import annotations

from sizewright.profiler._base import Point
from sizewright.profiler.spread import QueuePlanner, spread_allocations
from sizewright.spec import Allocation, Job

_SHARE_OF_MEMORY = 0.9


class CommandPlanner(QueuePlanner):
    """`count` allocations within `host_cores` and `host_memory_bytes`; each is a start of its own.

    Nothing is known of its memory, so a replica may take its even share of the host's, or what its bounds allow where
    that is less.
    """

    def __init__(
        self, job: Job, host_cores: float, host_memory_bytes: int, *, count: int = 6, whole_cores: bool = False
    ) -> None:
        sides = job.with_sides(Allocation.of(1, 0, 1.0, 1.0, 1))
        cores = host_cores - sides.cores("chief") - sides.cores("evaluator")
        left = host_memory_bytes * _SHARE_OF_MEMORY - sides.memory_bytes()
        points = []
        for allocation in spread_allocations(job, cores, count, whole_cores=whole_cores):
            replicas = allocation.replicas("worker") + allocation.replicas("ps")
            limited = allocation.model_copy(
                update={
                    role: tuple(
                        group.model_copy(update={"memory_bytes": int(min(bounds.memory_bytes[1], left / replicas))})
                        for group in getattr(allocation, role)
                    )
                    for role, bounds in (("worker", job.bounds.worker), ("ps", job.bounds.ps))
                }
            )
            points.append(Point(job.with_sides(limited)))
        super().__init__([*points, points[0]])
