"""Executors on a cluster, over HTTP, against a stand-in for both the API server and the operators."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sizewright.errors import EngineError, ForbiddenError, InputError, UnsupportedError
from sizewright.executors import get_executor
from sizewright.executors.kubernetes import cluster_executor
from sizewright.executors.kubernetes.api import KubeApi
from sizewright.executors.kubernetes.cluster_executor import ClusterExecutor
from sizewright.spec import Allocation, Handle, Job, Plan
from sizewright.spec.command import Command, Progress
from tests.helpers.stand_in import StandIn, stand_in

pytest.importorskip("kubernetes")

GIB = 1 << 30
JOB = Job(name="ctr")
ONE, TWO = (Allocation.of(n, 1, 1.0, 1.0, 512, GIB, GIB) for n in (1, 2))
MORE_MEMORY = Allocation.of(1, 1, 1.0, 1.0, 512, GIB, 2 * GIB)
LAUNCH = Plan(id="p-1", kind="launch", job=JOB, target=ONE, reason="first")
Make = Callable[..., ClusterExecutor]


@pytest.fixture
def server() -> Iterator[StandIn]:
    with stand_in() as api_server:
        yield api_server


@pytest.fixture
def make(server: StandIn, tmp_path: Path) -> Make:
    from sizewright.executors.kubernetes.api import KubeApi

    def make_executor(name: str = "kubeflow", *, patience_s: float = 20.0, **options: Any) -> ClusterExecutor:
        api = KubeApi(kubeconfig=server.kubeconfig(tmp_path), timeout_s=patience_s, sleep=lambda _: None)
        executor = get_executor(name, api=api, **options)
        assert isinstance(executor, ClusterExecutor)
        return executor

    return make_executor


def adjust(target: Allocation, number: int = 2, **more: Any) -> Plan:
    return Plan(id=f"p-{number}", kind="adjust", job=JOB, current=ONE, target=target, reason="more", **more)


def workers(server: StandIn) -> int:
    return int(server.objects["TFJob", "default", "ctr"]["spec"]["tfReplicaSpecs"]["Worker"]["replicas"])


def test_changes_in_place_keep_the_pods_and_others_restart_the_job(server: StandIn, make: Make) -> None:
    executor = make()
    handle = executor.launch(LAUNCH)
    first = {name: pod["metadata"]["uid"] for name, pod in server.pods.items()}
    executor.adjust(handle, adjust(TWO))
    assert first.items() <= {name: pod["metadata"]["uid"] for name, pod in server.pods.items()}.items()
    assert len(server.pods) == 3
    executor.adjust(handle, adjust(MORE_MEMORY, 3).model_copy(update={"current": TWO}))
    assert not set(first.values()) & {pod["metadata"]["uid"] for pod in server.pods.values()}
    assert executor.observe(handle).allocation == MORE_MEMORY


def test_samples_of_deleted_pods_stay_counted(server: StandIn, make: Make) -> None:
    executor = make("dlrover")
    handle = executor.launch(LAUNCH)
    before = until_trained(executor, handle, 100)
    executor.adjust(handle, adjust(Allocation.of(1, 1, 2.0, 1.0, 512, GIB, GIB)))
    after = executor.observe(handle)
    assert after.samples_trained >= before
    assert sum(worker.samples for worker in after.of("worker")) < after.samples_trained


def until_trained(executor: ClusterExecutor, handle: Handle, samples: int) -> int:
    for _ in range(400):
        if (trained := executor.observe(handle).samples_trained) > samples:
            return trained
        executor.wait(handle, 0.02)
    pytest.fail("it does not train")


def test_memory_and_cpu_are_the_containers(server: StandIn, make: Make) -> None:
    """They come from the control group if the log reports it, else from the cluster's metrics."""
    executor = make()
    handle = executor.launch(LAUNCH)
    until_trained(executor, handle, 100)
    metrics = executor.observe(handle)
    (worker,), (ps,) = metrics.of("worker"), metrics.of("ps")
    assert worker.memory_peak_bytes == 700 << 20
    assert worker.cpu_s == pytest.approx(worker.samples / 20_000 / 2)
    assert ps.memory_peak_bytes == 300 << 20
    assert 2.5 <= ps.cpu_s < 3.5, "a quarter core for the ten seconds of the first window, and what passed since"


