"""The protocol of memory models, and rounding of memory requests."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sizewright.formatting import MIB
from sizewright.spec import Role

Floats = NDArray[np.float64]

MEMORY_STEP_BYTES = 64 * MIB


def rounded_up(memory_bytes: float) -> int:
    """Return bytes rounded up to whole steps of 64 MiB, as replicas request them."""
    return math.ceil(memory_bytes / MEMORY_STEP_BYTES) * MEMORY_STEP_BYTES


def round_within_bounds(needed: Floats, bounds: tuple[int, int]) -> Floats:
    """Return bytes rounded up to whole steps and clipped to the bounds; only needs above the bounds exceed them."""
    lowest, highest = bounds
    steps = np.ceil(needed / MEMORY_STEP_BYTES) * MEMORY_STEP_BYTES
    requests: Floats = np.maximum(np.where(needed <= highest, np.minimum(steps, highest), steps), lowest)
    return requests


class MemoryForecast(Protocol):
    """Memory of one replica in bytes (n,), for columns (n,) of allocations."""

    def known(self, role: Role) -> bool:
        """Return whether the memory of a role is known; otherwise its bytes are 0."""

    def worker_bytes(self, batch_size: Floats, loaders: Floats | None = None) -> Floats:
        """Return the peak of a worker."""

    def ps_bytes(
        self, ps: Floats, workers: Floats, table_scale: Floats | float = 1.0, batch_size: Floats | None = None
    ) -> Floats:
        """Return the peak of a PS."""

    def worker_request_bytes(self, batch_size: Floats, loaders: Floats | None = None) -> Floats:
        """Return the bytes to request per worker."""

    def ps_request_bytes(self, ps: Floats, workers: Floats, batch_size: Floats | None = None) -> Floats:
        """Return the bytes to request per PS."""

    def oom_probability(self, role: Role, limit_bytes: float, predicted_bytes: float) -> float:
        """Return the probability that a replica of the role exceeds its limit, given its predicted peak."""
