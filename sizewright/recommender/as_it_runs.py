"""What every allocation would need and cost were a running job to go there: by what was seen of it while it ran."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sizewright.models._memory import rounded_up
from sizewright.recommender.scoring import Floats, Scored, grid_price
from sizewright.spec import Allocation, Job, Role
from sizewright.spec.objective import completion_time_s, cost_of, objective_value


def as_it_runs(
    job: Job, scored: Scored, now: Allocation, ps_needs: Callable[[int], float | None]
) -> tuple[Scored, NDArray[np.bool_]]:
    """The rows with memory and price as they would be from `now` on, and which of them keep the bounds of PS memory.

    `ps_needs` tells how many bytes each of so many PS is to have by what was seen, if that is known. What runs without
    a limit of its memory goes on so: its PS stay, since less memory would mean others.
    """
    most = job.bounds.ps.memory_bytes[1]
    worker_memory, ps_memory = scored.worker_memory_bytes, scored.ps_memory_bytes
    within = np.ones(len(scored.grid), dtype=bool)
    if _free(now, "ps"):
        ps_memory = np.zeros_like(ps_memory)
    else:
        needs = _needs(scored.grid.ps, ps_needs)
        within = needs <= most
        ps_memory = np.maximum(ps_memory, needs)
    if _free(now, "worker"):
        worker_memory = np.zeros_like(worker_memory)
    price = grid_price(job, scored.grid, worker_memory, ps_memory)
    soonest_s = completion_time_s(job.samples or 1, scored.upper)
    told = replace(
        scored,
        worker_memory_bytes=worker_memory,
        ps_memory_bytes=ps_memory,
        price_per_hour=price,
        objective_lower=objective_value(job.objective, soonest_s, cost_of(soonest_s, price)),
    )
    return told, within


def _needs(ps: Floats, ps_needs: Callable[[int], float | None]) -> Floats:
    """Bytes of each PS (n,), in whole steps."""
    counts, places = np.unique(ps, return_inverse=True)
    return np.array([float(rounded_up(ps_needs(int(count)) or 0.0)) for count in counts])[places]


def _free(now: Allocation, role: Role) -> bool:
    return any(not group.memory_bytes for group in getattr(now, role))