@pytest.mark.parametrize(
    ("progress", "log", "samples"),
    [
        (Progress(source="json"), '{"samples": 64}\nnoise\n{"samples": 128}\n', 128),
        (Progress(source="regex", pattern=r"step (?P<steps>\d+)"), "step 1\nstep 3\n", 1536),
        (Progress(source="regex", pattern=r"\+(?P<more>\d+)"), "+10\n+20\n+30\n", 60),
    ],
)
def test_samples_are_read_from_logs_of_other_kinds(
    server: StandIn, make: Make, progress: Progress, log: str, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "log", lambda name: log if "worker" in name else "")
    executor = make()
    job = JOB.model_copy(update={"command": Command(run=("train",), rendezvous="hosts", progress=progress)})
    handle = executor.launch(LAUNCH.model_copy(update={"job": job}))
    for _ in range(3):  # however often it is looked at
        assert executor.observe(handle).samples_trained == samples


def test_change_is_timed_to_the_first_step_after_it(server: StandIn, make: Make) -> None:
    now = [1000.0]
    executor = make(clock=lambda: now[0])
    handle = executor.launch(LAUNCH)
    assert executor.change_cost(LAUNCH).changes == 0
    began = server.pods["ctr-worker-0"]["began"]
    server.pods["ctr-worker-0"]["began"] = began + 60  # it waits in a queue
    now[0] += 50
    executor.observe(handle)
    assert executor.change_cost(LAUNCH).changes == 0
    server.pods["ctr-worker-0"]["began"] = began - 1
    now[0] += 20
    executor.observe(handle)
    cost = executor.change_cost(LAUNCH)
    assert cost.changes == 1
    assert 70 <= cost.seconds <= 75, "one of 70 s, beside a prior of 90"
    assert executor.change_cost(adjust(TWO)).changes == 0


def test_wait_returns_when_the_job_ends(server: StandIn, make: Make) -> None:
    executor = make()
    handle = executor.launch(LAUNCH)
    assert not executor.wait(handle, 0.01)
    server.set_status("TFJob", "ctr", {"conditions": [{"type": "Succeeded", "status": "True"}]})
    assert executor.wait(handle, 5)
    assert any("watch=" in request for request in server.asked) or executor.wait(handle, 0)
    assert executor.stop(handle).status == "finished"
    assert ("TFJob", "default", "ctr") in server.objects, "a job that has ended is not deleted"


def test_watch_reports_a_job_that_ends_during_wait(server: StandIn, make: Make) -> None:
    import threading

    executor = make("volcano")
    handle = executor.launch(LAUNCH)
    ended = {"state": {"phase": "Failed"}}
    threading.Timer(0.2, lambda: server.set_status("Job", "ctr", ended)).start()
    assert executor.wait(handle, 250)
    assert any("watch=" in request for request in server.asked)
    assert executor.stop(handle).status == "failed"


def test_dry_run_changes_nothing(server: StandIn, make: Make) -> None:
    executor = make()
    assert "+kind: TFJob" in executor.difference(LAUNCH)
    assert (server.objects, server.pods) == ({}, {})
    handle = executor.launch(LAUNCH)
    before = str(server.objects), str(server.pods)
    assert "-      replicas: 1\n+      replicas: 2" in executor.difference(adjust(TWO))
    assert "The job is deleted and restarted." in executor.difference(adjust(MORE_MEMORY))
    assert (str(server.objects), str(server.pods)) == before
    assert executor.find(LAUNCH) == handle
    changing = [request for request in server.asked if not request.startswith("GET")]
    assert sum("dryRun=All" not in request for request in changing) == 1, "but for the launch"


def test_conflict_names_the_field_and_its_owner(server: StandIn, make: Make) -> None:
    executor = make()
    handle = executor.launch(LAUNCH)
    path = ("spec", "tfReplicaSpecs", "Worker", "replicas")
    server.set_by("TFJob", "ctr", "autoscaler", path, 1)
    with pytest.raises(InputError, match=r"autoscaler.*spec\.tfReplicaSpecs\.Worker\.replicas.*give those fields up"):
        executor.adjust(handle, adjust(TWO))
    assert sum(request.startswith("PATCH") for request in server.asked) == 2, "the launch, and a change without retries"
    assert workers(server) == 1


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (
            401,
            ForbiddenError,
            r"Not allowed to apply TFJob default/ctr: injected failure 401\. Log in again, or use another",
        ),
        (
            403,
            ForbiddenError,
            r"Not allowed to apply TFJob default/ctr: injected failure 403\. Ask for the permission or",
        ),
        (422, InputError, r"refuses to apply TFJob default/ctr: injected failure 422"),
        (400, InputError, "refuses to apply TFJob default/ctr"),
        (500, EngineError, r"failed to apply TFJob default/ctr: injected failure 500 \(500\)"),
        (0, EngineError, "did not answer the request to apply TFJob default/ctr"),
    ],
)
def test_server_error_is_raised_and_the_job_stays_unchanged(
    server: StandIn, make: Make, status: int, error: type[Exception], message: str
) -> None:
    executor = make(patience_s=20.0 if status else 0.4)
    make().launch(LAUNCH)
    handle = executor.launch(LAUNCH)
    before = str(server.objects)
    server.fail("PATCH", "tfjobs", status, times=99)
    for plan in (adjust(TWO), adjust(MORE_MEMORY)):
        with pytest.raises(error, match=message):
            executor.adjust(handle, plan)
    assert str(server.objects) == before


