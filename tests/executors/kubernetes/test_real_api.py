"""The executors of clusters against a real API server: what a stand-in could get wrong. Nobody makes pods there."""

from __future__ import annotations

import os
import signal
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sizewright.errors import EngineError, InputError
from sizewright.executors import get_executor
from sizewright.executors.kubernetes.api import GoneError, KubeApi
from sizewright.executors.kubernetes.cluster_executor import ClusterExecutor
from sizewright.formatting import GIB
from sizewright.operator import labels
from sizewright.operator.controller import Operator, OperatorSettings
from sizewright.operator.job_kinds import job_kinds
from sizewright.operator.trial_jobs import TrialSettings
from sizewright.spec import Allocation, Group, Job, Plan
from sizewright.spec.command import Command
from tests.helpers.real_api.api_server import ApiServer, api_server
from tests.helpers.suspended_jobs import suspended
from tests.operator.test_controller import no_answer, sized_answer

pytestmark = pytest.mark.long
PLURALS = {
    "jobset": "jobsets", "trainjob": "trainjobs", "kubeflow": "tfjobs", "pytorchjob": "pytorchjobs",
    "volcano": "jobs", "kuberay": "rayjobs", "dlrover": "elasticjobs",
}  # fmt: skip
_TRUE = {"status": "True", "reason": "r", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
ENDED: dict[str, dict[str, Any]] = {
    "jobset": {"conditions": [{"type": "Completed", **_TRUE}]},
    "trainjob": {"conditions": [{"type": "Complete", **_TRUE}]},
    "kubeflow": {"conditions": [{"type": "Succeeded", "status": "True"}], "replicaStatuses": {}},
    "pytorchjob": {"conditions": [{"type": "Succeeded", "status": "True"}], "replicaStatuses": {}},
    "volcano": {"state": {"phase": "Completed"}},
    "kuberay": {"jobStatus": "SUCCEEDED"},
    "dlrover": {"phase": "Succeeded"},
}
ALL = pytest.mark.parametrize("name", PLURALS)
COUNTED_BY = {"jobset": "parallelism", "trainjob": "numNodes"}
"""The field of the number of replicas, where that is not `replicas`."""
IN_PLACE = ("kubeflow", "volcano", "dlrover")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    pytest.importorskip("kubernetes")
    default = Path(__file__).resolve().parents[3].parent / "shared"
    crds = Path(os.environ.get("SIZEWRIGHT_SHARED", default)) / "crds"
    if not crds.is_dir():
        pytest.skip("the published definitions are not at hand (set SIZEWRIGHT_SHARED)")
    with api_server(tmp_path_factory.mktemp("api")) as running_server:
        define(running_server, crds)
        yield running_server


def define(server: ApiServer, crds: Path) -> None:
    from kubernetes import client, config

    api = client.ApiextensionsV1Api(config.new_client_from_config(server.kubeconfig))
    for path in sorted(crds.glob("*.yaml")):
        for each in yaml.load_all(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            api.create_custom_resource_definition(each)
            if each["spec"]["names"]["kind"] == "ClusterTrainingRuntime":
                api.create_custom_resource_definition(of_namespaces(each))
    probe, until = KubeApi(kubeconfig=server.kubeconfig), time.monotonic() + 30
    for name in PLURALS:
        executor = of(server, name)
        while time.monotonic() < until:
            try:
                assert probe.get(executor.api_version, executor.kind, "default", "none") is None
                break
            except InputError:  # not served yet
                time.sleep(0.2)


def of_namespaces(definition: dict[str, Any]) -> dict[str, Any]:
    """Return the definition of TrainingRuntimes, which differs from that of their cluster's kind in its names only."""
    names = {key: value.lower().replace("cluster", "") for key, value in definition["spec"]["names"].items()}
    names |= {"kind": "TrainingRuntime", "listKind": "TrainingRuntimeList"}
    metadata = {**definition["metadata"], "name": f"{names['plural']}.{definition['spec']['group']}"}
    return {**definition, "metadata": metadata, "spec": {**definition["spec"], "names": names, "scope": "Namespaced"}}


@pytest.fixture
def job(request: pytest.FixtureRequest) -> Job:
    """Return a job that no other test uses. Some have no PS."""
    has_ps = not any(name in request.node.name for name in ("trainjob", "pytorchjob"))
    command = None if has_ps else Command(run="python train.py", rendezvous="torchrun")
    return Job(name=f"ctr-{zlib.crc32(request.node.name.encode()):08x}", command=command)


def of(server: ApiServer, name: str, **options: Any) -> ClusterExecutor:
    executor = get_executor(name, kubeconfig=server.kubeconfig, **options)
    assert isinstance(executor, ClusterExecutor)
    return executor


def sizes(workers: int = 2, memory: int = GIB, batch: int = 512) -> Allocation:
    return Allocation.of(workers, 1, 1.0, 1.0, batch, memory, GIB)


def plan(job: Job, number: int, target: Allocation, current: Allocation | None = None) -> Plan:
    if not job.has_ps:
        target, current = (each and each.model_copy(update={"ps": ()}) for each in (target, current))
    kind = "adjust" if current else "launch"
    return Plan(id=f"p-{number}", kind=kind, job=job, target=target, current=current, reason="x")  # type: ignore[arg-type]


def job_object(executor: ClusterExecutor, job: Job) -> dict[str, Any]:
    manifest = executor.api.get(executor.api_version, executor.kind, "default", job.name)
    assert manifest
    return manifest


class Others:
    """Other clients that change objects: operators and users."""

    def __init__(self, server: ApiServer, executor: ClusterExecutor, job: Job) -> None:
        from kubernetes import client, config

        group, _, version = executor.api_version.partition("/")
        self._at = (group, version, "default", PLURALS[executor.name], job.name)
        self._api = client.CustomObjectsApi(config.new_client_from_config(server.kubeconfig))

    def patch(self, body: dict[str, Any]) -> None:
        self._api.patch_namespaced_custom_object(*self._at, body)

    def set_status(self, status: dict[str, Any]) -> None:
        self._api.patch_namespaced_custom_object_status(*self._at, {"status": status})

    def delete(self) -> None:
        self._api.delete_namespaced_custom_object(*self._at)


@ALL
def test_job_from_launch_to_stop(server: ApiServer, job: Job, name: str) -> None:
    executor = of(server, name)
    launch = plan(job, 1, sizes(2))
    assert f"+  name: {job.name}" in executor.difference(launch)
    assert executor.find(launch) is None
    handle = executor.launch(launch)
    assert of(server, name).launch(launch) == handle == executor.find(launch)
    with pytest.raises(InputError, match="already"):
        executor.launch(plan(job, 9, sizes(2)))
    metrics = executor.observe(handle)
    assert (metrics.replicas, metrics.samples_trained, metrics.allocation) == ((), 0, None)
    first = job_object(executor, job)

    more = plan(job, 2, sizes(3), sizes(2))
    written = 2 if name == "pytorchjob" else 3  # its Master is one more
    assert f"{COUNTED_BY.get(name, 'replicas')}: {written}" in executor.difference(more)
    assert job_object(executor, job)["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    executor.adjust(handle, more)
    second = job_object(executor, job)
    assert executor.container_specs(second, "worker")[0].read().replicas == 3
    assert (second["metadata"]["uid"] == first["metadata"]["uid"]) is (name in IN_PLACE)
    of(server, name).adjust(handle, more)  # once is enough
    assert job_object(executor, job)["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]

    bigger = plan(job, 3, sizes(3, 2 * GIB), sizes(3))
    assert ("restarted" in executor.difference(bigger)) is (name != "dlrover")
    executor.adjust(handle, bigger)
    third = job_object(executor, job)
    assert executor.container_specs(third, "worker")[0].read().memory_bytes == 2 * GIB
    assert (third["metadata"]["uid"] == second["metadata"]["uid"]) is (name == "dlrover")

    executor.adjust(handle, plan(job, 4, sizes(3, 2 * GIB, 256), sizes(3, 2 * GIB)))
    assert executor.container_specs(job_object(executor, job), "worker")[0].read_batch_size(0) == 256
    with pytest.raises(InputError, match="Make a new plan"):
        executor.adjust(handle, plan(job, 5, sizes(4), sizes(2)))
    assert executor.stop(handle).status == "stopped"
    assert executor.stop(handle).status == "stopped"
    assert executor.api.get(executor.api_version, executor.kind, "default", job.name) is None
    assert executor.launch(launch) == handle
    executor.stop(handle)


def test_trainjob_with_ps_and_its_runtime(server: ApiServer) -> None:
    executor = of(server, "trainjob")
    job = Job(name="ctr-with-ps", command=Command(run="python train.py", rendezvous="hosts"))
    probe = KubeApi(kubeconfig=server.kubeconfig)

    def runtime() -> dict[str, Any] | None:
        return probe.get(executor.api_version, "TrainingRuntime", "default", job.name)

    launch = plan(job, 1, sizes(2))
    assert "+kind: TrainingRuntime" in executor.difference(launch)
    assert (executor.find(launch), runtime()) == (None, None)
    handle = executor.launch(launch)
    assert of(server, "trainjob").launch(launch) == handle
    first = runtime()
    assert first is not None
    more = sizes(2).model_copy(update={"ps": (Group(replicas=3, cpu=1.0, memory_bytes=GIB),)})
    change = plan(job, 2, more, sizes(2))
    assert "parallelism: 3" in executor.difference(change)
    assert runtime() == first, "only shown"
    executor.adjust(handle, change)
    second = runtime()
    assert second is not None
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert executor.difference(change) == ""
    with pytest.raises(InputError, match=r"Not allowed to apply .*readers only read"):
        of(server, "trainjob", context="reader").launch(plan(Job(name="ctr-other", command=job.command), 1, sizes()))
    assert executor.stop(handle).status == "stopped"
    assert (executor.find(launch), runtime()) == (None, None)


@ALL
def test_refusal_names_the_field(server: ApiServer, job: Job, name: str) -> None:
    executor = of(server, name)
    manifest: dict[str, Any] = yaml.safe_load(executor.render(plan(job, 1, sizes())))
    container = executor.container_specs(manifest, "worker")[0]
    for wrong, message in (
        (
            {**manifest, "spec": {**manifest["spec"], "nonsense": 1}},
            r"refuses to .*: \.spec\.nonsense: field not declared",
        ),
        ({**manifest, "metadata": {**manifest["metadata"], "labels": {"a b": "c"}}}, r"refuses to .*metadata\.labels"),
    ):
        with pytest.raises(InputError, match=message):
            executor.api.apply(wrong)
    counted_by = COUNTED_BY.get(name, "replicas")
    container.entry[counted_by] = "two"
    with pytest.raises(InputError, match=rf"refuses to .*{counted_by}: expected numeric"):
        executor.api.apply(manifest, dry_run=True)
    reader = of(server, name, context="reader")
    assert reader.find(plan(job, 1, sizes())) is None
    with pytest.raises(InputError, match=r"Not allowed to apply .*readers only read"):
        reader.launch(plan(job, 1, sizes()))


@pytest.mark.parametrize("name", [name for name in PLURALS if name != "trainjob"])  # nobody can change its trainer
def test_fields_of_other_owners_stay_unchanged(server: ApiServer, job: Job, name: str) -> None:
    executor = of(server, name)
    launch = plan(job, 1, sizes(2))
    handle = executor.launch(launch)
    resource = executor.api._resource(executor.api_version, executor.kind)
    other: dict[str, Any] = yaml.safe_load(executor.render(plan(job, 1, sizes(5))))
    del other["metadata"]["annotations"]
    resource.server_side_apply(body=other, field_manager="other", force_conflicts=True)
    mine: dict[str, Any] = yaml.safe_load(executor.render(launch))
    for dry_run in (True, False):
        with pytest.raises(InputError, match=r'conflict.*"other"'):
            executor.api.apply(mine, dry_run=dry_run)
    assert executor.container_specs(job_object(executor, job), "worker")[0].read().replicas == 5
    executor.stop(handle)


@ALL
def test_manifest_applied_by_kubectl_as_in_its_header_is_adjusted(server: ApiServer, job: Job, name: str) -> None:
    executor = of(server, name)
    launch = plan(job, 1, sizes(2))
    text = executor.render(launch)
    manager = text.partition("--field-manager=")[2].split()[0]
    resource = executor.api._resource(executor.api_version, executor.kind)
    resource.server_side_apply(body=yaml.safe_load(text), field_manager=manager)
    handle = executor.launch(launch)
    executor.adjust(handle, plan(job, 2, sizes(3), sizes(2)))
    assert executor.container_specs(job_object(executor, job), "worker")[0].read().replicas == 3
    executor.stop(handle)


@ALL
def test_wait_ends_with_the_job(server: ApiServer, job: Job, name: str) -> None:
    executor = of(server, name)
    handle, others = executor.launch(plan(job, 1, sizes())), Others(server, executor, job)
    assert not executor.wait(handle, 1.0)
    threading.Timer(0.5, others.set_status, [ENDED[name]]).start()
    assert executor.wait(handle, 200.0)
    assert executor.stop(handle).status == "finished"
    others.delete()


@ALL
def test_adjust_of_a_job_being_deleted_is_refused(server: ApiServer, job: Job, name: str) -> None:
    executor = of(server, name)
    launch = plan(job, 1, sizes(2))
    handle, others = executor.launch(launch), Others(server, executor, job)
    before = job_object(executor, job)["metadata"]["uid"]
    others.patch({"metadata": {"finalizers": ["sizewright.test/cleanup"]}})
    others.delete()
    with pytest.raises(InputError, match="is being deleted"):
        executor.adjust(handle, plan(job, 2, sizes(3), sizes(2)))
    threading.Timer(1.0, others.patch, [{"metadata": {"finalizers": []}}]).start()
    assert of(server, name).launch(launch) == handle
    assert job_object(executor, job)["metadata"]["uid"] != before
    executor.stop(handle)


def test_scale_plans_of_dlrover_up_to_0_4(server: ApiServer, job: Job) -> None:
    executor = of(server, "dlrover", version="0.4")
    handle = executor.launch(plan(job, 1, sizes(2)))
    uid = job_object(executor, job)["metadata"]["uid"]
    executor.adjust(handle, plan(job, 2, sizes(3), sizes(2)))
    executor.adjust(handle, plan(job, 2, sizes(3), sizes(2)))
    assert job_object(executor, job)["metadata"]["uid"] == uid
    with pytest.raises(InputError, match="Make a new plan"):
        executor.adjust(handle, plan(job, 3, sizes(4), sizes(2)))
    other_batch = plan(job, 4, sizes(3, batch=256), sizes(3))
    assert "restarted" in executor.difference(other_batch)
    executor.adjust(handle, other_batch)
    restarted = job_object(executor, job)
    assert restarted["metadata"]["uid"] != uid
    assert executor.container_specs(restarted, "worker")[0].read_batch_size(0) == 256
    assert executor.container_specs(restarted, "worker")[0].read().replicas == 3
    executor.adjust(handle, plan(job, 5, sizes(4, batch=256), sizes(3, batch=256)))
    evaluator = (Group(replicas=1, cpu=1, memory_bytes=GIB),)
    target = sizes(4, batch=256).model_copy(update={"evaluator": evaluator})
    executor.adjust(handle, plan(job, 6, target, sizes(4, batch=256)))
    assert set(job_object(executor, job)["spec"]["replicaSpecs"]) == {"worker", "ps", "evaluator"}
    executor.stop(handle)
    time.sleep(1.1)  # creation times have a resolution of seconds
    executor.launch(plan(job, 7, sizes(2)))
    executor.adjust(handle, plan(job, 8, sizes(3), sizes(2)))  # what was planned for the job of before is past
    executor.stop(handle)


def test_server_that_stops_answering(server: ApiServer, job: Job) -> None:
    executor = of(server, "kubeflow")
    handle = executor.launch(plan(job, 1, sizes()))
    silent = KubeApi(kubeconfig=server.kubeconfig, timeout_s=0.5, sleep=lambda _: None)
    assert silent.get(executor.api_version, executor.kind, "default", job.name)
    stop = threading.Timer(1.0, os.kill, [server.pid, signal.SIGSTOP])
    stop.start()
    try:
        assert not executor.wait(handle, 3.0)
        with pytest.raises(EngineError, match="did not answer"):
            silent.get(executor.api_version, executor.kind, "default", job.name)
    finally:
        stop.join()
        os.kill(server.pid, signal.SIGCONT)
    executor.stop(handle)


def test_kinds_and_objects_that_the_server_does_not_have(server: ApiServer) -> None:
    api = KubeApi(kubeconfig=server.kubeconfig)
    assert api.list("v1", "Pod", "default", "a=b") == []
    assert api.log("default", "none", "main", 10) == ""
    with pytest.raises(InputError, match=r"does not serve Nope of example\.com/v1"):
        api.get("example.com/v1", "Nope", "default", "a")


OF_OPERATOR = ("trainjob", "jobset", "kuberay", "pytorchjob")


class TestOperator:
    """Suspended jobs on the real server, which has neither Events nor Jobs."""

    @pytest.fixture
    def api(self, server: ApiServer) -> KubeApi:
        return KubeApi(kubeconfig=server.kubeconfig)

    @pytest.mark.parametrize("name", OF_OPERATOR)
    def test_job_is_sized_and_resumed(self, api: KubeApi, name: str) -> None:
        annotations = {labels.RECREATE: "yes"} if name == "trainjob" else {}
        document = suspended(name, f"sized-{name}", **annotations)
        api.create(document)
        running = Operator(api, sized_answer, settings=OperatorSettings(jobs_per_s=1000.0, recreates=True))
        assert running.turn() >= 1
        (kind,) = [kind for kind in job_kinds(api) if kind.executor.name == name]
        now = api.get(document["apiVersion"], document["kind"], "default", f"sized-{name}")
        assert now is not None
        assert not kind.is_suspended(now)
        (worker,) = kind.executor.sizes_of(now)["worker"]
        assert (worker.replicas, worker.cpu, worker.memory_bytes) == (4, 3.0, 2 * GIB)
        assert now["metadata"]["annotations"][labels.SIZED] == now["metadata"]["uid"]
        assert running.turn() == 0

    def test_stale_or_other_object_is_not_changed(self, api: KubeApi) -> None:
        document = suspended("pytorchjob", "stale")
        document["metadata"]["labels"] = {}  # for no operator
        api.create(document)
        stale = api.get(document["apiVersion"], document["kind"], "default", "stale")
        assert stale is not None
        current = api.change(stale, {"metadata": {"labels": {"touched": "yes"}}})
        assert current["metadata"]["labels"] == {"touched": "yes"}
        with pytest.raises(InputError, match="has been modified"):
            api.change(stale, {"metadata": {"labels": {"touched": "no"}}})
        other = {**current, "metadata": {**current["metadata"], "uid": "another"}}
        with pytest.raises(InputError):
            api.change(other, {"metadata": {"labels": {"touched": "no"}}})
        api.delete(document["apiVersion"], document["kind"], "default", "stale")
        with pytest.raises(GoneError):
            api.change(current, {"metadata": {"labels": {"touched": "no"}}})

    @pytest.mark.parametrize("name", OF_OPERATOR)
    def test_trial_job_is_one_that_the_server_takes(self, api: KubeApi, name: str) -> None:
        document = suspended(name, f"tried-{name}", **{labels.TRIALS: "yes"})
        api.create(document)
        settings = OperatorSettings(policy="trials", jobs_per_s=1000.0, trials=TrialSettings(cores=4.0, at_once=99))
        running = Operator(api, no_answer, settings=settings)
        running.turn()
        running.turn()

        def copies() -> list[dict[str, Any]]:
            found = api.list(document["apiVersion"], document["kind"], "default", labels.TRIAL_OF)
            return [each for each in found if each["metadata"]["ownerReferences"][0]["name"] == f"tried-{name}"]

        (copy,) = copies()
        assert "activeDeadlineSeconds" in str(copy["spec"]), "the kind has the field"
        now = api.get(document["apiVersion"], document["kind"], "default", f"tried-{name}")
        assert now is not None
        api.change(now, {"metadata": {"annotations": {labels.TRIALS: None}}})
        running.turn()
        assert not copies()

    def test_many_jobs_outlast_an_operator_that_is_killed(self, api: KubeApi) -> None:
        count, handled = 1000, 0
        document = suspended("kuberay")
        for number in range(count):
            api.create({**document, "metadata": {**document["metadata"], "name": f"many-{number}"}})

        def killed() -> None:
            nonlocal handled
            handled += 1
            if handled > count // 2:
                raise KeyboardInterrupt

        settings = OperatorSettings(jobs_per_s=10_000.0)
        with pytest.raises(KeyboardInterrupt):
            Operator(api, sized_answer, settings=settings, check=killed).turn()
        for number in range(0, count, 100):
            api.delete(document["apiVersion"], document["kind"], "default", f"many-{number}")
        assert Operator(api, sized_answer, settings=settings).turn() >= count // 2 - 20
        found = api.list(document["apiVersion"], document["kind"], "default", labels.SIZE)
        many = [each for each in found if each["metadata"]["name"].startswith("many-")]
        assert len(many) == count - 10
        assert all(each["metadata"]["annotations"][labels.SIZED] == each["metadata"]["uid"] for each in many)
        assert not any(each["spec"].get("suspend") for each in many)
