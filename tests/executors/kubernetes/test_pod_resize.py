"""Changes of cores and memory on a server that resizes running pods; the server and its nodes are a stand-in."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sizewright.errors import EngineError, ForbiddenError, InputError
from sizewright.executors import get_executor
from sizewright.executors.kubernetes import cluster_executor, pod_resize
from sizewright.executors.kubernetes.cluster_executor import ClusterExecutor
from sizewright.runtime.guardrail_executor import GuardrailExecutor
from sizewright.spec import Allocation, Handle, Job, Plan, Rails
from tests.helpers.stand_in import Object, StandIn, stand_in

pytest.importorskip("kubernetes")

GIB = 1 << 30
JOB = Job(name="ctr")
RESIZING = ["jobset", "trainjob", "kubeflow", "pytorchjob", "volcano"]
WITHOUT_PS = ("trainjob", "pytorchjob")
KINDS = {"jobset": "JobSet", "trainjob": "TrainJob", "kubeflow": "TFJob", "pytorchjob": "PyTorchJob", "volcano": "Job"}
Make = Callable[..., ClusterExecutor]


@pytest.fixture
def server() -> Iterator[StandIn]:
    with stand_in() as api_server:
        api_server.resizes = True
        yield api_server


@pytest.fixture
def make(server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    from sizewright.executors.kubernetes.api import KubeApi

    monkeypatch.setattr(pod_resize, "_POLL_S", 0.01)

    def make_executor(name: str) -> ClusterExecutor:
        executor = get_executor(name, api=KubeApi(kubeconfig=server.kubeconfig(tmp_path), sleep=lambda _: None))
        assert isinstance(executor, ClusterExecutor)
        return executor

    return make_executor


def of(name: str, workers: int, cpu: float, memory_gib: float) -> Allocation:
    ps = 0 if name in WITHOUT_PS else 1
    return Allocation.of(workers, ps, cpu, cpu, 512, int(memory_gib * GIB), int(memory_gib * GIB))


def launched(executor: ClusterExecutor, job: Job = JOB) -> Handle:
    plan = Plan(id="p-1", kind="launch", job=job, target=of(executor.name, 2, 1.0, 1.0), reason="first")
    return executor.launch(plan)


def adjust(before: Allocation, after: Allocation, number: int = 2, job: Job = JOB) -> Plan:
    return Plan(id=f"p-{number}", kind="adjust", job=job, current=before, target=after, reason="more")


def uids(server: StandIn) -> set[str]:
    return {pod["metadata"]["uid"] for pod in server.pods.values()}


def resources(server: StandIn) -> list[Any]:
    return [copy.deepcopy(pod["spec"]["containers"][0]["resources"]) for pod in server.pods.values()]


@pytest.mark.parametrize("name", RESIZING)
def test_change_of_cores_and_memory_keeps_the_pods(server: StandIn, make: Make, name: str) -> None:
    executor = make(name)
    handle, pods = launched(executor), uids(server)
    before, after = of(name, 2, 1.0, 1.0), of(name, 2, 1.5, 3.0)
    told = executor.difference(adjust(before, after))
    assert f"{2 if name in WITHOUT_PS else 3} running pods are resized: requests cpu 1" in told
    executor.adjust(handle, adjust(before, after))
    assert uids(server) == pods
    assert executor.observe(handle).allocation == after
    asked = len(server.asked)
    executor.adjust(handle, adjust(before, after))
    assert not any(line.startswith("PATCH") for line in server.asked[asked:]), "the same plan changes nothing"


@pytest.mark.parametrize("name", RESIZING)
def test_changes_after_a_resize(server: StandIn, make: Make, name: str) -> None:
    """A second resize starts from the first one; a change of counts gives all replicas the resized size."""
    executor = make(name)
    handle, pods = launched(executor), uids(server)
    sizes = [of(name, 2, 1.0, 1.0), of(name, 2, 1.5, 3.0), of(name, 2, 0.5, 2.0), of(name, 3, 0.5, 2.0)]
    for number, (before, after) in enumerate(itertools.pairwise(sizes[:3]), 2):
        executor.adjust(handle, adjust(before, after, number))
    assert uids(server) == pods
    with pytest.raises(InputError, match="was made for"):
        executor.adjust(handle, adjust(sizes[0], sizes[1], 8))
    executor.adjust(handle, adjust(sizes[2], sizes[3], 9))
    assert executor.observe(handle).allocation == sizes[3]
    assert bool(uids(server) & pods) == (name == "kubeflow"), "its operator may give new pods another size"


@pytest.mark.parametrize("name", RESIZING)
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("Infeasible", "can never give it this size: Node didn't have enough resource: cpu."),
        ("Deferred", "still has no room for its new size: Node didn't have enough resource: cpu."),
        ("InProgress", "has not resized it."),
        ("later", "has not looked at its new size."),
    ],
)
def test_job_is_restarted_where_a_node_does_not_resize(
    server: StandIn,
    make: Make,
    name: str,
    answer: str,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(cluster_executor, "_RESIZE_TIMEOUT_S", 0.05)
    server.node = lambda pod: answer if pod["metadata"]["name"].endswith("0") else ""
    executor = make(name)
    handle, pods = launched(executor), uids(server)
    after = of(name, 2, 1.5, 3.0)
    executor.adjust(handle, adjust(of(name, 2, 1.0, 1.0), after))
    assert not uids(server) & pods
    assert executor.observe(handle).allocation == after
    assert reason in caplog.text
    assert "is restarted instead" in caplog.text


def test_no_job_is_restarted_where_guardrails_forbid_it(
    server: StandIn, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_executor, "_RESIZE_TIMEOUT_S", 0.05)
    executor = GuardrailExecutor(make("jobset"), rails=Rails(restarts=False))
    handle = executor.launch(Plan(id="p-1", kind="launch", job=JOB, target=of("jobset", 2, 1.0, 1.0), reason="first"))
    pods, earlier = uids(server), resources(server)
    server.node = lambda pod: "Deferred"
    with pytest.raises(EngineError, match="still has no room for its new size"):
        executor.adjust(handle, adjust(of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 1.0)))
    more = adjust(of("jobset", 2, 1.0, 1.0), of("jobset", 3, 1.0, 1.0))
    for refused in (executor.adjust, lambda _, plan: executor.difference(plan)):
        with pytest.raises(InputError, match="would restart JobSet default/ctr, which is not allowed"):
            refused(handle, more)
    assert (uids(server), resources(server)) == (pods, earlier)


def test_deferred_resize_is_awaited(server: StandIn, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = make("jobset")
    handle, pods = launched(executor), uids(server)
    server.node = lambda pod: "Deferred"
    waited: list[float] = []

    def room_after_a_while(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            server.node = lambda pod: ""
            for pod in server.pods.values():
                server.settle(pod)

    monkeypatch.setattr(pod_resize, "sleep", room_after_a_while)
    executor.adjust(handle, adjust(of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 1.0)))
    assert len(waited) == 3
    assert uids(server) == pods


def test_pods_get_their_earlier_sizes_back_after_an_interrupt(
    server: StandIn, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = make("jobset")
    handle = launched(executor)
    earlier = resources(server)
    server.node = lambda pod: "Deferred"

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pod_resize, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        executor.adjust(handle, adjust(of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 1.0)))
    assert resources(server) == earlier


def test_sizes_stay_when_the_server_fails_in_the_middle(server: StandIn, make: Make) -> None:
    executor = make("jobset")
    handle, pods = launched(executor), uids(server)
    earlier = resources(server)
    server.fail("PATCH", "/resize", 500, times=4, after=4)  # three dry runs, and the first pod
    with pytest.raises(EngineError, match="failed to resize Pod"):
        executor.adjust(handle, adjust(of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 1.0)))
    assert resources(server) == earlier
    assert uids(server) == pods


@pytest.mark.parametrize(
    ("status", "message"),
    [(403, 'cannot patch resource "pods/resize" in API group ""'), (422, "QOS Class may not change")],
)
def test_job_is_restarted_where_the_server_does_not_resize(
    server: StandIn, make: Make, status: int, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    executor = make("jobset")
    handle, pods = launched(executor), uids(server)
    server.fail("PATCH", "/resize", status, message=message)
    told = executor.difference(adjust(of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 1.0)))
    assert "The job is deleted and restarted." in told
    server.fail("PATCH", "/resize", status, message=message)
    executor.adjust(handle, adjust(of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 1.0)))
    assert not uids(server) & pods
    assert message in caplog.text


def test_size_that_a_quota_forbids_restarts_nothing(server: StandIn, make: Make) -> None:
    """New pods of that size would be refused, too, and the job would have none."""
    executor = make("jobset")
    handle, pods, earlier = launched(executor), uids(server), resources(server)
    plan = adjust(of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 1.0))
    for change in (executor.adjust, lambda _, plan: executor.difference(plan)):
        server.fail("PATCH", "/resize", 403, after=2, message="exceeded quota: team, requested: cpu=2")
        with pytest.raises(ForbiddenError, match="exceeded quota: team"):
            change(handle, plan)
    assert (uids(server), resources(server)) == (pods, earlier)


def test_pods_that_shrink_are_resized_first(server: StandIn, make: Make) -> None:
    executor = make("jobset")
    handle = launched(executor)
    after = Allocation.of(2, 1, 2.0, 0.5, 512, GIB, GIB)
    executor.adjust(handle, adjust(of("jobset", 2, 1.0, 1.0), after))
    asked = [line for line in server.asked if line.startswith("PATCH") and "/resize" in line and "dryRun" not in line]
    assert ["-ps-" in line for line in asked] == [True, False, False]


@pytest.mark.parametrize("end", ["finished", "deleted", "another"])
def test_job_that_ends_or_is_deleted_meanwhile_is_not_started_again(
    server: StandIn, make: Make, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(cluster_executor, "_RESIZE_TIMEOUT_S", 0.3)
    executor = make("jobset")
    handle = launched(executor)
    server.node = lambda pod: "Deferred"

    def meanwhile(_: float) -> None:
        if end == "finished":
            for pod in server.pods.values():
                pod["status"]["phase"] = "Succeeded"
            server.set_status("JobSet", "ctr", {"conditions": [{"type": "Completed", "status": "True"}]})
        else:
            server.delete("JobSet", "default", "ctr")
        if end == "another":
            launched(make("jobset"))

    monkeypatch.setattr(pod_resize, "sleep", meanwhile)
    with pytest.raises(InputError, match="has ended" if end == "finished" else "was deleted meanwhile"):
        executor.adjust(handle, adjust(of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 1.0)))
    assert (("JobSet", "default", "ctr") in server.objects) == (end != "deleted")


def test_pods_shrink_back_where_the_object_cannot_be_annotated(server: StandIn, make: Make) -> None:
    executor = make("jobset")
    handle, pods, earlier = launched(executor), uids(server), resources(server)
    server.fail("PATCH", "/jobsets/ctr", 422, message="no")
    plan = adjust(of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 1.0))
    with pytest.raises(InputError, match="refuses to annotate JobSet default/ctr: no"):
        executor.adjust(handle, plan)
    assert (uids(server), resources(server)) == (pods, earlier)
    server.fail("PATCH", "/jobsets/ctr", 422)
    server.fail("PATCH", "/ctr-ps-0-0/resize", 422, after=2)
    with pytest.raises(InputError, match="Pods that may keep the new size: ctr-ps-0-0"):
        executor.adjust(handle, plan)


def test_pods_keep_their_sizes_where_the_answer_to_the_last_request_is_lost(server: StandIn, make: Make) -> None:
    """The object may have the new plan. The same plan is carried out again."""
    executor = make("jobset")
    handle, pods, earlier = launched(executor), uids(server), resources(server)
    plan = adjust(of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 1.0))
    server.fail("PATCH", "/jobsets/ctr", 500, times=4)
    with pytest.raises(EngineError, match="failed to annotate JobSet"):
        executor.adjust(handle, plan)
    assert earlier != resources(server)
    executor.adjust(handle, plan)
    assert server.objects["JobSet", "default", "ctr"]["metadata"]["annotations"]["sizewright/plan"] == "p-2"
    assert uids(server) == pods


@pytest.mark.parametrize("error", [EngineError("The server is silent."), KeyboardInterrupt()])
def test_silent_server_is_asked_once_to_undo_resizes(
    server: StandIn,
    make: Make,
    error: BaseException,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    executor = make("jobset")
    handle = launched(executor)
    server.node = lambda pod: "Deferred"

    def end(_: float) -> None:
        server.asked.clear()
        server.fail("PATCH", "/resize", 500, times=4)
        raise error

    monkeypatch.setattr(pod_resize, "sleep", end)
    with pytest.raises(type(error)) as raised:
        executor.adjust(handle, adjust(of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 1.0)))
    told = str(raised.value) if isinstance(error, EngineError) else caplog.text
    assert "Pods that may keep the new size: ctr-ps-0-0, ctr-worker-0-1, ctr-worker-0-0." in told
    assert sum("/resize" in line for line in server.asked) == 4, "one request, and its repetitions"


def test_pod_of_the_same_name_is_not_resized(server: StandIn, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = make("jobset")
    handle, earlier = launched(executor), resources(server)
    server.node = lambda pod: "Deferred"

    def replaced(_: float) -> None:
        server.pods["ctr-worker-0-0"]["metadata"]["uid"] = "another"

    monkeypatch.setattr(pod_resize, "sleep", replaced)
    with pytest.raises(InputError, match="ctr-worker-0-0 has ended or was deleted"):
        executor.adjust(handle, adjust(of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 1.0)))
    assert sum(after == before for after, before in zip(resources(server), earlier, strict=True)) == 2


def test_pod_that_is_missing_for_a_moment_restarts_nothing(server: StandIn, make: Make) -> None:
    executor = make("jobset")
    handle = launched(executor)
    sizes = of("jobset", 2, 2.0, 1.0)
    executor.adjust(handle, adjust(of("jobset", 2, 1.0, 1.0), sizes))
    pods = uids(server)
    del server.pods["ctr-worker-0-1"]
    seen = executor.observe(handle).allocation
    assert seen is not None
    with pytest.raises(InputError, match="was made for"):
        executor.adjust(handle, adjust(seen, sizes, 3))
    assert uids(server) < pods


def test_resized_job_is_changed_without_its_logs(server: StandIn, make: Make) -> None:
    """The user may list pods, and may not read their logs."""
    executor = make("jobset")
    handle, pods = launched(executor), uids(server)
    sizes = [of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 1.0), of("jobset", 2, 1.5, 1.0)]
    server.fail("GET", "/log", 403, times=100)
    for number, (before, after) in enumerate(itertools.pairwise(sizes), 2):
        executor.adjust(handle, adjust(before, after, number))
    assert uids(server) == pods


def test_job_that_has_its_first_sizes_again_scales_in_place(server: StandIn, make: Make) -> None:
    executor = make("volcano")
    handle, pods = launched(executor), uids(server)
    server.objects["Job", "default", "ctr"]["metadata"].setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = "teams"
    sizes = [of("volcano", 2, *size) for size in ((1.0, 1.0), (0.5, 1.0), (1.0, 1.0))]
    for number, (before, after) in enumerate(itertools.pairwise([*sizes, of("volcano", 3, 1.0, 1.0)]), 2):
        executor.adjust(handle, adjust(before, after, number))
        annotations = server.objects["Job", "default", "ctr"]["metadata"]["annotations"]
        assert ("sizewright/resized" in annotations) == (number == 2)
    assert uids(server) > pods


def test_pods_that_the_platform_replaced_are_resized_again(server: StandIn, make: Make) -> None:
    """They have the size of the start. A plan made from what runs is carried out, also to the size of the last plan."""
    executor = make("jobset")
    handle = launched(executor)
    before, after = of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 1.0)
    executor.adjust(handle, adjust(before, after))
    server.pods.clear()
    server.reconcile()
    assert executor.observe(handle).allocation == before
    pods = uids(server)
    executor.adjust(handle, adjust(before, after, 3))
    assert uids(server) == pods
    assert executor.observe(handle).allocation == after


def test_container_that_a_resize_would_restart_is_not_resized(
    server: StandIn, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    executor = make("jobset")
    handle, pods = launched(executor), uids(server)
    for pod in server.pods.values():
        policy = {"resourceName": "memory", "restartPolicy": "RestartContainer"}
        pod["spec"]["containers"][0]["resizePolicy"] = [policy]
    sizes = [of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 1.0), of("jobset", 2, 2.0, 2.0)]
    executor.adjust(handle, adjust(sizes[0], sizes[1]))
    assert uids(server) == pods, "its cores are"
    executor.adjust(handle, adjust(sizes[1], sizes[2], 3))
    assert not uids(server) & pods
    assert "a change of memory restarts its container" in caplog.text


def test_new_image_restarts_the_job(server: StandIn, make: Make) -> None:
    executor = make("jobset")
    handle, pods = launched(executor), uids(server)
    job = JOB.model_copy(update={"deploy": JOB.deploy.model_copy(update={"image": "ctr:2"})})
    executor.adjust(handle, adjust(of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 1.0), job=job))
    assert not uids(server) & pods


def test_annotations_of_the_last_plan_are_replaced(server: StandIn, make: Make) -> None:
    executor = make("jobset")
    handle = launched(executor)
    before, after = of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 1.0)
    executor.adjust(handle, adjust(before, after).model_copy(update={"asked_by": "anna"}))
    executor.adjust(handle, adjust(after, before, 3))
    annotations = server.objects["JobSet", "default", "ctr"]["metadata"]["annotations"]
    assert annotations["sizewright/plan"] == "p-3"
    assert "sizewright/asked-by" not in annotations


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_memory_that_is_limited_or_not_needs_new_pods(server: StandIn, make: Make, start: float) -> None:
    executor = make("jobset")
    before, after = of("jobset", 2, 1.0, start), of("jobset", 2, 1.5, 1.0 - start)
    handle = executor.launch(Plan(id="p-1", kind="launch", job=JOB, target=before, reason="first"))
    pods = uids(server)
    executor.adjust(handle, adjust(before, after))
    assert not uids(server) & pods


def test_other_changes_restart_the_job(server: StandIn, make: Make) -> None:
    """A change of counts or of the batch size, and any change while a pod waits, is none that a node can make."""
    executor = make("jobset")
    handle, pods = launched(executor), uids(server)
    next(iter(server.pods.values()))["status"]["phase"] = "Pending"
    before, after = of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 1.0)
    executor.adjust(handle, adjust(before, after))
    assert not uids(server) & pods
    pods = uids(server)
    executor.adjust(handle, adjust(after, of("jobset", 3, 2.5, 1.0), 3))
    assert not uids(server) & pods


def test_restored_job_has_the_sizes_that_its_pods_were_resized_to(
    server: StandIn, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_executor, "_POLL_S", 0.01)
    executor = make("jobset")
    handle = launched(executor)
    sizes = [of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 3.0), of("jobset", 3, 2.0, 3.0)]
    executor.adjust(handle, adjust(sizes[0], sizes[1]))
    server.fail("PATCH", "/jobsets/ctr", 422, after=1)  # the first is a dry run
    with pytest.raises(InputError, match="started again as it was before"):
        executor.adjust(handle, adjust(sizes[1], sizes[2], 3))
    assert executor.observe(handle).allocation == sizes[1]
    executor.adjust(handle, adjust(sizes[1], sizes[2], 4))
    assert executor.observe(handle).allocation == sizes[2]


@pytest.mark.parametrize("name", RESIZING)
def test_kueue_has_reserved_what_the_job_started_with(
    server: StandIn, make: Make, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its template stays as it is, since Kueue stops a job that differs from its Workload."""
    executor = make(name)
    handle, pods = launched(executor), uids(server)
    job_object = server.objects[KINDS[name], "default", "ctr"]
    job_object["metadata"].setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = "teams"
    spec = copy.deepcopy(job_object["spec"])
    sizes = [of(name, 2, 1.0, 1.0), of(name, 2, 0.5, 0.5), of(name, 2, 1.0, 0.5), of(name, 2, 1.5, 0.5)]
    for number, (before, after) in enumerate(itertools.pairwise(sizes[:3]), 2):
        executor.adjust(handle, adjust(before, after, number))
    assert uids(server) == pods
    assert job_object["spec"] == spec
    executor.adjust(handle, adjust(sizes[2], sizes[3], 9))
    assert not uids(server) & pods
    assert "more than Kueue has reserved for worker of default/ctr" in caplog.text