@pytest.mark.parametrize("status", [429, 500, 503, 0])
def test_transient_errors_are_retried(server: StandIn, make: Make, status: int) -> None:
    executor = make(patience_s=20.0 if status else 0.6)
    server.fail("PATCH", "tfjobs", status, times=2)
    handle = executor.launch(LAUNCH)
    server.fail("GET", "tfjobs", status, times=2)
    assert executor.observe(handle).allocation == ONE


@pytest.mark.parametrize("status", [403, 422])
def test_permanent_errors_are_not_retried(server: StandIn, make: Make, status: int) -> None:
    server.fail("PATCH", "tfjobs", status, times=1)
    with pytest.raises(InputError):
        make().launch(LAUNCH)
    assert sum(request.startswith("PATCH") for request in server.asked) == 1


def test_job_is_restored_when_its_restart_is_refused(server: StandIn, make: Make) -> None:
    executor = make()
    handle = executor.launch(LAUNCH)
    server.fail("PATCH", "tfjobs/ctr", 422, times=1, after=1)  # the check passes, and what follows it does not
    says = r"422\. TFJob default/ctr was deleted for this change, and was started again as it was before\."
    with pytest.raises(InputError, match=says):
        executor.adjust(handle, adjust(MORE_MEMORY))
    assert executor.observe(handle).allocation == ONE
    executor.adjust(handle, adjust(MORE_MEMORY))
    assert executor.observe(handle).allocation == MORE_MEMORY


@pytest.mark.parametrize("finalizer_polls", [0, 3])
def test_job_is_restored_when_its_restart_is_interrupted(
    server: StandIn, make: Make, monkeypatch: pytest.MonkeyPatch, finalizer_polls: int
) -> None:
    executor = make()
    handle = executor.launch(LAUNCH)
    delete, get = KubeApi.delete, KubeApi.get
    polls = list(range(finalizer_polls))
    deleted: list[dict[str, Any]] = []

    def delete_and_interrupt(api: KubeApi, *key: str) -> None:
        if job_object := get(api, *key[:4]):
            job_object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            deleted.append(job_object)
        delete(api, *key)
        raise KeyboardInterrupt

    def get_after_finalizers(api: KubeApi, *key: str) -> dict[str, Any] | None:
        if deleted and polls:
            polls.pop()
            return deleted[0]
        return get(api, *key)

    monkeypatch.setattr(KubeApi, "delete", delete_and_interrupt)
    monkeypatch.setattr(KubeApi, "get", get_after_finalizers)
    with pytest.raises(KeyboardInterrupt):
        executor.adjust(handle, adjust(MORE_MEMORY))
    assert executor.observe(handle).allocation == ONE
    assert not polls


def refusals(executor: ClusterExecutor, server: StandIn) -> Iterator[tuple[Plan, str]]:
    """Put the job into a state in which a plan is refused, and yield the plan with the refusal."""
    job_object = server.objects["TFJob", "default", "ctr"]
    yield LAUNCH.model_copy(update={"id": "p-9"}), "There is a TFJob default/ctr already"
    yield LAUNCH.model_copy(update={"target": TWO}), "was applied with other sizes"
    yield adjust(MORE_MEMORY).model_copy(update={"current": TWO}), "was made for 2 workers"
    yield adjust(ONE, migrate=("ps-0",)), "cannot migrate"
    executor.adjust(Handle(executor="kubeflow", id="default/ctr", job="ctr"), adjust(TWO, cooldown_s=600.0))
    yield adjust(ONE, 3).model_copy(update={"current": TWO}), "cool-down of its last plan"
    job_object = server.objects["TFJob", "default", "ctr"]
    job_object["status"] = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    yield adjust(MORE_MEMORY, 4), "has ended"
    job_object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    yield adjust(MORE_MEMORY, 4), "is being deleted"
    del server.objects["TFJob", "default", "ctr"]
    yield adjust(MORE_MEMORY, 4), "The cluster has no TFJob default/ctr"


