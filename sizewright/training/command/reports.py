"""The samples that replicas report, as they come: from log_samples, from JSON lines, or found in a log by a pattern."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sizewright.progress import Reading, read_progress
from sizewright.spec.command import Progress

_KEPT = 20_000
_PHASES = ("data_s", "pull_s", "compute_s", "push_s")


def add_up(readings: Sequence[Reading]) -> Reading:
    """The sums of several processes."""
    phases = (sum(column) for column in zip(*(reading[3:] for reading in readings), strict=True))
    samples, steps = sum(r.samples for r in readings), sum(r.steps for r in readings)
    return Reading(samples, steps, max(r.at_s for r in readings), *phases)


class Report(NamedTuple):
    """All samples of a replica so far, when it said so (monotonic clock)."""

    at_s: float
    samples: int


class Reports:
    """Of one replica, since it began."""

    def __init__(self, progress: Progress, batch_size: int, folder: Path) -> None:
        self.told: deque[Report] = deque(maxlen=_KEPT)
        self.last = Reading()
        self.nonsense = ""
        """What it said that makes no sense, the last of it."""
        self.counts_anew = False
        """Whether it tells what has come since its last line, so that a start of its own begins at 0."""
        self._progress, self._batch_size, self._folder = progress, batch_size, folder
        self._pattern = re.compile(progress.pattern) if progress.pattern else None

    def line(self, text: str, at_s: float) -> None:
        """A line of its output."""
        if self._progress.source == "json" and text.startswith("{"):
            self._json(text, at_s)
        elif self._pattern and (found := self._pattern.search(text)):
            ((kind, value),) = [(k, v) for k, v in found.groupdict().items() if k in ("samples", "steps", "more")]
            self._count(kind, value.replace(",", "").replace("_", "") if value else "", at_s, text)

    def look(self) -> None:
        """Read what its processes have told by log_samples."""
        if self._progress.source == "log_samples":
            readings = [reading for reading in read_progress(self._folder).values() if reading.steps]
            if readings:
                self._add(add_up(readings))

    def _json(self, text: str, at_s: float) -> None:
        try:
            told = json.loads(text)
        except (ValueError, RecursionError):
            return  # a line of something else
        kind = next((kind for kind in ("samples", "steps", "more") if kind in told), None)
        if kind is not None:
            phases = {name: told[name] for name in _PHASES if isinstance(told.get(name), (int, float))}
            self._count(kind, told[kind], at_s, text, phases)

    def _count(self, kind: str, value: object, at_s: float, text: str, phases: dict[str, float] | None = None) -> None:
        try:
            number = float(value)  # type: ignore[arg-type]
            samples = {
                "samples": number, "steps": number * self._batch_size, "more": self.last.samples + number
            }[kind]  # fmt: skip
            if not 0 <= number < 1e18 or samples < self.last.samples:
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            self.nonsense = text[:200]
            return
        self.counts_anew = kind == "more"
        self._add(self.last._replace(samples=int(samples), steps=self.last.steps + 1, at_s=at_s, **(phases or {})))

    def _add(self, reading: Reading) -> None:
        if reading.samples > self.last.samples:
            self.told.append(Report(reading.at_s, reading.samples))
        self.last = reading
