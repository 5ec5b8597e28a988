"""Forecast the memory of a running job's growing tables: will a PS exceed its limit, and how large must it be?

The rows of all tables are observed over the samples and forecast with their uncertainty (`models.memory`). The base of
a PS is what the fullest one uses beyond the counted bytes of its rows (interpreter, libraries, allocator). A peak near
the memory limit was capped by it: the base may be larger than measured, so it is not lowered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.models.memory.embedding import EmbeddingMemory, peak_of, shared_by_width
from sizewright.models.memory.memory_model import DEFAULT_PS_BASE_BYTES, MARGIN
from sizewright.models.memory.row_growth import RowGrowth
from sizewright.recommender.control.windows import Window
from sizewright.spec import Job

Floats = NDArray[np.float64]

_CAPPED = 0.97
"""A peak above this share of the limit was capped by it."""
_MIN_GROWTH = 1.02
_MIN_POINTS, _MAX_POINTS = 3, 200
_QUANTILE = 0.95


class FullestServer(NamedTuple):
    """The PS with the most rows in the last window."""

    name: str
    peak_bytes: int
    share: float
    """Share of the rows of all PS."""
    ps: int
    """Number of PS."""


class MemoryWatch:
    """Observe and forecast the memory of the PS of one job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._points: list[tuple[int, int]] = []
        """Samples trained, and rows of all PS."""
        self._base_bytes = float(DEFAULT_PS_BASE_BYTES)
        self._growth: RowGrowth | None = None
        self.fullest: FullestServer | None = None

    def add(self, window: Window, limit_bytes: int) -> None:
        """Add the rows and peaks of a window; `limit_bytes` is the memory limit of one PS, 0 for none."""
        servers = [server for server in window.of("ps") if server.rows]
        if not servers:
            return
        rows = sum(server.rows for server in servers)
        fullest = max(servers, key=lambda server: server.rows)
        self.fullest = FullestServer(fullest.name, fullest.memory_peak_bytes, fullest.rows / rows, len(servers))
        if not self._points or (rows >= self._points[-1][1] and window.samples_trained > self._points[-1][0]):
            self._points.append((window.samples_trained, rows))
            del self._points[1:-_MAX_POINTS:2]
        if fullest.memory_peak_bytes:
            counted = float(self._peak(np.array([float(rows)]), len(servers), 0.0).draws[0])
            capped = limit_bytes and fullest.memory_peak_bytes > _CAPPED * limit_bytes
            min_base_bytes = self._base_bytes if capped else 0.0
            self._base_bytes = max(min_base_bytes, fullest.memory_peak_bytes - counted)

    @property
    def grows(self) -> bool:
        """Return whether the tables still grow, so that a forecast adds to what is measured."""
        return (
            len(self._points) >= _MIN_POINTS
            and self._points[-1][1] > _MIN_GROWTH * self._points[len(self._points) // 2][1]
        )

    def refit(self) -> None:
        """Fit the growth of rows to the observations, in about a second; do nothing where they are too few."""
        points = list(self._points)  # another thread may add to it meanwhile
        if len(points) < _MIN_POINTS:
            return
        lookups, rows = np.array([(samples * self._ids, rows) for samples, rows in points], float).T
        vocabulary = max(float(sum(self._job.model.tables.sizes())), rows[-1])
        self._growth = RowGrowth(vocabulary=vocabulary).fit(lookups, rows)

    def forecast(self, samples: int, ps: int) -> EmbeddingMemory | None:
        """Return the peak of the fullest of `ps` servers after `samples` samples, or None before `refit`."""
        if self._growth is None or self.fullest is None:
            return None
        return self._peak(self._growth.draw(samples * self._ids), ps, self._base_bytes)

    def needed_bytes(self, samples: int, ps: int) -> float | None:
        """Return the memory that each of `ps` servers needs for `samples` samples: a high quantile plus a margin."""
        forecast = self.forecast(samples, ps)
        return None if forecast is None else float(np.quantile(forecast.draws, _QUANTILE)) * (1 + MARGIN)

    @property
    def _ids(self) -> int:
        """The ids of a sample in all tables."""
        return len(self._job.model.tables.id_columns)

    def _peak(self, rows: Floats, ps: int, base_bytes: float) -> EmbeddingMemory:
        """Return the peak of the fullest of `ps` servers that hold `rows` (d,) in all.

        Rows are spread as unevenly as observed while the number of PS stays, else evenly.
        """
        imbalance = max(1.0, self.fullest.share * ps) if self.fullest and self.fullest.ps == ps else 1.0
        return peak_of(self._job, shared_by_width(self._job, rows * imbalance), ps, base_bytes, 0.0)
