"""A fixed plan for a user's command: a few allocations far apart, and the first one again at the end."""

from __future__ import annotations

from sizewright.profiler.series._base import TrialPoint
from sizewright.profiler.series.space_filling import QueuePlanner, space_filling_allocations
from sizewright.spec import Allocation, Job

_SHARE_OF_MEMORY = 0.9


class CommandPlanner(QueuePlanner):
    """Measure `count` allocations within `host_cores` and `host_memory_bytes`; the command is restarted for each.

    The memory that it needs is unknown, so each replica gets an equal share of the host's, or the maximum of its bounds
    if that is less.
    """

    def __init__(
        self, job: Job, host_cores: float, host_memory_bytes: int, *, count: int = 6, whole_cores: bool = False
    ) -> None:
        sides = job.with_sides(Allocation.of(1, 0, 1.0, 1.0, 1))
        cores = host_cores - sides.cores("chief") - sides.cores("evaluator")
        available_bytes = host_memory_bytes * _SHARE_OF_MEMORY - sides.memory_bytes()
        points = []
        for allocation in space_filling_allocations(job, cores, count, whole_cores=whole_cores):
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
