"""Observe a job through the Prometheus that scrapes the metrics port of its run."""

from __future__ import annotations

import time
from collections.abc import Callable

from sizewright.datasets.runs.prometheus import Prometheus, labels_of_metric
from sizewright.errors import InputError
from sizewright.executors._base import ReadOnlyExecutor
from sizewright.runtime.exposition import Sample, latest_copy, observation_of, query
from sizewright.spec import Handle, Metrics


class PrometheusObserver(ReadOnlyExecutor):
    """The job of that name, as Prometheus scraped it.

    Its clock is that of the run at the last scrape: the same scrape read twice is no new observation. Raises StoreError
    where Prometheus does not answer, InputError where it knows no such job.
    """

    name = "prometheus"

    def __init__(self, url: str, job: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._prometheus = Prometheus(url)
        self._job = job
        self._sleep = sleep
        self._at_s, self._ended = 0.0, False

    def clock(self) -> float:
        """Return the seconds on the run's clock at the last scrape."""
        return self._at_s

    def handle(self) -> Handle:
        """Return the handle of the one run of the job that is scraped now."""
        return Handle(executor=self.name, id=self._samples()[0].labels.get("run", ""), job=self._job)

    def observe(self, handle: Handle) -> Metrics:
        """Return the metrics of the last scrape."""
        self._at_s, metrics = observation_of(self._samples())
        self._ended = metrics.samples_left == 0
        return metrics

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Return whether all samples were trained at the last observation; if not, wait `timeout_s` seconds first."""
        if not self._ended:
            self._sleep(timeout_s)
        return self._ended

    def _samples(self) -> list[Sample]:
        samples = []
        for series in self._prometheus.instant(query(self._job)):
            labels = labels_of_metric(series.labels)
            samples.append(Sample(labels.pop("__name__", ""), labels, series.value))
        runs = sorted({sample.labels.get("run", "") for sample in samples})
        if not runs:
            raise InputError(
                f"Prometheus at {self._prometheus.url} has no series of job {self._job}.",
                "Run it with a metrics port (--metrics-port), and let Prometheus scrape that port.",
            )
        if len(runs) > 1:
            raise InputError(
                f"Prometheus at {self._prometheus.url} has several runs of job {self._job}: {', '.join(runs)}.",
                "Wait until only one is running.",
            )
        return latest_copy(samples)
