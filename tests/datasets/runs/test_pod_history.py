"""Import runs from a server that answers like Prometheus; the long tests use a real one."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sizewright.datasets.runs.pod_history import jobs_of_pods
from sizewright.datasets.runs.pod_metrics import CPU, MEMORY, MEMORY_LIMIT, OOM, OOM_KILLED, PERIOD, QUOTA, RESTARTS
from sizewright.datasets.runs.prometheus import Prometheus
from sizewright.errors import InputError, StoreError
from sizewright.spec import Job
from tests.helpers.small_server import Reply, server

MIB = 1 << 20
SERIES: dict[str, dict[tuple[str, str], list[tuple[float, float]]]] = {}


def answers(path: str, query: dict[str, str], headers: dict[str, str]) -> Reply:
    if "refuse" in query["query"]:
        return Reply(400, b'{"error": "no such thing."}')
    metrics = (CPU, MEMORY_LIMIT, MEMORY, QUOTA, PERIOD, OOM, RESTARTS, *OOM_KILLED)
    metric = next(name for name in metrics if name in query["query"])
    start, end = float(query["start"]), float(query["end"])
    all_series = [
        {
            "metric": {"pod": pod, "namespace": "train", "container": container},
            "values": [[at, str(value)] for at, value in values if start <= at <= end],
        }
        for (pod, container), values in SERIES.get(metric, {}).items()
    ]
    result = [series for series in all_series if series["values"]]
    return Reply(200, json.dumps({"status": "success", "data": {"result": result}}).encode())


@pytest.fixture
def prometheus() -> Iterator[Prometheus]:
    SERIES.clear()
    with server(answers) as url:
        yield Prometheus(f"{url}/")


def pod(name: str, at: range, cores: float, peak: float, limit: float = 512 * MIB, quota: float = 50_000) -> None:
    """Return the series of a replica that ran at these times."""
    key = (name, "main")
    SERIES.setdefault(CPU, {})[key] = [(t, cores * (t - at[0])) for t in at]
    SERIES.setdefault(MEMORY, {})[key] = [(t, peak * (1 + i) / len(at)) for i, t in enumerate(at)]
    SERIES.setdefault(MEMORY_LIMIT, {})[key] = [(t, limit) for t in at]
    SERIES.setdefault(QUOTA, {})[key] = [(t, quota) for t in at]
    SERIES.setdefault(PERIOD, {})[key] = [(t, 100_000) for t in at]
    SERIES.setdefault(OOM, {})[key] = [(t, 0) for t in at]


def test_job_is_assembled_from_its_pods(prometheus: Prometheus) -> None:
    pod("ctr-worker-0", range(1000, 1301, 30), 0.4, 300 * MIB)
    pod("ctr-worker-1", range(1120, 1301, 30), 0.2, 200 * MIB)
    pod("ctr-ps-0", range(1000, 1301, 30), 0.1, 400 * MIB)
    pod("unrelated-5f7c", range(1000, 1301, 30), 1.0, MIB)
    (run,) = jobs_of_pods(prometheus, 0, 5000)
    assert (run.name, run.source, run.executor, run.outcome.status) == ("ctr", "prometheus", "kubernetes", "finished")
    segments = [
        (s.at_s, s.duration_s, s.allocation.replicas("worker"), s.allocation.replicas("ps")) for s in run.stretches
    ]
    assert segments == [(0, 120, 1, 1), (120, 180, 2, 1)]
    (group,) = run.stretches[1].allocation.worker
    assert (group.cpu, group.memory_bytes) == (0.5, 512 * MIB)
    assert run.worker.memory_peak_bytes == 300 * MIB
    assert run.worker.cpu_used == pytest.approx((0.4 * 300 + 0.2 * 180) / 480)
    assert run.ps.memory_peak_bytes == 400 * MIB
    assert run.throughput is None
    assert run.started_at is not None
    assert run.started_at.timestamp() == 1000


def test_nightly_runs_of_one_name_are_separate_and_keep_their_ids(prometheus: Prometheus) -> None:
    for name in ("ctr-worker-0", "ctr-ps-0"):
        for metric in (CPU, MEMORY, MEMORY_LIMIT, QUOTA, PERIOD, OOM):
            times = [*range(990, 1291, 30), *range(87_390, 87_991, 30)]
            SERIES.setdefault(metric, {})[(name, "main")] = [(t, 100.0) for t in times]
    first, second = jobs_of_pods(prometheus, 0, 100_000)
    assert (first.outcome.duration_s, second.outcome.duration_s) == (300, 600)
    assert first.id != second.id
    assert [run.id for run in jobs_of_pods(prometheus, 17, 99_000)] == [first.id, second.id]


def test_running_job_is_not_finished(prometheus: Prometheus) -> None:
    pod("old-worker-0", range(1000, 1301, 30), 0.4, MIB)
    pod("new-worker-0", range(1000, 1999, 30), 0.4, MIB)
    assert [run.name for run in jobs_of_pods(prometheus, 0, 2000)] == ["old"]


def test_job_that_ran_out_of_memory_has_failed(prometheus: Prometheus) -> None:
    pod("ctr-worker-0", range(1000, 1301, 30), 0.4, MIB)
    pod("ctr-ps-0", range(1000, 1301, 30), 0.1, MIB)
    SERIES[OOM][("ctr-ps-0", "main")][-1] = (1300, 1)
    (run,) = jobs_of_pods(prometheus, 0, 5000)
    assert run.ran_out_of_memory
    assert run.outcome.status == "failed"
    assert "ctr-ps-0 ran out of memory" in run.outcome.message


def test_counter_resets_and_missing_quotas_are_handled(prometheus: Prometheus) -> None:
    pod("ctr-worker-0", range(1000, 1301, 30), 0.4, MIB, quota=-1, limit=2.0**63)
    values = SERIES[CPU][("ctr-worker-0", "main")]
    SERIES[CPU][("ctr-worker-0", "main")] = [(t, v if t < 1150 else v - 60) for t, v in values]
    (run,) = jobs_of_pods(prometheus, 0, 5000)
    (group,) = run.stretches[0].allocation.worker
    assert group.memory_bytes == 0
    assert group.cpu == pytest.approx(run.worker.cpu_used or 0, abs=0.001)
    assert 0.3 < group.cpu <= 0.4


def test_containers_of_one_pod_are_summed(prometheus: Prometheus) -> None:
    pod("ctr-worker-0", range(1000, 1301, 30), 0.4, 100 * MIB)
    for by_container in SERIES.values():
        by_container[("ctr-worker-0", "sidecar")] = list(by_container[("ctr-worker-0", "main")])
    (run,) = jobs_of_pods(prometheus, 0, 5000)
    assert run.worker.memory_peak_bytes == 200 * MIB
    assert run.worker.cpu_used == pytest.approx(0.8)


def test_job_description_and_custom_names_are_used(prometheus: Prometheus) -> None:
    pod("train_ctr.worker.7", range(1000, 1301, 30), 0.4, MIB)
    named = r"train_(?P<job>\w+)\.(?P<role>\w+)\.(?P<index>\d+)"
    (run,) = jobs_of_pods(prometheus, 0, 5000, pod_name=named, job=Job(name="ctr"))
    assert run.key == Job(name="ctr").hash
    assert run.stretches[0].allocation.batch_size == 512
    with pytest.raises(StoreError, match=r"1 series .* of 1 pod such as train_ctr.worker.7, .* Pass --pod-name"):
        jobs_of_pods(prometheus, 0, 5000)


def test_run_that_began_before_the_window_is_left_out(prometheus: Prometheus, caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise each import at another time would find another run."""
    pod("ctr-worker-0", range(990, 2001, 30), 0.4, MIB)
    assert [len(jobs_of_pods(prometheus, start, 5000)) for start in (0, 960)] == [1, 1]
    for start in (990, 1500):
        with pytest.raises(StoreError, match=r"1 that began earlier, such as ctr\. Look further back"):
            jobs_of_pods(prometheus, start, 5000)
    pod("late-worker-0", range(3000, 3301, 30), 0.4, MIB)
    assert [run.name for run in jobs_of_pods(prometheus, 1500, 5000)] == ["late"]
    assert "look further back" in caplog.text


