"""A job as a Prometheus tells of it that scrapes the metrics port of its run."""

from __future__ import annotations

import time
from collections.abc import Callable

from sizewright.datasets.prometheus import Prometheus, own_labels
from sizewright.errors import InputError
from sizewright.executors.exposition import Sample, latest_copy, look_of, query
from sizewright.executors.watch_only import WatchOnly
from sizewright.spec import Handle, Metrics


class PrometheusObserver(WatchOnly):
    """Of the job of that name. Its clock is that of the run as it was scraped last: the same scrape read twice is no
    new look. Raises StoreError where Prometheus does not answer, InputError where it knows no such job."""

    name = "prometheus"

    def __init__(self, url: str, job: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._prometheus, self._job, self._sleep = Prometheus(url), job, sleep
        self._at_s, self._ended = 0.0, False

    def clock(self) -> float:
        """Seconds, by the last scrape."""
        return self._at_s

    def handle(self) -> Handle:
        """Of the one run of the job that it tells of now."""
        return Handle(executor=self.name, id=self._samples()[0].labels.get("run", ""), job=self._job)

    def observe(self, handle: Handle) -> Metrics:
        """What was scraped last."""
        self._at_s, metrics = look_of(self._samples())
        self._ended = metrics.samples_left == 0
        return metrics

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Whether all was trained when it was looked at last."""
        if not self._ended:
            self._sleep(timeout_s)
        return self._ended

    def _samples(self) -> list[Sample]:
        told = self._prometheus.instant(query(self._job))
        named = [(own_labels(one.labels), one.value) for one in told]
        found = [Sample(labels.pop("__name__", ""), labels, value) for labels, value in named]
        runs = sorted({sample.labels.get("run", "") for sample in found})
        if not runs:
            raise InputError(
                f"Prometheus at {self._prometheus.url} tells of no job {self._job}.",
                "Run it with a metrics port (--metrics-port), and have that port scraped.",
            )
        if len(runs) > 1:
            raise InputError(
                f"Prometheus at {self._prometheus.url} tells of several runs of {self._job}: {', '.join(runs)}.",
                "Wait until one is left.",
            )
        return latest_copy(found)
