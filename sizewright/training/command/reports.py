"""The samples that replicas report, as they come: from log_samples, from JSON lines, or found in a log by a pattern."""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sizewright.progress import Reading, read_progress
from sizewright.spec.command import Progress

_KEPT = 20_000
_PHASES = ("data_s", "pull_s", "compute_s", "push_s")
_KINDS = ("samples", "steps", "more")
_MOST, _MOST_OBJECTS = 1e18, 16  # of a count, of a line
_NUMBER = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([kmgb]?)", re.IGNORECASE)
_THOUSANDS = re.compile(r"(?<=\d)[,_'\u2019\u00a0\u202f\u2009 ](?=\d{3}(\D|$))")
_DOTS = re.compile(r"\d{1,3}(\.\d{3}){2,}")
_POWERS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9}


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
        self._before = 0  # samples of earlier epochs, where a count begins again with each
        self._progress, self._batch_size, self._folder = progress, batch_size, folder
        self._pattern = re.compile(progress.pattern) if progress.pattern else None

    def line(self, text: str, at_s: float) -> None:
        """A line of its output."""
        if self._progress.source == "json":
            self._json(text, at_s)
        elif self._pattern and (found := self._pattern.search(text)):
            ((kind, value),) = [(k, v) for k, v in found.groupdict().items() if k in _KINDS]
            self._count(kind, value, at_s, text)

    def look(self) -> None:
        """Read what its processes have told by log_samples."""
        if self._progress.source == "log_samples":
            readings = [reading for reading in read_progress(self._folder).values() if reading.steps]
            if readings:
                self._add(add_up(readings))

    def _json(self, text: str, at_s: float) -> None:
        for told in _objects(text):
            if kind := next((kind for kind in _KINDS if kind in told), None):
                seconds = {name: told.get(name) for name in _PHASES}
                phases = {name: float(value) for name, value in seconds.items() if isinstance(value, (int, float))}
                return self._count(kind, told[kind], at_s, text, phases)
        return None

    def _count(self, kind: str, value: object, at_s: float, text: str, phases: dict[str, float] | None = None) -> None:
        """A count that falls below half of the last begins again, as a progress bar does with each epoch."""
        try:
            number = read_count(value)
            samples = number * self._batch_size if kind == "steps" else number
            counted = self.last.samples - self._before
            if kind != "more" and samples < counted / 2:
                self._before, counted = self.last.samples, 0
            samples += self.last.samples if kind == "more" else self._before
            if samples < self.last.samples:
                raise ValueError
        except ValueError:
            self.nonsense = text[:200]
            return
        self.counts_anew = kind == "more"
        self._add(self.last._replace(samples=int(samples), steps=self.last.steps + 1, at_s=at_s, **(phases or {})))

    def _add(self, reading: Reading) -> None:
        if reading.samples > self.last.samples:
            self.told.append(Report(reading.at_s, reading.samples))
        self.last = reading


def read_count(value: object) -> float:
    """A number of samples or steps as logs print it: 1,024, 1_024, 1'024, 1.024.000, 12.3k, 4.58e7.

    Raises ValueError for anything else.
    """
    number = -1.0
    if isinstance(value, str):
        text = value.strip()
        found = _NUMBER.fullmatch(text.replace(".", "") if _DOTS.fullmatch(text) else _THOUSANDS.sub("", text))
        number = float(found[1]) * _POWERS[found[2].lower()] if found else -1.0
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and value < _MOST:
        number = float(value)
    if not 0 <= number < _MOST:
        raise ValueError(f"{value!r} is not a number of samples or steps")
    return number


def _objects(text: str) -> Iterator[dict[str, object]]:
    """JSON objects of a line, whatever a logger put before and after them; dictionaries as Python prints them, too."""
    at, decoder = 0, json.JSONDecoder()
    for _ in range(_MOST_OBJECTS):
        if (at := text.find("{", at)) < 0:
            return
        told: object = None
        try:
            told, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
            with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
                told = ast.literal_eval(text[at : text.rindex("}") + 1])
                end = len(text)
        if isinstance(told, dict):
            yield told
        at = end
