"""The HTTP API of a Prometheus: series over a time, or what they are now."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from sizewright.errors import StoreError

Floats = NDArray[np.float64]
T = TypeVar("T")

_MOST_POINTS = 10_000  # Prometheus answers at most 11,000 a series
_TIMEOUT_S = 30.0


class Series(NamedTuple):
    """One metric of one container."""

    labels: dict[str, str]
    times: Floats
    """(n,), seconds since 1970."""
    values: Floats


class Instant(NamedTuple):
    """One metric at one time."""

    labels: dict[str, str]
    value: float


class Prometheus:
    """Its HTTP API at `url`. Raises StoreError where it does not answer or refuses."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        try:
            scheme = urllib.parse.urlsplit(self.url).scheme
        except ValueError:
            scheme = ""
        if scheme not in ("http", "https"):
            raise StoreError(f"{url!r} is no URL of a Prometheus.", "Write such as http://prometheus:9090.")

    def series(self, query: str, start: float, end: float, step_s: float) -> list[Series]:
        """What a query gives from `start` to `end` (seconds since 1970), a value each `step_s` seconds."""
        parts: dict[str, list[Series]] = {}
        for first, last in _pieces(start, end, step_s):
            for one in self._ask("query_range", _series, query=query, start=first, end=last, step=step_s):
                parts.setdefault(json.dumps(one.labels, sort_keys=True), []).append(one)
        return [_joined(pieces) for pieces in parts.values()]

    def instant(self, query: str) -> list[Instant]:
        """What a query gives now; series that ended are not among it."""
        return self._ask("query", _instant, query=query)

    def _ask(self, kind: str, read: Callable[[dict[str, Any]], T], **told: object) -> list[T]:
        url = f"{self.url}/api/v1/{kind}?{urllib.parse.urlencode(told)}"
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
                body = json.load(answer)
            found = [read(told) for told in body["data"]["result"]]
        except urllib.error.HTTPError as error:
            raise StoreError(f"Prometheus at {self.url} refuses: {_reason(error)}.", "Check the URL.") from None
        except (KeyError, TypeError):
            raise StoreError(f"What answers at {self.url} is no Prometheus.", "Check the URL.") from None
        except (OSError, ValueError, HTTPException) as error:
            raise StoreError(f"Prometheus at {self.url} does not answer: {error}.", "Check the URL.") from None
        return found


def _pieces(start: float, end: float, step_s: float) -> Iterator[tuple[float, float]]:
    while start <= end:
        last = min(end, start + _MOST_POINTS * step_s)
        yield start, last
        start = last + step_s


def _series(told: dict[str, Any]) -> Series:
    pairs = np.array([(float(at), float(value)) for at, value in told["values"]]).reshape(-1, 2)
    return Series(dict(told["metric"]), pairs[:, 0], pairs[:, 1])


def _instant(told: dict[str, Any]) -> Instant:
    return Instant(dict(told["metric"]), float(told["value"][1]))


def _joined(pieces: list[Series]) -> Series:
    columns = (np.concatenate(column) for column in zip(*((p.times, p.values) for p in pieces), strict=True))
    return Series(pieces[0].labels, *columns)


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["error"]).rstrip(".")
    except (ValueError, KeyError, TypeError, OSError):
        return f"HTTP {error.code}"
