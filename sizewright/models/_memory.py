"""What every memory model answers, and requests are made from."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sizewright.spec import Role
from sizewright.spec.units import MIB

Floats = NDArray[np.float64]

MEMORY_STEP_BYTES = 64 * MIB


def rounded_up(memory_bytes: float) -> int:
    """Return bytes rounded up to whole steps of 64 MiB, as replicas ask for them."""
    return math.ceil(memory_bytes / MEMORY_STEP_BYTES) * MEMORY_STEP_BYTES


def whole_steps(wanted: Floats, bounds: tuple[int, int]) -> Floats:
    """Return bytes rounded up to whole steps, not below the bounds, and not above them where what is wanted is not."""
    least, greatest = bounds
    steps = np.ceil(wanted / MEMORY_STEP_BYTES) * MEMORY_STEP_BYTES
    requests: Floats = np.maximum(np.where(wanted <= greatest, np.minimum(steps, greatest), steps), least)
    return requests


class MemoryForecast(Protocol):
    """Bytes of one replica (n,), for columns (n,) of allocations."""

    def known(self, role: Role) -> bool:
        """Return whether anything tells the memory of a role; otherwise its bytes are 0."""

    def worker_bytes(self, batch_size: Floats) -> Floats:
        """Peak of a worker."""

    def ps_bytes(
        self, ps: Floats, workers: Floats, table_scale: Floats | float = 1.0, batch_size: Floats | None = None
    ) -> Floats:
        """Peak of a PS."""

    def worker_request_bytes(self, batch_size: Floats) -> Floats:
        """What to ask for per worker."""

    def ps_request_bytes(self, ps: Floats, workers: Floats, batch_size: Floats | None = None) -> Floats:
        """What to ask for per PS."""

    def oom_probability(self, role: Role, limit_bytes: float, predicted_bytes: float) -> float:
        """That a replica of the role, predicted to peak at so many bytes, breaks its limit."""
