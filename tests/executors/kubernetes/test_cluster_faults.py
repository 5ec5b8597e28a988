"""Faults of real API servers, against a stand-in."""

from __future__ import annotations

import logging
import re
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sizewright.errors import EngineError, ForbiddenError, InputError
from sizewright.executors import get_executor
from sizewright.executors.kubernetes import cluster_executor
from sizewright.executors.kubernetes.api import KubeApi, NotServedError
from sizewright.formatting import GIB
from sizewright.spec import Allocation, Executor, Handle, Job, Plan
from tests.helpers.small_server import ENDLESS_HEADS, endless
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


@pytest.mark.timeout(30)
@pytest.mark.parametrize("head", ENDLESS_HEADS.values(), ids=ENDLESS_HEADS)
def test_answer_that_never_ends_is_given_up(server: StandIn, tmp_path: Path, head: bytes) -> None:
    api = KubeApi(kubeconfig=server.kubeconfig(tmp_path), timeout_s=0.3, sleep=lambda _: None)
    api.get("kubeflow.org/v1", "TFJob", "default", "ctr")
    with endless(head) as url:
        api._dynamic.configuration.host = url
        with pytest.raises(EngineError, match=r"did not answer .* no complete answer within 0\.9 s"):
            api.get("kubeflow.org/v1", "TFJob", "default", "ctr")
        assert list(api.watch("kubeflow.org/v1", "TFJob", "default", "ctr", 1.0)) == []


