"""Faults of real API servers, against a stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sizewright.errors import InputError
from sizewright.executors import get_executor
from sizewright.executors.kubernetes.api import KubeApi
from sizewright.spec import Allocation, Executor, Job, Plan
from sizewright.spec.units import GIB
from tests.helpers.stand_in import StandIn, stand_in

JOB = Job(name="ctr")


@pytest.fixture
def server() -> Iterator[StandIn]:
    pytest.importorskip("kubernetes")
    with stand_in() as api_server:
        yield api_server


def of(server: StandIn, folder: Path, name: str, **options: Any) -> Executor:
    return get_executor(name, kubeconfig=server.kubeconfig(folder), **options)


def sizes(workers: int, batch: int = 512) -> Allocation:
    return Allocation.of(workers, 1, 1.0, 1.0, batch, GIB, GIB)


def plan(number: int, target: Allocation, current: Allocation | None = None) -> Plan:
    kind = "adjust" if current else "launch"
    return Plan(id=f"p-{number}", kind=kind, job=JOB, target=target, current=current, reason="x")  # type: ignore[arg-type]


def test_undeclared_field_is_refused_without_retry(server: StandIn, tmp_path: Path) -> None:
    message = (
        "failed to create typed patch object (default/ctr; kubeflow.org/v1, Kind=TFJob): .spec.x: field not declared"
    )
    server.fail("PATCH", "tfjobs", 500, times=9, message=message)
    pattern = r"refuses to apply TFJob default/ctr: \.spec\.x: field not declared\."
    with pytest.raises(InputError, match=pattern):
        of(server, tmp_path, "kubeflow").launch(plan(1, sizes(2)))
    assert sum(each.startswith("PATCH") for each in server.asked) == 1


def test_watch_of_a_silent_server_ends(server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of(server, tmp_path, "kubeflow").launch(plan(1, sizes(2)))
    api = KubeApi(kubeconfig=server.kubeconfig(tmp_path), timeout_s=1.0)
    options_used: dict[str, Any] = {}
    resource = api._resource("kubeflow.org/v1", "TFJob")
    get = resource.get

    def noted(**options: Any) -> Any:
        options_used.update(options)
        return get(**options)

    monkeypatch.setattr(resource, "get", noted, raising=False)
    assert len(list(api.watch("kubeflow.org/v1", "TFJob", "default", "ctr", 1.0))) == 1
    assert options_used["_request_timeout"] == (1.0, 2.0)


def test_adjust_of_a_job_being_deleted_is_refused(server: StandIn, tmp_path: Path) -> None:
    executor = of(server, tmp_path, "kuberay")
    handle = executor.launch(plan(1, sizes(2)))
    before = server.objects["RayJob", "default", "ctr"]["metadata"]
    before["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    with pytest.raises(InputError, match="is being deleted"):
        executor.adjust(handle, plan(2, sizes(3), sizes(2)))
    assert executor.launch(plan(1, sizes(2))) == handle
    assert server.objects["RayJob", "default", "ctr"]["metadata"]["uid"] != before["uid"]


@pytest.mark.parametrize("scaled", [False, True])
def test_change_beyond_a_scale_plan_restarts_the_job(server: StandIn, tmp_path: Path, scaled: bool) -> None:
    executor = of(server, tmp_path, "dlrover", version="0.4")
    handle, now = executor.launch(plan(1, sizes(2))), 2
    if scaled:
        now = 3
        executor.adjust(handle, plan(2, sizes(now), sizes(2)))
    change = plan(3, sizes(now, 256), sizes(now))
    executor.adjust(handle, change)
    worker = server.objects["ElasticJob", "default", "ctr"]["spec"]["replicaSpecs"]["worker"]
    assert worker["replicas"] == now
    assert worker["template"]["spec"]["containers"][0]["env"][0]["value"] == "256"
    with pytest.raises(InputError, match="changes the batch size"):
        executor.render(change)


def test_scale_plans_of_an_earlier_job_are_ignored(server: StandIn, tmp_path: Path) -> None:
    executor = of(server, tmp_path, "dlrover", version="0.4")
    handle = executor.launch(plan(1, sizes(2)))
    executor.adjust(handle, plan(2, sizes(3), sizes(2)))
    executor.stop(handle)
    assert executor.launch(plan(3, sizes(2))) == handle
    executor.adjust(handle, plan(4, sizes(4), sizes(2)))
