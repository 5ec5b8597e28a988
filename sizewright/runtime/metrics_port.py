"""Serve the metrics of a running job and its control loop on a port that Prometheus scrapes."""

from __future__ import annotations

import asyncio
import email
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sizewright.errors import InputError, MissingExtraError
from sizewright.recommender.control.decisions import Decision
from sizewright.runtime.exposition import PREFIX, Sample, labels_of, samples_of
from sizewright.runtime.run import MetricsCallback, Running
from sizewright.spec import Metrics

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_MAX_CONNECTIONS, _REQUEST_S = 32, 10.0


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

        try:
            self._server = _Server(self._host, self.port, make_wsgi_app(self._registry))
        except (OSError, OverflowError) as error:
            raise InputError(
                f"Cannot serve metrics at {self._host}:{self.port}: {error}.", "Choose another port."
            ) from None
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


class _Server:
    """An HTTP server in one thread. A request has one deadline, and the oldest one is dropped where there are too many.

    The standard library's server has a thread for each connection, so that idle connections could exhaust a process.
    """

    def __init__(self, host: str, port: int, app: Callable[..., list[bytes]]) -> None:
        family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        self._socket = socket.create_server((host, port), family=family, dualstack_ipv6=dual)
        self.port: int = self._socket.getsockname()[1]
        self._app = app
        self._requests: deque[asyncio.Task[Any]] = deque()
        self._loop = asyncio.new_event_loop()
        self._closing = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, daemon=True, name="metrics port")
        self._thread.start()

    def close(self) -> None:
        """Drop every connection and release the port."""
        self._loop.call_soon_threadsafe(self._closing.set_result, None)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_until_complete(self._listen())
        self._loop.close()

    async def _listen(self) -> None:
        # A listener of asyncio pauses for a second when the process can open no more files, and would log a traceback.
        self._loop.set_exception_handler(lambda *_: None)
        server = await asyncio.start_server(self._answer, sock=self._socket, backlog=_MAX_CONNECTIONS)
        await self._closing
        server.close()
        requests = asyncio.all_tasks() - {asyncio.current_task()}
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = asyncio.current_task()
        assert request
        self._requests.append(request)
        if len(self._requests) > _MAX_CONNECTIONS:
            self._requests.popleft().cancel()
        try:
            await asyncio.wait_for(self._exchange(reader, writer), _REQUEST_S)
        except (asyncio.CancelledError, asyncio.TimeoutError, asyncio.LimitOverrunError, EOFError, OSError, ValueError):
            pass  # a connection that sends no request, or not in time, gets no answer
        finally:
            with suppress(ValueError):  # it was dropped for another
                self._requests.remove(request)
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        line, _, fields = head.decode("latin-1").partition("\r\n")
        method, target, _ = line.split(" ")
        headers, url = email.message_from_string(fields), urlsplit(target)
        environ = {"REQUEST_METHOD": method, "PATH_INFO": url.path, "QUERY_STRING": url.query}
        environ |= {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}

        def start_response(status: str, headers: list[tuple[str, str]]) -> None:
            lines = [f"HTTP/1.0 {status}", *(f"{name}: {value}" for name, value in headers), "", ""]
            writer.write("\r\n".join(lines).encode("latin-1"))

        writer.writelines(self._app(environ, start_response))
        writer.close()
        await writer.wait_closed()


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