def test_adjust_of_a_job_being_deleted_is_refused(server: StandIn, tmp_path: Path) -> None:
    executor = of(server, tmp_path, "kuberay")
    handle = executor.launch(plan(1, sizes(2)))
    before = server.objects["RayJob", "default", "ctr"]["metadata"]
    before["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    with pytest.raises(InputError, match="is being deleted"):
        executor.adjust(handle, plan(2, sizes(3), sizes(2)))
    threading.Timer(0.3, server.delete, ["RayJob", "default", "ctr"]).start()  # its last finalizer is removed
    assert executor.launch(plan(1, sizes(2))) == handle
    assert server.objects["RayJob", "default", "ctr"]["metadata"]["uid"] != before["uid"]
    assert not any(each.startswith("DELETE") for each in server.asked), "it was being deleted already"


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


@pytest.fixture
def launched(server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Executor, Handle]:
    """Return an executor that does not wait before it repeats a request, and the handle of a RayJob."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    api = KubeApi(kubeconfig=server.kubeconfig(tmp_path), timeout_s=0.5, sleep=lambda _: None)
    executor = get_executor("kuberay", api=api)
    return executor, executor.launch(plan(1, sizes(2)))


def restart(executor: Executor, handle: Handle) -> None:
    executor.adjust(handle, plan(2, sizes(3), sizes(2)))


def workers(server: StandIn) -> int:
    groups = server.objects["RayJob", "default", "ctr"]["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    return int(next(each["replicas"] for each in groups if each["groupName"] == "worker"))


@pytest.mark.parametrize("part", ["rayjobs/ctr", "pods"])
def test_restart_continues_when_the_server_fails_while_it_waits(
    server: StandIn, launched: tuple[Executor, Handle], monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    delete = server.delete

    def delete_and_fail(*key: str) -> Any:
        server.fail("GET", part, 503, times=9)  # two requests with all their repetitions, and one
        return delete(*key)

    monkeypatch.setattr(server, "delete", delete_and_fail)
    restart(*launched)
    assert workers(server) == 3


def test_restore_continues_when_the_server_fails_for_a_while(
    server: StandIn, launched: tuple[Executor, Handle], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.fail("PATCH", "rayjobs/ctr", 500, times=10, after=1)  # the change, and the first two tries to restore it
    with pytest.raises(EngineError, match="was started again as it was before"):
        restart(*launched)
    assert workers(server) == 2


def test_job_that_cannot_be_restored_is_named_with_both_reasons_and_its_file(
    server: StandIn, launched: tuple[Executor, Handle], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_executor, "_RESTORE_TIMEOUT_S", 0.0)
    server.fail("PATCH", "rayjobs/ctr", 422, times=1, after=1)
    server.fail("PATCH", "rayjobs/ctr", 503, times=99, after=1)
    with pytest.raises(EngineError) as caught:
        restart(*launched)
    message, remedy = caught.value.message, caught.value.remedy
    assert re.search(
        r"^RayJob default/ctr may be gone: its change failed \(.*422\), and starting it again failed", message
    )
    path = Path(message.partition("Its object is in ")[2].rstrip("."))
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["metadata"]["name"] == "ctr"
    assert remedy == (
        "Wait until `kubectl get rayjob.ray.io ctr -n default` finds nothing, then run: "
        f"kubectl apply --server-side --field-manager=sizewright -f {path}"
    )


def test_interrupted_restart_names_the_copy_before_it_restores_the_job(
    server: StandIn,
    launched: tuple[Executor, Handle],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    delete = KubeApi.delete

    def delete_and_interrupt(api: KubeApi, *key: str) -> None:
        delete(api, *key)
        raise KeyboardInterrupt

    monkeypatch.setattr(KubeApi, "delete", delete_and_interrupt)
    with caplog.at_level(logging.WARNING), pytest.raises(KeyboardInterrupt):
        restart(*launched)
    restoring, restored = [record.message for record in caplog.records]
    assert restoring.startswith("Restoring RayJob default/ctr; its object is in ")
    assert "was started again as it was before" in restored
    assert not Path(restoring.partition(" is in ")[2].rstrip(".")).exists()
    assert workers(server) == 2


def test_interrupt_stays_one_when_the_job_cannot_be_restored(
    server: StandIn,
    launched: tuple[Executor, Handle],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(cluster_executor, "_RESTORE_TIMEOUT_S", 0.0)
    monkeypatch.setattr(cluster_executor.ClusterExecutor, "_await_pods", interrupt)
    server.fail("PATCH", "rayjobs/ctr", 503, times=99, after=1)
    with caplog.at_level(logging.WARNING), pytest.raises(KeyboardInterrupt, match="its change was interrupted"):
        restart(*launched)
    path = Path(caplog.messages[0].partition(" is in ")[2].rstrip("."))
    assert f"Its object is in {path}" in caplog.messages[-1]
    assert path.exists()


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def test_restart_is_refused_before_the_deletion_when_no_copy_can_be_kept(
    server: StandIn, launched: tuple[Executor, Handle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(InputError, match="Cannot keep a copy of default/ctr while it is changed: FileNotFoundError"):
        restart(*launched)
    assert not any(each.startswith("DELETE") for each in server.asked)


def test_restart_is_refused_before_the_deletion_when_pods_may_not_be_listed(
    server: StandIn, launched: tuple[Executor, Handle]
) -> None:
    executor, handle = launched
    server.fail("GET", "/pods", 403, times=99)
    change = plan(2, sizes(3), sizes(2))
    with pytest.raises(ForbiddenError, match="Not allowed to list Pods"):
        executor.difference(change)  # type: ignore[attr-defined]
    with pytest.raises(ForbiddenError, match="Not allowed to list Pods"):
        executor.adjust(handle, change)
    assert not any(each.startswith("DELETE") for each in server.asked)


def test_job_that_somebody_created_again_is_not_deleted(
    server: StandIn, launched: tuple[Executor, Handle], monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = server.delete

    def replaced(kind: str, namespace: str, name: str, uid: str = "", version: str = "") -> Any:
        server.objects[kind, namespace, name]["metadata"]["uid"] = "another"
        return delete(kind, namespace, name, uid, version)

    monkeypatch.setattr(server, "delete", replaced)
    with pytest.raises(InputError, match="the UID in the precondition"):
        restart(*launched)
    assert workers(server) == 2
    assert sum(each.startswith("DELETE") for each in server.asked) == 1


def test_deletion_is_over_when_somebody_has_created_the_job_again(
    server: StandIn, launched: tuple[Executor, Handle], monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = server.delete

    def deleted_and_created(kind: str, namespace: str, name: str, uid: str = "", version: str = "") -> Any:
        job_object = server.objects[kind, namespace, name]
        answer = delete(kind, namespace, name, uid, version)
        server.objects[kind, namespace, name] = job_object | {"metadata": job_object["metadata"] | {"uid": "another"}}
        return answer

    monkeypatch.setattr(server, "delete", deleted_and_created)
    monkeypatch.setattr(cluster_executor, "_DELETE_TIMEOUT_S", 1.0)
    executor, handle = launched
    assert executor.stop(handle).status == "stopped"


def test_creation_is_checked_under_a_name_that_no_job_has(
    server: StandIn, launched: tuple[Executor, Handle], tmp_path: Path
) -> None:
    restart(*launched)
    (checked,) = (each for each in server.asked if "dryRun=All" in each)
    name = checked.partition("rayjobs/")[2].partition("?")[0]
    assert re.fullmatch(r"ctr-[0-9a-f]{8}", name)


def test_list_of_a_forbidden_kind_is_an_error_and_of_a_missing_kind_empty(server: StandIn, tmp_path: Path) -> None:
    api = KubeApi(kubeconfig=server.kubeconfig(tmp_path), sleep=lambda _: None)
    with pytest.raises(NotServedError):
        api.get("example.com/v1", "Nope", "default", "a")
    assert api.list("example.com/v1", "Nope", "default", "a=b") == []
    server.fail("GET", "/api/v1", 403, times=1)
    with pytest.raises(ForbiddenError):
        api.list("v1", "Pod", "default", "a=b")


@pytest.mark.parametrize(("method", "may_have_changed"), [("GET", False), ("DELETE", True)])
def test_only_a_lost_change_may_have_been_carried_out(
    server: StandIn,
    launched: tuple[Executor, Handle],
    method: str,
    may_have_changed: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    executor, handle = launched
    server.fail(method, "rayjobs", 0, times=99)
    with caplog.at_level(logging.WARNING), pytest.raises(EngineError, match="did not answer") as caught:
        executor.stop(handle)
    assert ("may have been carried out" in caught.value.remedy) is may_have_changed
    assert caplog.messages == ["The API server does not answer; trying again."]


def test_conflict_that_is_no_conflict_of_owners_is_retried(server: StandIn, tmp_path: Path) -> None:
    server.fail("PATCH", "rayjobs", 409, times=1, message="the object has been modified")
    of(server, tmp_path, "kuberay").launch(plan(1, sizes(2)))
    assert workers(server) == 2


def test_cool_down_of_a_plan_that_cannot_be_read_is_an_error(
    server: StandIn, launched: tuple[Executor, Handle]
) -> None:
    server.objects["RayJob", "default", "ctr"]["metadata"]["annotations"]["sizewright/plan-record"] = "{"
    with pytest.raises(
        InputError, match=r"Cannot tell whether ctr is in the cool-down.*annotation sizewright/plan-record"
    ):
        restart(*launched)


def test_handle_that_cannot_be_used_is_refused_with_its_cause(launched: tuple[Executor, Handle]) -> None:
    executor, handle = launched
    with pytest.raises(InputError, match="of executor 'slurm' is not a handle of kuberay"):
        executor.observe(handle.model_copy(update={"executor": "slurm"}))
    with pytest.raises(InputError, match="The cluster has no RayJob default/other"):
        executor.observe(handle.model_copy(update={"id": "default/other"}))
    executor.stop(handle)
    with pytest.raises(InputError, match="RayJob default/ctr was stopped"):
        executor.observe(handle)
