"""Memory and price of every allocation for a job that is already running."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sizewright.models.memory._base import rounded_up
from sizewright.recommender.sizing.scoring import Scored, grid_price
from sizewright.spec import Allocation, Job
from sizewright.spec.objective import completion_time_s, cost_of, objective_value


def with_runtime_limits(
    job: Job, scored: Scored, current: Allocation, ps_needs: Callable[[int], float | None]
) -> tuple[Scored, NDArray[np.bool_]]:
    """Return the rows with memory and price as of a change from `current`, and which rows keep the bounds of PS memory.

    `ps_needs(ps)` returns the bytes that each of `ps` servers needs by the run's own measurements, or None where that
    is unknown. A role without a memory limit keeps none.
    """
    worker_memory, ps_memory = scored.worker_memory_bytes, scored.ps_memory_bytes
    within = np.ones(len(scored.grid), dtype=bool)
    if any(not group.memory_bytes for group in current.ps):
        ps_memory = np.zeros_like(ps_memory)
    else:
        counts, index = np.unique(scored.grid.ps, return_inverse=True)
        needs = np.array([float(rounded_up(ps_needs(int(count)) or 0.0)) for count in counts])[index]
        within = needs <= job.bounds.ps.memory_bytes[1]
        ps_memory = np.maximum(ps_memory, needs)
    if any(not group.memory_bytes for group in current.worker):
        worker_memory = np.zeros_like(worker_memory)
    price = grid_price(job, scored.grid, worker_memory, ps_memory)
    earliest_s = completion_time_s(job.samples or 1, scored.upper)
    at_runtime = replace(
        scored,
        worker_memory_bytes=worker_memory,
        ps_memory_bytes=ps_memory,
        price_per_hour=price,
        objective_lower=objective_value(job.objective, earliest_s, cost_of(earliest_s, price)),
    )
    return at_runtime, within
