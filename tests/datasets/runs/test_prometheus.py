"""Unusual but valid answers of Prometheus, and answers of other servers."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
import runpy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizewright.datasets.runs import prometheus
from sizewright.datasets.runs.finished_job import FinishedJob
from sizewright.datasets.runs.pod_history import jobs_of_pods
from sizewright.datasets.runs.pod_metrics import MEMORY, RESTARTS, Values, owner_of
from sizewright.datasets.runs.prometheus import Prometheus
from sizewright.errors import StoreError
from tests.helpers.small_server import ENDLESS_HEADS, Reply, endless, server

MIB = 1 << 20
STEP = 30
Cases = dict[str, list[tuple[dict[str, str], list[tuple[float, object]]]]]


def selected(cases: Cases, query: dict[str, str], **more: object) -> bytes:
    """Return the answer to a range query; it honours the matchers `=` and `!=`."""
    name = re.match(r"(?:max_over_time\()?(\w+)", query["query"])
    assert name is not None
    matchers = re.findall(r'(\w+)(!=|=)"([^"]*)"', query["query"])
    result = []
    for labels, values in cases.get(name[1], []):
        fits = all((labels.get(k, "") != v) if op == "!=" else (labels.get(k, "") == v) for k, op, v in matchers)
        inside = [[t, str(v)] for t, v in values if float(query["start"]) <= t <= float(query["end"])]
        if fits and inside:
            result.append({"metric": labels, "values": inside})
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}, **more}).encode()


@contextmanager
def holding(cases: Cases, **more: object) -> Iterator[Prometheus]:
    with server(lambda path, query, headers: Reply(200, selected(cases, query, **more))) as url:
        yield Prometheus(url)


def add(
    cases: Cases, pod_name: str, /, at: range = range(1020, 2821, STEP), peak: float = 1000 * MIB, cores: float = 2.0,
    limit: float = 2048 * MIB, quota: float = 200_000, **labels: str | None,
) -> None:  # fmt: skip
    """Add the series of one container."""
    defaults = {
        "pod": pod_name,
        "namespace": "ads",
        "container": "tensorflow",
        "id": f"/kubepods/{pod_name}",
    }
    own_labels = {name: value for name, value in (defaults | labels).items() if value is not None}
    values: dict[str, list[tuple[float, object]]] = {
        "container_cpu_usage_seconds_total": [(t, cores * (t - at[0])) for t in at],
        MEMORY: [(t, peak * (i + 1) / len(at)) for i, t in enumerate(at)],
        "container_spec_cpu_quota": [(t, quota) for t in at],
        "container_spec_cpu_period": [(t, 100_000) for t in at],
        "container_spec_memory_limit_bytes": [(t, limit) for t in at],
        "container_oom_events_total": [(t, 0) for t in at],
    }
    for metric, pairs in values.items():
        cases.setdefault(metric, []).append((own_labels, pairs))


def pair(**labels: str | None) -> Cases:
    cases: Cases = {}
    for pod in ("ctr-worker-0", "ctr-ps-0"):
        add(cases, pod, **labels)
    return cases


def check(run: FinishedJob, limit: int = 2048 * MIB) -> None:
    """Check the run that the series of `pair` give."""
    assert (run.name, run.outcome.status) == ("ctr", "finished")
    for usage in (run.worker, run.ps):
        assert usage.memory_peak_bytes == pytest.approx(1000 * MIB, abs=1)
        assert usage.cpu_used == pytest.approx(2.0)
    (group,) = run.stretches[0].allocation.worker
    assert (group.replicas, group.cpu, group.memory_bytes) == (1, 2.0, limit)


@pytest.mark.parametrize(
    ("folder", "case"),
    [
        ("P01", "p1.py"), ("P02", "p2.py"), ("P04", "p3.py"), ("P04", "p3b.py"), ("P05", "p4.py"), ("P06", "p5.py"),
        ("P06", "p5b.py"), ("P10", "p8.py"),
    ],
)  # fmt: skip
def test_field_cases_are_read_correctly(shared: Path, folder: str, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shared / "field" / folder)
    module = runpy.run_path(case)
    with holding(module["SERIES"]) as prometheus:
        (run,) = jobs_of_pods(prometheus, module["T0"] - 7200, module["NOW"])
    assert run.id.startswith("ads/ctr@")
    check(run, limit=0 if case == "p5b.py" else 2048 * MIB)


def test_a_container_that_restarts_at_its_limit_ran_out_of_memory(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shared / "field" / "P12")
    module = runpy.run_path("p13.py")
    with holding(module["SERIES"]) as prometheus:
        (run,) = jobs_of_pods(prometheus, module["T0"] - 7200, module["NOW"])
    assert run.outcome.status == "failed"
    assert [(failure.replica, failure.cause) for failure in run.outcome.failures] == [("ctr-worker-0", "oom")] * 3
    assert "ctr-worker-0 ran out of memory (3 times)" in run.outcome.message


COPIES: dict[str, Callable[[Cases], None]] = {
    "the whole pod": lambda c: add(c, "ctr-worker-0", container=None, id="/kubepods/pod1"),
    "an empty container": lambda c: add(c, "ctr-worker-0", container="", image="", id="/kubepods/pod1", limit=2.0**63),
    "pause": lambda c: add(c, "ctr-worker-0", container="POD", peak=MIB, cores=0.01),
    "pause by its old label": lambda c: add(c, "ctr-worker-0", container=None, container_name="POD", peak=MIB),
    "pause by its image": lambda c: add(c, "ctr-worker-0", container="", image="registry.k8s.io/pause:3.9", peak=MIB),
    "another Prometheus": lambda c: add(c, "ctr-worker-0", prometheus_replica="b", quota=-1, limit=0),
    "a nested group": lambda c: add(
        c, "ctr-worker-0", id="/kubepods/ctr-worker-0/inner", peak=900 * MIB, limit=2.0**63
    ),
    "a copy with gaps": lambda c: add(c, "ctr-worker-0", range(1200, 1500, 90), peak=10 * MIB, cores=1.9, job="b"),
    "control groups of the node": lambda c: add(c, "", pod=None, namespace=None, container=None, id="/system.slice"),
}


@pytest.mark.parametrize("copy", COPIES)
def test_copies_and_sums_of_a_container_are_counted_once(copy: str) -> None:
    cases = pair()
    COPIES[copy](cases)
    with holding(cases) as prometheus:
        (run,) = jobs_of_pods(prometheus, 0, 9000)
    check(run)


@pytest.mark.parametrize(
    "labels",
    [
        {"container": None, "container_name": "tf"},
        {"pod": None, "pod_name": "NAME", "container": None, "container_name": "tf"},
        {"pod": "exporter", "namespace": "monitoring", "container": "exporter", "exported_pod": "NAME",
         "exported_namespace": "ads", "exported_container": "tf"},
        {"container": None, "name": "k8s_tf_ctr_ads_1_0"},
        {"pod": None, "container": None, "container_label_io_kubernetes_pod_name": "NAME",
         "container_label_io_kubernetes_container_name": "tf"},
    ],
)  # fmt: skip
def test_labels_of_older_and_renamed_scrapes_are_read(labels: dict[str, str | None]) -> None:
    cases: Cases = {}
    for pod in ("ctr-worker-0", "ctr-ps-0"):
        add(cases, pod, **{key: pod if value == "NAME" else value for key, value in labels.items()})
    with holding(cases) as prometheus:
        (run,) = jobs_of_pods(prometheus, 0, 9000, namespace="ads")
    check(run)


def test_a_pod_of_two_containers_with_a_gap_in_one_uses_what_both_used() -> None:
    cases = pair()
    add(cases, "ctr-worker-0", container="sidecar", peak=100 * MIB, cores=0.5, quota=-1, limit=0)
    for labels, values in cases["container_cpu_usage_seconds_total"]:
        if labels["pod"] == "ctr-worker-0" and labels["container"] == "tensorflow":
            values[20:23] = [(values[20][0], "NaN"), (values[21][0], "+Inf"), (values[22][0], "-Inf")]
    with holding(cases) as prometheus:
        (run,) = jobs_of_pods(prometheus, 0, 9000)
    assert run.worker.cpu_used == pytest.approx(2.5)
    assert run.worker.memory_peak_bytes == pytest.approx(1100 * MIB, abs=2)


@pytest.mark.parametrize(
    ("metric", "labels", "values", "status"),
    [
        (
            "kube_pod_container_status_last_terminated_reason",
            {"reason": "OOMKilled"},
            [(1500, 1), (1530, 1)],
            "finished",
        ),
        ("kube_pod_container_status_terminated_reason", {"reason": "OOMKilled"}, [(2820, 1)], "failed"),
        ("kube_pod_container_status_last_terminated_reason", {"reason": "Error"}, [(1500, 1)], None),
        ("container_oom_events_total", {}, [(1500, 0), (1530, 2), (1560, 2)], "finished"),
        (RESTARTS, {}, [(1500, 0), (1530, 1)], None),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_reports_of_memory_kills_are_read(
    metric: str, labels: dict[str, str], values: list[tuple[float, object]], status: str | None, named: bool
) -> None:
    cases = pair(container="tensorflow" if named else None)
    own_labels = {"pod": "kube-state-metrics-1", "namespace": "kube-system", "container": "ksm"}
    own_labels |= {"exported_pod": "ctr-worker-0", "exported_namespace": "ads", "exported_container": "tensorflow"}
    cases.setdefault(metric, []).append((own_labels | labels, values))
    with holding(cases) as prometheus:
        (run,) = jobs_of_pods(prometheus, 0, 9000)
    assert run.outcome.status == (status or "finished")
    assert [f.replica for f in run.outcome.failures] == (["ctr-worker-0"] if status else [])
    assert run.ran_out_of_memory == (status is not None)


@pytest.mark.parametrize(
    ("peaks", "kills"), [((2000, 1000), 1), ((2048, 2048), 2), ((1000, 1000), 0), ((1000, 2048), 1)]
)
def test_restarts_and_ends_count_as_kills_only_at_the_limit(peaks: tuple[int, int], kills: int) -> None:
    cases: Cases = {}
    add(cases, "ctr-ps-0")
    for number, (at, peak) in enumerate(zip((range(1020, 1801, STEP), range(1830, 2821, STEP)), peaks, strict=True)):
        add(cases, "ctr-worker-0", at, peak=peak * MIB, id=f"/a/{number}")
    with holding(cases) as prometheus:
        (run,) = jobs_of_pods(prometheus, 0, 9000)
    assert len(run.outcome.failures) == kills
    assert run.outcome.status == ("failed" if peaks[1] == 2048 else "finished")


def test_values_scraped_every_four_minutes_are_one_run() -> None:
    cases: Cases = {}
    for pod in ("ctr-worker-0", "ctr-ps-0"):
        add(cases, pod, range(1020, 9900, 240))
    with holding(cases) as prometheus:
        (run,) = jobs_of_pods(prometheus, 0, 30_000)
        with pytest.raises(StoreError, match="1 still running"):
            jobs_of_pods(prometheus, 0, 10_200)
    assert run.outcome.duration_s == 8640


def test_missing_series_or_labels_are_named_where_there_is_no_job() -> None:
    empty: Cases = {}
    unlabelled, elsewhere, ended = pair(pod=None), pair(), {"up": pair()[MEMORY]}
    for case, message in (
        (empty, "0 series of container_memory_working_set_bytes"),
        (ended, "0 series of container_memory_working_set_bytes"),
        (unlabelled, "2 series of .* none has a label pod .* their labels are container, id, namespace"),
    ):
        with holding(case) as prometheus, pytest.raises(StoreError, match=message):
            jobs_of_pods(prometheus, 0, 9000)
    with holding(elsewhere) as prometheus:
        with pytest.raises(StoreError, match="2 pods such as ctr-ps-0, ctr-worker-0"):
            jobs_of_pods(prometheus, 0, 9000, pod_name=r"(?P<job>\w+)_(?P<role>\w+)_(?P<index>\d+)")
        with pytest.raises(StoreError, match="in the namespace other"):
            jobs_of_pods(prometheus, 0, 9000, namespace="other")


def test_login_is_sent_only_to_its_own_host() -> None:
    requests: list[tuple[str, str | None]] = []
    cases = pair()

    def answer(path: str, query: dict[str, str], headers: dict[str, str]) -> Reply:
        requests.append((path, headers.get("Authorization")))
        if path.startswith("/old"):
            return Reply(302, b"", {"Location": f"/new/api/v1/query_range?{_query(query)}"})
        if path.startswith("/away"):
            return Reply(302, b"", {"Location": f"{elsewhere}/api/v1/query_range?{_query(query)}"})
        return Reply(200, selected(cases, query))

    def other_answer(path: str, query: dict[str, str], headers: dict[str, str]) -> Reply:
        requests.append(("other", headers.get("Authorization")))
        return Reply(200, selected(cases, query))

    with server(answer) as url, server(other_answer) as other_url:
        elsewhere = other_url.replace("127.0.0.1", "localhost")
        with_login = url.replace("//", "//al%40ice:s3%2Fcret@")
        for prefix in ("/prometheus/", "/old", "/away", "/prometheus/graph?g0.expr=up"):
            prometheus = Prometheus(with_login + prefix)
            check(*jobs_of_pods(prometheus, 0, 9000))
            assert "s3" not in prometheus.url
    basic = f"Basic {base64.b64encode(b'al@ice:s3/cret').decode()}"
    assert {login for path, login in requests if path != "other"} == {basic}
    assert {login for path, login in requests if path == "other"} == {None}
    assert "/prometheus/api/v1/query_range" in {path for path, _ in requests}


def _query(query: dict[str, str]) -> str:
    from urllib.parse import urlencode

    return urlencode(query)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(401, b"Unauthorized\n"), r"HTTP 401 \(Unauthorized\), Unauthorized. It needs a login"),
        (Reply(403, b"<html><title>Forbidden by WAF</title></html>"), "Forbidden by WAF. It needs a login"),
        (Reply(404, b"404 page not found\n"), "404 page not found. Check the URL: the API is expected"),
        (Reply(503, b"<html><h1>Unavailable"), "HTTP 503.*Check that it runs"),
        (Reply(400, b'{"status":"error","errorType":"bad_data","error":"parse error"}'), "refuses: parse error"),
        (Reply(200, b'{"status":"error","error":"out of order"}'), "refuses: out of order"),
        (Reply(422, b'{"status":"error","error":"query timed out"}'), "query timed out. Ask for less"),
        (Reply(200, b"<!DOCTYPE html><html><head><title>Sign in</title>"), r"web page \(Sign in\)"),
        (Reply(200, b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"pod":"ct'), "cut short"),
        (Reply(200, b"abc", {"Content-Length": "99"}), "cut short"),
        (Reply(200, gzip.compress(b"x" * 99)[:20]), "cut short"),
        (Reply(200, b""), "the answer is empty"),
        (Reply(200, b'{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}'), "is not a Prometheus"),
        (Reply(200, b'{"status":"success","isPartial":true,"data":{"result":[]}}'), "only a part of its data"),
        (Reply(200, b"[" * 100_000), "is not a Prometheus"),
        (Reply(400, b'{"error":"' + b"a b\\n" * 10_000 + b'"}'), r"refuses: a b a b .{280,310}…\. Check"),
        (Reply(200, gzip.compress(b" " * (257 << 20), 1)), "sends more than 256.0 MiB at once"),
        *((Reply(200, b'{"status":"success","data":{"result":[%b]}}' % one), "is not a Prometheus") for one in (
            b"null", b"3", b"[]", b"{}", b'{"metric":null,"values":[]}', b'{"metric":{"a":1},"values":[]}',
            b'{"metric":{}}',
            b'{"metric":{},"values":[[1]]}', b'{"metric":{},"values":[[1,"x"]]}', b'{"metric":{},"values":[null]}',
            b'{"metric":{},"values":[[1e300,"1"]]}', b'{"metric":{},"values":[[-1e15,"1"]]}',
            b'{"metric":{},"value":[1,[2]]}', b'{"metric":{},"values":{"1":2}}',
        )),
        *((Reply(200, body), "is not a Prometheus") for body in (
            b"null", b'"x"', b"{}", b'{"status":3}', b'{"status":"success"}', b'{"status":"success","data":[]}',
            b'{"status":"success","warnings":3,"data":{"result":[]}}', b'{"status":"success","data":{"result":{}}}',
        )),
    ],
)  # fmt: skip
def test_refusals_and_other_servers_give_one_sentence_without_the_password(reply: Reply, message: str) -> None:
    with server(lambda *_: reply) as url, pytest.raises(StoreError, match=message) as raised:
        jobs_of_pods(Prometheus(url.replace("//", "//alice:s3cret@")), 0, 9000)
    assert "s3cret" not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize(
    "url", ["http://", "ftp://host", "http://host:port", "http://alice:s3/cret@host", "http://[::1"]
)
def test_invalid_url_is_refused_without_the_password(url: str) -> None:
    with pytest.raises(StoreError, match="is not the URL of a Prometheus") as raised:
        Prometheus(url)
    assert "s3" not in str(raised.value)


def test_compressed_answers_vectors_histograms_and_warnings_are_read(caplog: pytest.LogCaptureFixture) -> None:
    series = [
        {"metric": {"pod": "a"}, "histograms": [[1, {"count": "3"}]]},
        {"metric": {"pod": "b"}, "value": [5, "7"]},
        {"metric": {"pod": "c"}, "values": [[1, "1e3"], [2, "NaN"]], "histograms": []},
    ]
    answer = {"status": "success", "data": {"resultType": "vector", "result": series}, "warnings": ["not a counter"]}
    body = gzip.compress(json.dumps(answer | {"infos": ["x"]}).encode())
    with server(lambda *_: Reply(200, body, {"Content-Encoding": "gzip"})) as url:
        prometheus = Prometheus(url)
        values = {item.labels["pod"]: item.values.tolist() for item in prometheus.series("x", 0, 9, 1)}
        prometheus.series("x", 0, 9, 1)
    assert values == {"a": [], "b": [7.0], "c": [1000.0]}
    assert caplog.text.count("Prometheus warns: not a counter") == 1


def test_no_series_may_be_null() -> None:
    with server(lambda *_: Reply(200, b'{"status":"success","data":{"resultType":"matrix","result":null}}')) as url:
        assert Prometheus(url).series("x", 0, 9, 1) == []


def test_range_that_is_too_large_is_queried_in_halves() -> None:
    cases = pair()
    asked_for = []

    def answer(path: str, asked: dict[str, str], headers: dict[str, str]) -> Reply:
        points = (float(asked["end"]) - float(asked["start"])) / float(asked["step"])
        asked_for.append(points)
        if points > 200:
            return Reply(422, b'{"status":"error","error":"query processing would load too many samples into memory"}')
        return Reply(200, selected(cases, asked))

    with server(answer) as url:
        check(*jobs_of_pods(Prometheus(url), 0, 24_000))
    assert max(asked_for) == 800


def test_port_without_tls_is_named() -> None:
    with (
        server(lambda *_: Reply(200, b"")) as url,
        pytest.raises(StoreError, match=r"does not speak TLS\. Write http://"),
    ):
        Prometheus(url.replace("http:", "https:")).instant("up")


@given(
    st.lists(st.floats(0, 100), min_size=2, max_size=30), st.lists(st.integers(0, 29), max_size=3), st.floats(0, 0.2)
)
def test_counter_rise_is_the_sum_of_steps_despite_restarts_and_copies(
    steps: list[float], restarts: list[int], jitter: float
) -> None:
    """Copies lag behind one another by less than half; restarts begin at 0, and one that is at half of what was there
    before it is requests cannot be distinguished from a copy."""
    total, counter, values, hidden = 0.0, 1000.0, [1000.0], False
    for number, step in enumerate(steps):
        hidden = hidden or (number in restarts and step >= counter / 2)
        counter = step if number in restarts else counter + step
        total += step
        values.append(counter)
    rise = Values(np.arange(len(values), dtype=float), np.array(values)).rise()
    assert hidden or math.isclose(rise, total, abs_tol=1e-6)
    level = np.full(20, 5000.0) - jitter * np.tile([0.0, 1.0], 10)
    assert Values(np.arange(20.0), level).rise() <= 10 * jitter + 1e-9


def test_owner_of_a_series_is_found_from_its_labels() -> None:
    assert owner_of({"id": "/"}) is None
    owner = owner_of({"exported_pod": "a", "pod": "b", "container": "c", "namespace": "d"})
    assert owner == ("d", "a", "")


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "head",
    [*ENDLESS_HEADS.values(), ENDLESS_HEADS["body"].replace(b"200 OK", b"503 Busy")],
    ids=["header", "body", "refusal"],
)
def test_answer_that_never_ends_is_given_up(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "_DEADLINE_S", 0.5)
    with endless(head) as url, pytest.raises(StoreError, match=r"does not answer: no complete answer within 0\.5 s"):
        Prometheus(url).instant("up")