def test_long_windows_are_queried_in_parts(prometheus: Prometheus) -> None:
    pod("ctr-worker-0", range(1, 50_001, 1), 0.4, MIB)
    (run,) = jobs_of_pods(prometheus, 0, 60_000, step_s=1)
    assert run.stretches[0].duration_s == 49_999


def test_errors_of_the_server_are_one_sentence(prometheus: Prometheus) -> None:
    with pytest.raises(StoreError, match="refuses: no such thing"):
        jobs_of_pods(prometheus, 0, 1, namespace="refuse")
    with pytest.raises(StoreError, match="does not answer"):
        jobs_of_pods(Prometheus("http://127.0.0.1:9"), 0, 1)
    with pytest.raises(StoreError, match="is not the URL"):
        Prometheus("prometheus:9090")
    with pytest.raises(InputError, match="lacks the groups index, role"):
        jobs_of_pods(prometheus, 0, 1, pod_name="(?P<job>.+)")
    with pytest.raises(InputError, match="is not a regular expression"):
        jobs_of_pods(prometheus, 0, 1, pod_name="(")


@pytest.mark.parametrize("body", ["{}", "[]", '{"data": {"result": [{"metric": {}}]}}', "no json", "3"])
def test_server_that_is_not_prometheus_is_refused(body: str) -> None:
    with server(lambda *_: Reply(200, body.encode())) as url, pytest.raises(StoreError, match="Check the URL"):
        jobs_of_pods(Prometheus(url), 0, 1)
    with pytest.raises(StoreError, match="does not answer"):
        jobs_of_pods(Prometheus("http://ho st:9"), 0, 1)


def test_cores_without_series_are_unknown(prometheus: Prometheus, caplog: pytest.LogCaptureFixture) -> None:
    """Memory and the outcome are kept; the sizes stay empty."""
    pod("ctr-worker-0", range(1000, 1301, 30), 0.4, 300 * MIB)
    pod("ctr-ps-0", range(1000, 1301, 30), 0.1, 400 * MIB)
    for metric in (CPU, QUOTA):
        del SERIES[metric]["ctr-ps-0", "main"]
    (run,) = jobs_of_pods(prometheus, 0, 5000)
    assert run.stretches == ()
    assert (run.worker.memory_peak_bytes, run.ps.memory_peak_bytes) == (300 * MIB, 400 * MIB)
    assert (run.worker.cpu_used, run.ps.cpu_used) == (pytest.approx(0.4), None)
    assert "The cores of 1 run, such as ctr, are unknown" in caplog.text
