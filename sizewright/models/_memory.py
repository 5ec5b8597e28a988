"""What every memory model answers, and requests are made from."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sizewright.spec import Role

Floats = NDArray[np.float64]


class MemoryForecast(Protocol):
    """Bytes of one replica (n,), for columns (n,) of allocations."""

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