def test_difference_raises_the_errors_of_applying_the_plan(server: StandIn, make: Make) -> None:
    executor = make()
    handle = executor.launch(LAUNCH)
    for plan, message in refusals(executor, server):
        with pytest.raises(InputError, match=message):
            executor.difference(plan)
        with pytest.raises(InputError, match=message):
            executor.launch(plan) if plan.kind == "launch" else executor.adjust(handle, plan)


def test_difference_is_empty_where_applying_the_plan_changes_nothing(server: StandIn, make: Make) -> None:
    executor = make()
    handle = executor.launch(LAUNCH)
    assert executor.difference(LAUNCH) == ""
    assert executor.difference(adjust(ONE)) == ""
    executor.adjust(handle, adjust(TWO, cooldown_s=600.0))
    assert executor.difference(adjust(TWO, cooldown_s=600.0)) == ""


def test_difference_of_a_launch_over_a_job_being_deleted_is_the_whole_job(server: StandIn, make: Make) -> None:
    executor = make()
    executor.launch(LAUNCH)
    server.objects["TFJob", "default", "ctr"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert "+  name: ctr\n" in executor.difference(LAUNCH.model_copy(update={"id": "p-9"}))


@pytest.mark.parametrize("status", [401, 403])
def test_observe_raises_where_the_logs_may_not_be_read(server: StandIn, make: Make, status: int) -> None:
    executor = make()
    handle = executor.launch(LAUNCH)
    server.fail("GET", "log", status, times=99)
    with pytest.raises(ForbiddenError, match="Not allowed to read the log"):
        executor.observe(handle)


def test_another_process_uses_the_launched_job(server: StandIn, make: Make) -> None:
    handle = make().launch(LAUNCH)
    other = make()
    assert other.launch(LAUNCH) == handle
    assert sum(request.startswith("PATCH") for request in server.asked) == 1
    with pytest.raises(InputError, match="There is a TFJob default/ctr already"):
        other.launch(LAUNCH.model_copy(update={"id": "p-9"}))
    other.adjust(handle, adjust(TWO, cooldown_s=600.0))
    with pytest.raises(InputError, match="cool-down of its last plan for another"):
        make().adjust(handle, adjust(ONE, 3).model_copy(update={"current": TWO}))
    assert make().stop(handle).status == "stopped"
    with pytest.raises(InputError, match="The cluster has no TFJob default/ctr"):
        make().observe(handle)


def test_each_scale_plan_is_a_separate_object(server: StandIn, make: Make) -> None:
    executor = make("dlrover", version="0.4")
    handle = executor.launch(LAUNCH)
    executor.adjust(handle, adjust(TWO))
    executor.adjust(handle, adjust(MORE_MEMORY, 3).model_copy(update={"current": TWO}))
    assert sorted(kind for kind, *_ in server.objects) == ["ElasticJob", "ScalePlan", "ScalePlan"]
    assert executor.observe(handle).allocation == MORE_MEMORY
    with pytest.raises(InputError, match="was made for 2 workers"):
        make("dlrover", version="0.4").adjust(handle, adjust(ONE, 4).model_copy(update={"current": TWO}))


def test_pods_without_numbers_and_of_other_roles(server: StandIn, make: Make) -> None:
    executor = make("kuberay")
    handle = executor.launch(LAUNCH.model_copy(update={"target": TWO}))
    assert sorted(replica.name for replica in executor.observe(handle).replicas) == ["ps-0", "worker-0", "worker-1"]


def test_cluster_without_the_operator_or_metrics(server: StandIn, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    import tests.helpers.stand_in as module

    without = {name: kinds for name, kinds in module.SERVED.items() if name.split("/")[0] != "metrics.k8s.io"}
    monkeypatch.setattr(module, "SERVED", without)
    executor = make()
    (ps,) = executor.observe(executor.launch(LAUNCH)).of("ps")
    assert (ps.cpu_s, ps.memory_peak_bytes) == (0.0, 0)
    monkeypatch.setattr(module, "SERVED", {"v1": without["v1"]})
    with pytest.raises(InputError, match=r"The cluster does not serve Job of batch\.volcano\.sh/v1alpha1\. Install"):
        make("volcano").launch(LAUNCH)


def test_migrations_are_refused(server: StandIn, make: Make) -> None:
    executor = make()
    with pytest.raises(UnsupportedError, match="cannot migrate"):
        executor.adjust(executor.launch(LAUNCH), adjust(ONE, migrate=("ps-0",)))


def test_base_manifest_is_applied_with_the_notes_of_its_plan(server: StandIn, make: Make, tmp_path: Path) -> None:
    base = tmp_path / "base.yaml"
    text = get_executor("kubeflow").render(LAUNCH).replace("name: ctr", "name: nightly").replace("default", "ads")
    base.write_text(text.replace("p-1", "p-0"))
    handle = make(base=base).launch(LAUNCH)
    assert (handle.id, handle.job) == ("ads/nightly", "ctr")
    assert make(base=base).launch(LAUNCH) == handle


def test_sizes_are_read_from_the_training_container_with_a_sidecar(server: StandIn, make: Make, tmp_path: Path) -> None:
    document = yaml.safe_load(get_executor("volcano").render(LAUNCH))
    for task in document["spec"]["tasks"]:
        containers = task["template"]["spec"]["containers"]
        containers[0]["name"] = "trainer"
        containers.insert(0, {"name": "logs", "image": "fluentd", "resources": {"requests": {"cpu": "7"}}})
    base = tmp_path / "base.yaml"
    base.write_text(yaml.safe_dump(document))
    executor = make("volcano", base=base)
    allocation = executor.observe(executor.launch(LAUNCH)).allocation
    assert allocation is not None
    assert {group.cpu for group in (*allocation.worker, *allocation.ps)} == {group.cpu for _, group in ONE.groups}


def test_missing_cluster_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    for options in ({}, {"context": "nowhere"}, {"kubeconfig": str(tmp_path / "gone")}):
        with pytest.raises(InputError, match=r"Cannot find a cluster: .*\. Set KUBECONFIG, or pass a context"):
            get_executor("kubeflow", **options).launch(LAUNCH)


def test_object_is_kept_in_a_file_when_restoring_it_fails(
    server: StandIn, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_executor, "_RESTORE_TIMEOUT_S", 0.0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    executor = make()
    handle = executor.launch(LAUNCH)
    server.fail("PATCH", "tfjobs/ctr", 500, times=99, after=1)
    with pytest.raises(EngineError, match="default/ctr may be gone: its change failed") as caught:
        executor.adjust(handle, adjust(MORE_MEMORY))
    path = Path(caught.value.message.partition(" is in ")[2].rstrip("."))
    kept = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert kept["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] == 1
    assert kept["metadata"]["name"] == "ctr"


def test_adjust_of_an_ended_job_is_refused(server: StandIn, make: Make) -> None:
    executor = make()
    handle = executor.launch(LAUNCH)
    server.objects["TFJob", "default", "ctr"]["status"] = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    for target in (TWO, MORE_MEMORY):
        with pytest.raises(InputError, match="has ended: there is nothing to change"):
            executor.adjust(handle, adjust(target))


def test_additions_of_a_base_do_not_count_as_other_sizes(server: StandIn, make: Make, tmp_path: Path) -> None:
    base = tmp_path / "base.yaml"
    base.write_text(get_executor("kubeflow").render(LAUNCH), encoding="utf-8")
    bare = [tuple(g.model_copy(update={"memory_bytes": 0}) for g in groups) for groups in (ONE.worker, ONE.ps)]
    plan = LAUNCH.model_copy(update={"target": ONE.model_copy(update={"worker": bare[0], "ps": bare[1]})})
    executor = make(base=base)
    assert executor.launch(plan) == executor.launch(plan)
    with pytest.raises(InputError, match="was made from a base manifest"):
        make().adjust(executor.launch(plan), adjust(TWO))
    executor.adjust(executor.launch(plan), adjust(TWO))
    assert workers(server) == 2


def test_invalid_namespace_is_refused() -> None:
    with pytest.raises(ValueError, match="namespace"):
        Job(name="ctr", deploy={"namespace": "prod/tfjobs/other?x="})  # type: ignore[arg-type]


@pytest.mark.parametrize("what", ["log", "metrics"])
def test_observe_continues_without_logs_or_metrics(server: StandIn, make: Make, what: str) -> None:
    executor = make()
    handle = executor.launch(LAUNCH)
    server.fail("GET", what, 503, times=99)
    assert executor.observe(handle).allocation == ONE
