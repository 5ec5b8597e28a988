"""Metrics survive the text format that Prometheus scrapes."""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import sizewright as sw
from sizewright.errors import InputError, MissingExtraError, StoreError
from sizewright.runtime import http_server
from sizewright.runtime.exposition import Sample, labels_of, observation_of, samples_of
from sizewright.runtime.metrics_port import MetricsPort
from sizewright.runtime.prometheus_metrics import PrometheusObserver
from sizewright.runtime.run import Running
from sizewright.spec import ROLES, Allocation, Gpu, Group, Handle, Metrics, ReplicaMetrics
from sizewright.testing import FakeExecutor
from tests.helpers.fake_runs import JOB, ONE, run_with
from tests.helpers.small_server import Reply, server

HANDLE = Handle(executor="fake", id="ctr-1", job="ctr")
COUNTS = st.integers(0, 2**53)
SUMS = st.floats(0, 1e15)
GROUPS = st.builds(
    Group, replicas=st.integers(0, 99), cpu=st.floats(0.01, 64), memory_bytes=COUNTS,
    gpu=st.none() | st.builds(Gpu, kind=st.from_regex(r"\A[A-Za-z0-9][-A-Za-z0-9_.]{0,8}\Z"), count=st.integers(1, 8)),
)  # fmt: skip
SIDES = st.lists(GROUPS, max_size=2).map(tuple)
ALLOCATIONS = st.builds(
    Allocation, worker=SIDES, ps=SIDES, chief=SIDES, evaluator=SIDES, batch_size=st.integers(1, 10**6)
)


@st.composite
def replicas(draw: st.DrawFn) -> tuple[ReplicaMetrics, ...]:
    kinds = {"int": COUNTS, "float": SUMS}
    names = draw(st.sets(st.tuples(st.sampled_from(ROLES), st.integers(0, 30)), max_size=4))
    metrics = []
    for role, index in sorted(names, key=lambda name: (name[0], name[1])):
        fields = {
            name: draw(kinds[field.annotation.__name__])
            for name, field in ReplicaMetrics.model_fields.items()
            if name != "index" and field.annotation in (int, float)
        }
        limited = draw(st.sampled_from(["cgroup", "affinity", "none"]))
        period = draw(st.none() | SUMS)
        metrics.append(ReplicaMetrics(role=role, index=index, limited_by=limited, cfs_period_ms=period, **fields))
    return tuple(metrics)


METRICS = st.builds(
    Metrics, replicas=replicas(), engine_cpu_s=SUMS, samples_trained=COUNTS, samples_left=st.none() | COUNTS,
    allocation=st.none() | ALLOCATIONS,
)  # fmt: skip


def port_of(at_s: float, metrics: Metrics) -> MetricsPort:
    port = MetricsPort(0)
    running = Running(FakeExecutor(), HANDLE, JOB, ONE, clock=lambda: at_s)
    port.observer(running)(metrics)
    return port


def parsed(text: str) -> list[Sample]:
    """Parse a text as Prometheus does."""
    return [Sample(*one[:3]) for family in text_string_to_metric_families(text) for one in family.samples]


@given(st.floats(0, 1e12), METRICS)
def test_scraped_metrics_equal_the_observation(at_s: float, metrics: Metrics) -> None:
    registry = CollectorRegistry()
    registry.register(port_of(at_s, metrics))
    assert observation_of(parsed(generate_latest(registry).decode())) == (at_s, metrics)


def test_nan_values_are_preserved_where_possible() -> None:
    replica = ReplicaMetrics(role="ps", index=0, at_s=1.0, cpu_s=math.nan, throttled_s=0.0, memory_peak_bytes=1)
    samples = list(samples_of(1.0, Metrics(replicas=(replica,)), labels_of("ctr", "r")))
    assert math.isnan(observation_of(samples)[1].replicas[0].cpu_s)
    broken = [one._replace(value=math.nan) if one.name.endswith("steps_total") else one for one in samples]
    halves = [one for one in samples if "cpu_seconds" not in one.name]
    for scrape in (broken, halves, [one for one in samples if "looked" not in one.name]):
        with pytest.raises(InputError, match="The job's series in Prometheus are in"):
            observation_of(scrape)


def scraped(port: MetricsPort) -> list[Sample]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port.port}/metrics", timeout=10) as answer:
        return parsed(answer.read().decode())


def test_loop_metrics_are_served_and_the_port_is_released() -> None:
    with MetricsPort(0) as port:
        assert scraped(port) == []
        run_with([port.observer], tuned=True)
        scrape = scraped(port)
    turns = {one.labels["kind"]: one.value for one in scrape if one.name == "sizewright_loop_turns_total"}
    assert turns["adjust"] >= 1
    steps = {one.labels["step"]: one.value for one in scrape if one.name == "sizewright_loop_step_seconds_count"}
    assert steps["apply"] == turns["adjust"]
    assert steps["observe"] == sum(turns.values())
    values = {one.name: one.value for one in scrape}
    assert values["sizewright_loop_paused"] == 0
    assert values["sizewright_loop_throughput"] > 1000
    assert values["sizewright_forecast_finish_seconds"] > 0
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port.port))


