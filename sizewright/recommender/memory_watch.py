"""Memory of growing tables while a job runs: will a PS break its limit before it can be enlarged, and how large then?

Rows of all tables are watched against samples and forecast with their uncertainty (`models/row_growth.py`). What the
fullest PS measured beyond the counted bytes of its rows (interpreter, libraries, allocator) is its base. A peak that
came near the limit was held down by it: the base is no less than that, and may be more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.models.embedding_memory import EmbeddingMemory, peak_of
from sizewright.models.memory import DEFAULT_PS_BASE_BYTES, MARGIN
from sizewright.models.row_growth import RowGrowth
from sizewright.recommender.windows import Window
from sizewright.spec import Job

Floats = NDArray[np.float64]

_CAPPED = 0.97
"""Of a limit: a peak above it was held down by it."""
_LEAST_GROWTH = 1.02
_LEAST_POINTS, _MOST_POINTS = 3, 200
_SURE = 0.95


class Fullest(NamedTuple):
    """The PS with the most rows at a moment, of so many."""

    name: str
    peak_bytes: int
    share: float
    """Of the rows of all PS."""
    ps: int


class MemoryWatch:
    """Of the PS of one job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._points: list[tuple[int, int]] = []
        self._base_bytes = float(DEFAULT_PS_BASE_BYTES)
        self._growth: RowGrowth | None = None
        self.fullest: Fullest | None = None

    def add(self, window: Window, limit_bytes: int) -> None:
        """Take in where the rows are; `limit_bytes` is that of one PS, 0 for none."""
        servers = [server for server in window.of("ps") if server.rows]
        if not servers:
            return
        rows = sum(server.rows for server in servers)
        most = max(servers, key=lambda server: server.rows)
        self.fullest = Fullest(most.name, most.memory_peak_bytes, most.rows / rows, len(servers))
        if not self._points or (rows >= self._points[-1][1] and window.samples_trained > self._points[-1][0]):
            self._points.append((window.samples_trained, rows))
            del self._points[1:-_MOST_POINTS:2]
        if most.memory_peak_bytes:
            counted = float(self._peak(np.array([float(rows)]), len(servers), 0.0).draws[0])
            capped = limit_bytes and most.memory_peak_bytes > _CAPPED * limit_bytes
            least = self._base_bytes if capped else 0.0
            self._base_bytes = max(least, most.memory_peak_bytes - counted)

    @property
    def grows(self) -> bool:
        """Whether the tables still grow, so that a forecast says more than what is there."""
        return (
            len(self._points) >= _LEAST_POINTS
            and self._points[-1][1] > _LEAST_GROWTH * self._points[len(self._points) // 2][1]
        )

    def refit(self) -> None:
        """Learn how rows grow from what was seen so far; takes about a second. Nothing where it is too little."""
        points = list(self._points)  # it may grow meanwhile
        if len(points) < _LEAST_POINTS:
            return
        lookups, rows = np.array([(samples * self._tables, rows) for samples, rows in points], float).T
        most = max(float(sum(self._job.model.tables.sizes())), rows[-1])
        self._growth = RowGrowth(vocabulary=most).fit(lookups, rows)

    def forecast(self, samples: int, ps: int) -> EmbeddingMemory | None:
        """Peak of the fullest of `ps` PS up to so many samples; None while that cannot be said."""
        if self._growth is None or self.fullest is None:
            return None
        return self._peak(self._growth.draw(samples * self._tables), ps, self._base_bytes)

    def wanted_bytes(self, samples: int, ps: int) -> float | None:
        """What a PS should have so that its peak up to so many samples stays within, surely and with a margin."""
        told = self.forecast(samples, ps)
        return None if told is None else float(np.quantile(told.draws, _SURE)) * (1 + MARGIN)

    @property
    def _tables(self) -> int:
        return self._job.model.tables.count

    def _peak(self, rows: Floats, ps: int, base_bytes: float) -> EmbeddingMemory:
        """Of the fullest of so many PS that hold all these rows (d,): uneven as they are while there are as many."""
        uneven = max(1.0, self.fullest.share * ps) if self.fullest and self.fullest.ps == ps else 1.0
        return peak_of(self._job, rows * uneven, ps, base_bytes, 0.0)
