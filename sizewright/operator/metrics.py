"""What the operator counts, for Prometheus, and whether it is healthy."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from sizewright.errors import MissingExtraError
from sizewright.runtime.http_server import HttpServer

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_PREFIX = "sizewright_operator_"


class OperatorMetrics:
    """Counts of jobs by outcome, of trials, changes, failures and turns.

    A turn that is later than `late_s` seconds is unhealthy.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, late_s: float = 300.0) -> None:
        self.is_leader = False
        self.waiting = 0
        """Jobs that wait for their share of the cluster."""
        self._clock = clock
        self._late_s = late_s
        self._outcomes: Counter[str] = Counter()
        self._trials: Counter[str] = Counter()
        self._changes: Counter[str] = Counter()
        self._failures = self._turns = 0
        self._alive_at_s = clock()

    def decided(self, outcome: str) -> None:
        """Count a job that was decided on."""
        self._outcomes[outcome] += 1

    def measured(self, status: str) -> None:
        """Count a trial job that has ended, by the status of its trial."""
        self._trials[status] += 1

    def changed(self, change: str) -> None:
        """Count a change of a running job: `resized` or `scaled`."""
        self._changes[change] += 1

    def failed(self) -> None:
        """Count something that could not be done."""
        self._failures += 1

    def turned(self) -> None:
        """Count a turn."""
        self._turns += 1
        self.alive()

    def alive(self) -> None:
        """Note that the operator works, or waits to lead."""
        self._alive_at_s = self._clock()

    @property
    def is_healthy(self) -> bool:
        """True unless the last turn, or the last attempt to lead, is too long ago."""
        return self._clock() - self._alive_at_s <= self._late_s

    def collect(self) -> Iterator[Metric]:
        """Yield the families of a scrape."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        jobs = CounterMetricFamily(f"{_PREFIX}jobs", "Jobs that were decided on.", labels=["outcome"])
        for outcome, count in dict(self._outcomes).items():
            jobs.add_metric([outcome], count)
        yield jobs
        trials = CounterMetricFamily(f"{_PREFIX}trials", "Trial jobs that have ended.", labels=["status"])
        for status, count in dict(self._trials).items():
            trials.add_metric([status], count)
        yield trials
        resizes, scalings = self._changes["resized"], self._changes["scaled"]
        yield CounterMetricFamily(f"{_PREFIX}resizes", "Resizes of running jobs.", value=resizes)
        yield CounterMetricFamily(f"{_PREFIX}scalings", "Changes of the workers of running jobs.", value=scalings)
        yield CounterMetricFamily(f"{_PREFIX}failures", "Jobs and lists that failed.", value=self._failures)
        yield CounterMetricFamily(f"{_PREFIX}turns", "Turns of the control loop.", value=self._turns)
        yield GaugeMetricFamily(f"{_PREFIX}waiting", "Jobs that wait for their share.", value=float(self.waiting))
        yield GaugeMetricFamily(f"{_PREFIX}leads", "1 for the operator that acts.", value=float(self.is_leader))

    def serve(self, port: int, host: str) -> HttpServer:
        """Serve `/metrics`, and `/healthz`, which is 503 for an operator that hangs.

        Raises MissingExtraError without prometheus_client, InputError for a port that cannot be used.
        """
        try:
            from prometheus_client import CollectorRegistry, make_wsgi_app
        except ImportError:
            raise MissingExtraError("metrics", "prometheus_client") from None
        registry = CollectorRegistry()
        registry.register(self)
        scrape = make_wsgi_app(registry)

        def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
            if environ["PATH_INFO"] != "/healthz":
                return list(scrape(environ, start_response))
            start_response("200 OK" if self.is_healthy else "503 Service Unavailable", [("Content-Type", "text/plain")])
            return [b"ok\n" if self.is_healthy else b"no turn for too long\n"]

        return HttpServer(host, port, application)
