"""Serve the metrics of a running job and its control loop on a port that Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sizewright.errors import MissingExtraError
from sizewright.recommender.control.decisions import Decision
from sizewright.runtime.exposition import PREFIX, Sample, labels_of, samples_of
from sizewright.runtime.http_server import HttpServer
from sizewright.runtime.run import MetricsCallback, Running
from sizewright.spec import Metrics

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class MetricsPort:
    """A server on `host`:`port` while the context lasts; port 0 takes any free port, which `port` then names.

    One thread answers all scrapes, from the latest observation. Raises MissingExtraError without prometheus_client,
    InputError for a port that cannot be used.
    """

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        try:
            import prometheus_client
        except ImportError:
            raise MissingExtraError("metrics", "prometheus_client") from None
        self.port, self._host = port, host
        self._registry = prometheus_client.CollectorRegistry()
        self._registry.register(self)
        self._turns: dict[tuple[str, str], int] = {}
        self._steps: dict[str, tuple[int, float]] = {}
        self._running: Running | None = None
        self._observed: tuple[float, Metrics] | None = None

    def __enter__(self) -> MetricsPort:
        from prometheus_client import make_wsgi_app

        self._server = HttpServer(self._host, self.port, make_wsgi_app(self._registry))
        self.port = self._server.port
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def observer(self, running: Running) -> MetricsCallback:
        """Serve this job from now on, and return the callback that takes in its observations."""
        self._running = running
        running.listeners.append(self._on_decision)

        def on_metrics(metrics: Metrics | None) -> None:
            if metrics:
                self._observed = running.clock(), metrics

        return on_metrics

    def _on_decision(self, decision: Decision) -> None:
        turn = decision.kind, decision.stage
        self._turns = self._turns | {
            turn: self._turns.get(turn, 0) + 1
        }  # a new dict: another thread may read the old one
        steps = dict(self._steps)
        for step, seconds in decision.timings_s.items():
            count, total = steps.get(step, (0, 0.0))
            steps[step] = count + 1, total + seconds
        self._steps = steps

    def collect(self) -> Iterator[Metric]:
        """Yield the families of a scrape."""
        from prometheus_client.core import Metric

        families: dict[str, Metric] = {}
        for sample in self._samples():
            kind = "counter" if sample.name.endswith("_total") else "gauge"
            help_text = sample.name.removeprefix(PREFIX).replace("_", " ")
            family = families.setdefault(sample.name, Metric(sample.name.removesuffix("_total"), help_text, kind))
            family.add_sample(*sample)
        yield from families.values()
        yield from self._step_seconds()

    def _samples(self) -> Iterator[Sample]:
        if (running := self._running) is None:
            return
        labels = labels_of(running.job.name, running.handle.id)
        if self._observed:
            yield from samples_of(*self._observed, labels)
        for (kind, stage), count in self._turns.items():
            yield Sample(f"{PREFIX}loop_turns_total", labels | {"kind": kind, "stage": stage}, count)
        if running.controller:
            yield Sample(f"{PREFIX}loop_paused", labels, float(running.controller.paused))
        if running.decision:
            yield from _decision_samples(running.decision, labels)

    def _step_seconds(self) -> Iterator[Metric]:
        from prometheus_client.core import SummaryMetricFamily

        if running := self._running:
            labels = labels_of(running.job.name, running.handle.id)
            help_text = "Seconds of each step of a turn."
            family = SummaryMetricFamily(f"{PREFIX}loop_step_seconds", help_text, labels=[*labels, "step"])
            for step, (count, total) in self._steps.items():
                family.add_metric([*labels.values(), step], count, total)
            yield family


def _decision_samples(decision: Decision, labels: dict[str, str]) -> Iterator[Sample]:
    forecast = decision.forecast
    values: dict[str, Any] = {
        "loop_throughput": decision.throughput,
        "forecast_finish_seconds": forecast.finish_s,
        "forecast_ps_peak_bytes": forecast.ps_peak_bytes,
        "forecast_ps_peak_at_end_bytes": forecast.ps_peak_at_end_bytes,
        "forecast_ps_limit_bytes": forecast.ps_limit_bytes,
    }
    for name, value in values.items():
        if value is not None:
            yield Sample(f"{PREFIX}{name}", labels, value)
