"""The progress reports of replicas, from `log_samples`, from JSON lines, or from log lines that match a pattern."""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sizewright.progress import Reading, read_progress
from sizewright.redaction import redacted
from sizewright.spec.command import Progress
from sizewright.spec.metrics import PHASES

_KEPT = 20_000
_KINDS = ("samples", "steps", "more")
_MAX_COUNT = 1e18
_MAX_OBJECTS_PER_LINE = 16
_NUMBER = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([kmgb]?)", re.IGNORECASE)
_THOUSANDS = re.compile(r"(?<=\d)[,_'\u2019\u00a0\u202f\u2009 ](?=\d{3}(\D|$))")
_DOTS = re.compile(r"\d{1,3}(\.\d{3}){2,}")
_POWERS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9}


def add_up(readings: Sequence[Reading]) -> Reading:
    """Return the sum of the readings of several processes."""
    phases = (sum(column) for column in zip(*(reading[3:] for reading in readings), strict=True))
    samples, steps = sum(r.samples for r in readings), sum(r.steps for r in readings)
    return Reading(samples, steps, max(r.at_s for r in readings), *phases)


def counters(reading: Reading, *, samples: int | None = None) -> dict[str, Any]:
    """Return the counters of a reading as fields of ReplicaMetrics; `samples` replaces those of the reading."""
    counted = reading._asdict()
    del counted["at_s"]  # a time, by whichever clock the caller has
    return counted if samples is None else counted | {"samples": samples}


class Report(NamedTuple):
    """The total samples of a replica at a time of the monotonic clock."""

    at_s: float
    samples: int


class Reports:
    """Collects the reports of one replica since it began."""

    def __init__(self, progress: Progress, batch_size: int, folder: Path) -> None:
        self.history: deque[Report] = deque(maxlen=_KEPT)
        self.last = Reading()
        self.nonsense = ""
        """The last line whose count is not valid."""
        self.counts_from_zero = False
        """Return whether it reports samples since its last line, so that its count restarts at 0 with each start."""
        self.processes: frozenset[int] = frozenset()
        """The processes that report by `log_samples`."""
        self._earlier_epochs = 0  # samples of earlier epochs, if the count restarts with each epoch
        self._progress = progress
        self._batch_size = batch_size
        self._folder = folder
        self._pattern = re.compile(progress.pattern) if progress.pattern else None

    def line(self, text: str, at_s: float) -> None:
        """Take a line of the replica's output."""
        if self._progress.source == "json":
            self._read_json(text, at_s)
        elif self._pattern and (match := self._pattern.search(text)):
            ((kind, value),) = [(k, v) for k, v in match.groupdict().items() if k in _KINDS]
            self._count(kind, value, at_s, text)

    def read_log(self) -> None:
        """Read the progress that the replica's processes have logged with `log_samples`."""
        if self._progress.source == "log_samples":
            by_process = {process: each for process, each in read_progress(self._folder).items() if each.steps}
            readings = list(by_process.values())
            if readings:
                self.processes = frozenset(by_process)
                self._add(add_up(readings))

    def _read_json(self, text: str, at_s: float) -> None:
        for fields in _objects(text):
            if kind := next((kind for kind in _KINDS if kind in fields), None):
                seconds = {name: fields.get(name) for name in PHASES}
                phases = {name: float(value) for name, value in seconds.items() if isinstance(value, (int, float))}
                return self._count(kind, fields[kind], at_s, text, phases)
        return None

    def _count(self, kind: str, value: object, at_s: float, text: str, phases: dict[str, float] | None = None) -> None:
        """Add a reported count.

        A count below half of the last one starts a new epoch, as a progress bar does.
        """
        try:
            number = read_count(value)
            samples = number * self._batch_size if kind == "steps" else number
            if kind != "more" and samples < (self.last.samples - self._earlier_epochs) / 2:
                self._earlier_epochs = self.last.samples
            samples += self.last.samples if kind == "more" else self._earlier_epochs
            if samples < self.last.samples:
                raise ValueError
        except ValueError:
            self.nonsense = redacted(text)[:200]
            return
        self.counts_from_zero = kind == "more"
        self._add(self.last._replace(samples=int(samples), steps=self.last.steps + 1, at_s=at_s, **(phases or {})))

    def _add(self, reading: Reading) -> None:
        if reading.samples > self.last.samples:
            self.history.append(Report(reading.at_s, reading.samples))
        self.last = reading


def read_count(value: object) -> float:
    """Parse a number of samples or steps as logs print it: 1,024, 1_024, 1'024, 1.024.000, 12.3k, 4.58e7.

    Raise ValueError for anything else.
    """
    number = -1.0
    if isinstance(value, str):
        text = value.strip()
        match = _NUMBER.fullmatch(text.replace(".", "") if _DOTS.fullmatch(text) else _THOUSANDS.sub("", text))
        number = float(match[1]) * _POWERS[match[2].lower()] if match else -1.0
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and value < _MAX_COUNT:
        number = float(value)
    if not 0 <= number < _MAX_COUNT:
        raise ValueError(f"{value!r} is not a number of samples or steps")
    return number


def _objects(text: str) -> Iterator[dict[str, object]]:
    """Yield the JSON objects and printed Python dictionaries of a line, with any text around them."""
    start, decoder = 0, json.JSONDecoder()
    for _ in range(_MAX_OBJECTS_PER_LINE):
        if (start := text.find("{", start)) < 0:
            return
        value: object = None
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
            with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
                value = ast.literal_eval(text[start : text.rindex("}") + 1])
                end = len(text)
        if isinstance(value, dict):
            yield value
        start = end