def test_port_in_use_raises_input_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with MetricsPort(0) as port, pytest.raises(InputError, match="Choose another port"), MetricsPort(port.port):
        pass
    with pytest.raises(InputError, match=r"Cannot serve metrics at no\.such\.host"), MetricsPort(0, "no.such.host"):
        pass
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    with pytest.raises(MissingExtraError, match=r"sizewright\[metrics\]"):
        MetricsPort(0)


def test_idle_connections_take_no_threads_and_few_files() -> None:
    with MetricsPort(0) as port:
        threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
        strangers = [socket.create_connection(("127.0.0.1", port.port), timeout=10) for _ in range(200)]
        assert scraped(port) == []
        assert threading.active_count() == threads
        assert len(os.listdir("/proc/self/fd")) - files - len(strangers) <= 2 * http_server._MAX_CONNECTIONS
        assert strangers[0].recv(1) == b""
        for stranger in strangers:
            stranger.close()


def test_request_that_is_sent_slowly_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_REQUEST_S", 0.3)
    with MetricsPort(0) as port, socket.create_connection(("127.0.0.1", port.port), timeout=0.05) as stranger:
        began = time.monotonic()
        while time.monotonic() < began + 10:
            with suppress(TimeoutError, ConnectionError):
                stranger.sendall(b"G")
                if stranger.recv(1) == b"":
                    break
        assert time.monotonic() < began + 10
        assert scraped(port) == []


@pytest.mark.parametrize("request_line", [b"nonsense", b"POST / HTTP/1.1", b"GET http://[ HTTP/1.1", b"x" * 99_999])
def test_wrong_request_gets_no_metrics(request_line: bytes) -> None:
    with MetricsPort(0) as port:
        with socket.create_connection(("127.0.0.1", port.port), timeout=10) as stranger, suppress(ConnectionError):
            stranger.sendall(request_line + b"\r\n\r\n")
            assert b" 200 " not in stranger.recv(999)
        assert scraped(port) == []


def prometheus(answers: Iterator[list[Sample] | None]) -> AbstractContextManager[str]:
    """Serve query results as Prometheus does; an answer of None is an HTTP error."""

    def reply(*_: object) -> Reply:
        samples = next(answers)
        result = [{"metric": {"__name__": n, **labels}, "value": [1.0, str(v)]} for n, labels, v in samples or []]
        body = json.dumps({"status": "success", "data": {"result": result}}).encode()
        return Reply(503 if samples is None else 200, body)

    return server(reply)


def scrapes_of(count: int) -> list[list[Sample]]:
    """Return the scrapes of a run at one allocation; the last one is from its end."""
    scrapes: list[list[Sample]] = []
    fake_labels = labels_of("ctr", "ctr-1")
    run_with([lambda r: lambda m: scrapes.append(list(samples_of(r.clock(), m, fake_labels)))])
    ended = [one._replace(value=0.0) if one.name == "sizewright_samples_left" else one for one in scrapes[count]]
    return [*scrapes[:count], ended]


def test_loop_over_prometheus_is_a_dry_run_that_skips_untrusted_scrapes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    first, second, third, last = scrapes_of(3)
    other = [one._replace(labels=one.labels | {"run": "ctr-2"}) for one in second]
    answers = [first, first, first, None, [], [*second, *other], second, second, third, last]
    with prometheus(iter(answers)) as url:
        decisions = sw.tune(JOB, prometheus=url, plans=tmp_path / "plans")
    reasons = [
        "the first observation",
        "refuses: HTTP 503",
        "has no series of job ctr",
        "several runs of job ctr: ctr-1, ctr-2",
        "the first observation",
        "the clock did not advance",
    ]
    assert len(decisions) == len(answers) - 2
    for decision, reason in zip(decisions, reasons, strict=False):
        assert reason in decision.reason
    assert {decision.kind for decision in decisions[:6]} == {"blind"}
    assert {decision.kind for decision in decisions[6:]} <= {"keep", "adjust"}
    assert {decision.applied for decision in decisions} == {None}


def test_silent_or_empty_prometheus_raises_an_error() -> None:
    with pytest.raises(StoreError, match="does not answer"):
        sw.tune(JOB, prometheus="http://127.0.0.1:9")
    with pytest.raises(StoreError, match="is not the URL of a Prometheus"):
        PrometheusObserver("nonsense", "ctr")
    with prometheus(iter([[]])) as url, pytest.raises(InputError, match=r"has no series of job ctr.*--metrics-port"):
        sw.tune(JOB, prometheus=url)


def test_run_scraped_twice_yields_the_newest_copy() -> None:
    (first, second, _) = scrapes_of(2)
    stale = [one._replace(labels=one.labels | {"prometheus_replica": "b", "instance": "x"}) for one in first]
    fresh = [
        one._replace(labels={("exported_role" if k == "role" else k): v for k, v in one.labels.items()})
        for one in second
    ]
    fresh = [one._replace(labels=one.labels | {"role": "pod", "prometheus_replica": "a"}) for one in fresh]
    broken = Sample("sizewright_samples_left", fresh[0].labels, math.nan)
    with prometheus(iter([[*fresh, broken, *stale]])) as url:
        observer = PrometheusObserver(url, "ctr")
        metrics = observer.observe(HANDLE)
    at_s, expected = observation_of(second)
    assert observer.clock() == at_s
    assert metrics == expected