def test_costs_of_resizes_are_learned_apart_from_restarts(server: StandIn, make: Make) -> None:
    executor = make("jobset")
    handle = launched(executor)
    before, after = of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 1.0)
    resize, scale = adjust(before, after), adjust(before, of("jobset", 3, 1.0, 1.0))
    assert executor.change_cost(resize).upper < executor.change_cost(scale).seconds
    executor.adjust(handle, resize)
    while not executor.change_cost(resize).changes:
        executor.observe(handle)
    assert executor.change_cost(scale).changes == 0
    migrate = resize.model_copy(update={"target": before, "migrate": ("any",)})
    assert executor.change_cost(migrate).seconds > 30, "new pods"
    server.resizes = False
    other = make("kubeflow")
    other.find(adjust(before, after))
    assert other.change_cost(resize).seconds > 30, "a server without the feature restarts the job"


@pytest.mark.parametrize("damaged", ["{}[", "{}", "[]", '{"worker": [{"cpu": 1}, {"cpu": 2}], "ps": [{"cpu": 1}]}'])
def test_damaged_annotation_is_named(server: StandIn, make: Make, damaged: str) -> None:
    executor = make("jobset")
    handle = launched(executor)
    server.objects["JobSet", "default", "ctr"]["metadata"]["annotations"]["sizewright/resized"] = damaged
    with pytest.raises(InputError, match="annotation sizewright/resized of ctr cannot be read"):
        executor.adjust(handle, adjust(of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 1.0)))


@pytest.mark.parametrize(
    "odd",
    [
        {"containerStatuses": "none"},
        {"containerStatuses": [{"name": "main", "resources": {"requests": ["1"]}}]},
        {"conditions": [{"type": "PodResizePending", "status": "True", "reason": 7}]},
    ],
)
def test_odd_statuses_give_one_error(server: StandIn, make: Make, odd: Object) -> None:
    executor = make("jobset")
    handle = launched(executor)
    plain = server.settle

    def settle(pod: Object) -> None:
        plain(pod)
        pod["status"] |= odd

    server.settle = settle  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="cannot be used"):
        executor.adjust(handle, adjust(of("jobset", 2, 1.0, 1.0), of("jobset", 2, 2.0, 1.0)))
