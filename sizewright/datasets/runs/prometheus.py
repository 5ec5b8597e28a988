"""A client of Prometheus' HTTP API: range queries and instant queries."""

from __future__ import annotations

import base64
import json
import logging
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Iterator
from http.client import HTTPException, IncompleteRead
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, model_validator

from sizewright.errors import StoreError
from sizewright.formatting import format_bytes
from sizewright.redaction import beginning, redacted
from sizewright.spec._deadlines import within
from sizewright.spec._json import loads

Floats = NDArray[np.float64]
_LOG = logging.getLogger(__name__)

_MAX_POINTS = 10_000  # Prometheus answers with at most 11,000 per series
_MIN_POINTS = 100
_TIMEOUT_S = 30.0
_DEADLINE_S = 120.0
"""Limit for one answer, also if some of it arrives all the time."""
_TOO_MUCH = re.compile(r"too many|too large|too long|maximum resolution|timed out|exceed|limit", re.IGNORECASE)
_PAGES = re.compile(r"/(api/v1(/query(_range)?)?|(classic/|new/)?graph|query|targets|alerts|-/(ready|healthy))/*$")
_REMEDIES = {
    401: "It needs a login: write the URL as https://USER:PASSWORD@HOST.",
    403: "It needs a login: write the URL as https://USER:PASSWORD@HOST.",
    404: "Check the URL: the API is expected at URL/api/v1.",
    422: "Ask for less: a shorter time, or a longer step.",
    429: "Try again later, or ask for less: a shorter time, or a longer step.",
    502: "Check that it runs, then try again.", 503: "Check that it runs, then try again.",
    504: "Ask for less (a shorter time, a longer step), or try again later.",
}  # fmt: skip
_EXPORTED = "exported_"
_MAX_BYTES = 256 << 20
"""Limit for one answer, unpacked."""


_Timestamp = Annotated[float, Field(ge=0, lt=253402300800)]
"""Seconds since 1970, up to the last year that a date can have."""


class _LenientModel(BaseModel):
    """A record that ignores unknown keys, since servers and proxies add keys of their own."""


class _Envelope(_LenientModel):
    status: str
    error: str | None = None
    warnings: list[str] | None = None
    isPartial: bool = False  # noqa: N815


class _SeriesAnswer(_LenientModel):
    """One series: `value` in a vector, `values` in a matrix, or histograms, which are ignored."""

    metric: dict[str, str]
    value: tuple[_Timestamp, float] | None = None
    values: list[tuple[_Timestamp, float]] | None = None
    histogram: Any = None
    histograms: Any = None

    @model_validator(mode="after")
    def _has_values(self) -> _SeriesAnswer:
        if all(each is None for each in (self.value, self.values, self.histogram, self.histograms)):
            raise ValueError("it has no values")
        return self


class _Result(_LenientModel):
    result: list[_SeriesAnswer] | None


class _Success(_LenientModel):
    data: _Result


class Series(NamedTuple):
    """One metric of one container, without its values that are not finite (NaN, +Inf, -Inf)."""

    labels: dict[str, str]
    times: Floats
    """(n,), seconds since 1970."""
    values: Floats


class Instant(NamedTuple):
    """One metric at one time."""

    labels: dict[str, str]
    value: float


class _TooMuchError(StoreError):
    """A query that this Prometheus can only answer for a shorter time."""


class Prometheus:
    """A client of the HTTP API at `url`, which may contain a user and a password.

    The attribute `url` has no password. Raises StoreError where the server does not answer or refuses.
    """

    def __init__(self, url: str) -> None:
        self.url = redacted(url.rstrip("/"))
        try:
            parts = urllib.parse.urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https"):
            raise StoreError(f"{url!r} is not the URL of a Prometheus.", "Write such as http://prometheus:9090.")
        self._headers = {"Accept-Encoding": "gzip"}
        if parts.username is not None:
            login = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        path = _PAGES.sub("", parts.path.rstrip("/"))  # people paste what their browser shows
        self._base = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path.rstrip('/')}"
        self._warned: set[str] = set()

    def series(self, query: str, start: float, end: float, step_s: float) -> list[Series]:
        """Return the series of a query from `start` to `end` (seconds since 1970), one value per `step_s` seconds."""
        parts: dict[str, list[Series]] = {}
        for first, last in _pieces(start, end, step_s):
            for one in self._range(query, first, last, step_s):
                parts.setdefault(json.dumps(one.labels, sort_keys=True), []).append(one)
        return [_joined(pieces) for pieces in parts.values()]

    def instant(self, query: str) -> list[Instant]:
        """Return the present values of a query, without series that ended."""
        answers = self._query("query", query=query)
        return [Instant(one.metric, one.value[1]) for one in answers if one.value is not None]

    def _range(self, query: str, first: float, last: float, step_s: float) -> list[Series]:
        """Query one range, in halves where it is too much at once."""
        try:
            answers = self._query("query_range", query=query, start=first, end=last, step=step_s)
            return [_series(one) for one in answers]
        except _TooMuchError:
            steps = int((last - first) // step_s)
            if steps < _MIN_POINTS:
                raise
        middle = first + steps // 2 * step_s
        return [*self._range(query, first, middle, step_s), *self._range(query, middle + step_s, last, step_s)]

    def _query(self, kind: str, **parameters: object) -> list[_SeriesAnswer]:
        body = self._get(f"{self._base}/api/v1/{kind}?{urllib.parse.urlencode(parameters)}")
        try:
            document = loads(body)
            answer = _Envelope.model_validate(document)
            if answer.status != "success":
                raise self._refused(answer.error or answer.status, 422)
            self._log_warnings(answer)
            return _Success.model_validate(document).data.result or []
        except ValueError as error:
            raise self._not_prometheus(body, error) from None

    def _get(self, url: str) -> bytes:
        try:
            return within(_DEADLINE_S, lambda: self._download(url))
        except TimeoutError as error:
            raise self._no_answer(str(error)) from None

    def _download(self, url: str) -> bytes:
        try:
            opener = urllib.request.build_opener(_SameHost)
            with opener.open(urllib.request.Request(url, headers=self._headers), timeout=_TIMEOUT_S) as answer:
                packed = answer.read(_MAX_BYTES + 1)
                if answer.length and len(packed) <= _MAX_BYTES:
                    raise EOFError
            body = _unpacked(packed)
        except urllib.error.HTTPError as error:
            raise self._refused(_reason(error), error.code) from None
        except (IncompleteRead, EOFError, zlib.error):
            raise StoreError(f"The answer of Prometheus at {self.url} is cut short.", "Try again.") from None
        except TimeoutError:
            raise self._no_answer(f"no data within {_TIMEOUT_S:g} s") from None
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise StoreError(
                    f"The certificate of Prometheus at {self.url} is not trusted: {reason.verify_message}.",
                    "Name the certificate of its issuer: export SSL_CERT_FILE=ca.pem.",
                ) from None
            if isinstance(reason, ssl.SSLError):
                raise StoreError(f"{self.url} does not speak TLS.", "Write http:// instead of https://.") from None
            raise self._no_answer(str(reason)) from None
        if len(body) > _MAX_BYTES:
            raise _TooMuchError(
                f"Prometheus at {self.url} sends more than {format_bytes(_MAX_BYTES)} at once.", _REMEDIES[422]
            )
        return body

    def _no_answer(self, reason: str) -> StoreError:
        return StoreError(f"Prometheus at {self.url} does not answer: {_short(reason)}.", "Check the URL.")

    def _refused(self, reason: str, code: int) -> StoreError:
        kind = _TooMuchError if code in (400, 413, 422, 504) and _TOO_MUCH.search(reason) else StoreError
        remedy = _REMEDIES[422] if kind is _TooMuchError else _REMEDIES.get(code, "Check the URL.")
        return kind(f"Prometheus at {self.url} refuses: {_short(reason)}.", remedy)

    def _not_prometheus(self, body: bytes, error: Exception) -> StoreError:
        """Return the error for an answer that does not have the format of Prometheus."""
        if isinstance(error, json.JSONDecodeError) and body.lstrip().startswith(b'{"status"'):
            return StoreError(f"The answer of Prometheus at {self.url} is cut short.", "Try again.")
        remedy = "Check the URL."
        if title := _title(body):
            what = f"the answer is a web page ({title})"
            remedy = "Check the URL; if a proxy asks for a login, add USER:PASSWORD@."
        elif shown := beginning(" ".join(body[:1000].decode(errors="replace").split()), 60):
            what = f"it answers {shown!r}"
        else:
            what = "the answer is empty"
        return StoreError(f"The server at {self.url} is not a Prometheus: {what}.", remedy)

    def _log_warnings(self, answer: _Envelope) -> None:
        """Log each warning of the server once. Raises StoreError where the answer has only a part of the data."""
        warnings = answer.warnings or []
        if answer.isPartial:
            why = f": {'; '.join(warnings)}" if warnings else ""
            raise StoreError(
                f"Prometheus at {self.url} gives only a part of its data{why}.",
                "Try again when all of its storage is available.",
            )
        for text in dict.fromkeys(warnings):
            if text not in self._warned:
                _LOG.warning("Prometheus warns: %s", redacted(text))
        self._warned.update(warnings)


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows a redirection to another host without the login."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):  # type: ignore[no-untyped-def]
        """Follow the redirection as the standard library does, without the login on another host."""
        redirected = super().redirect_request(req, fp, code, msg, headers, newurl)
        if (
            redirected is not None
            and urllib.parse.urlsplit(newurl).hostname != urllib.parse.urlsplit(req.full_url).hostname
        ):
            redirected.remove_header("Authorization")
        return redirected


def labels_of_metric(labels: dict[str, str]) -> dict[str, str]:
    """Return the metric's own labels: Prometheus renames a label X to `exported_X` where its target has an X."""
    exported = {name.removeprefix(_EXPORTED): value for name, value in labels.items() if name.startswith(_EXPORTED)}
    return {name: value for name, value in labels.items() if not name.startswith(_EXPORTED)} | exported


def _pieces(start: float, end: float, step_s: float) -> Iterator[tuple[float, float]]:
    while start <= end:
        last = min(end, start + _MAX_POINTS * step_s)
        yield start, last
        start = last + step_s


def _series(one: _SeriesAnswer) -> Series:
    pairs = np.array([one.value] if one.value else one.values or []).reshape(-1, 2)
    pairs = pairs[np.isfinite(pairs).all(axis=1)]
    return Series(one.metric, pairs[:, 0], pairs[:, 1])


def _joined(pieces: list[Series]) -> Series:
    columns = (np.concatenate(column) for column in zip(*((p.times, p.values) for p in pieces), strict=True))
    return Series(pieces[0].labels, *columns)


def _short(text: str) -> str:
    """Return a foreign text as one line of at most 300 characters."""
    return beginning(" ".join(text.split()).rstrip("."), 300)


def _unpacked(body: bytes) -> bytes:
    """Decompress the body, up to one byte more than the limit. Raises EOFError or zlib.error where it is damaged."""
    if not body.startswith(b"\x1f\x8b"):
        return body
    stream = zlib.decompressobj(wbits=31)
    unpacked = stream.decompress(body, _MAX_BYTES + 1)
    if not stream.eof and len(unpacked) <= _MAX_BYTES:
        raise EOFError
    return unpacked


def _title(body: bytes) -> str:
    """Return the title of a web page; empty for anything else."""
    if not re.match(rb"\s*(<!doctype html|<html|<head|<!--)", body[:200], re.IGNORECASE):
        return ""
    match = re.search(rb"<(title|h1)[^>]*>(.*?)</", body, re.IGNORECASE | re.DOTALL)
    return beginning(" ".join(match[2].decode(errors="replace").split()), 80) if match else "without a title"


def _reason(error: urllib.error.HTTPError) -> str:
    """Return the reason in the body of a refusal, which is JSON, a web page or a line of text."""
    status = f"HTTP {error.code} ({error.reason})" if error.reason else f"HTTP {error.code}"
    try:
        body = _unpacked(error.read(100_000))
    except (OSError, EOFError, zlib.error, HTTPException):
        return status
    try:
        return str(loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        line = _title(body) or next(iter(body.decode(errors="replace").strip().splitlines()), "")
    return f"{status}, {beginning(line, 120)}" if line and not line.startswith("<") else status
