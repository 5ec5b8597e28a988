"""TrainJobs with PS have a runtime of their own, which exists exactly as long as they do."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from sizewright.errors import InputError, SizewrightError
from sizewright.executors.kubernetes import cluster_executor, pod_resize
from sizewright.executors.kubernetes.trainjob import TrainJobExecutor
from sizewright.executors.yaml_documents import from_yaml
from sizewright.formatting import GIB
from sizewright.spec import Allocation, Deploy, Group, Job, Plan
from sizewright.spec.command import Command
from tests.helpers.crds import validator
from tests.helpers.random_plans import plans
from tests.helpers.stand_in import Object, StandIn, stand_in

TRAINJOB, RUNTIME = ("TrainJob", "default", "ctr"), ("TrainingRuntime", "default", "ctr")
BEFORE = Allocation.of(2, 1, 1.0, 0.5, 512, GIB, 2 * GIB)
MORE_PS = Allocation.of(2, 3, 1.0, 0.5, 512, GIB, 2 * GIB)
LARGER = Allocation.of(2, 1, 1.5, 1.0, 512, 2 * GIB, 3 * GIB)
JOB = Job(name="ctr", command=Command(run="python train.py", rendezvous="hosts"))
LAUNCH = Plan(id="p-1", kind="launch", job=JOB, target=BEFORE, reason="first")
Make = Callable[..., TrainJobExecutor]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandIn]:
    pytest.importorskip("kubernetes")
    monkeypatch.setattr(pod_resize, "_POLL_S", 0.01)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with stand_in() as api_server:
        yield api_server


@pytest.fixture
def make(server: StandIn, tmp_path: Path) -> Make:
    from sizewright.executors.kubernetes.api import KubeApi

    api = KubeApi(kubeconfig=server.kubeconfig(tmp_path), sleep=lambda _: None)
    return lambda **options: TrainJobExecutor(api=api, **options)


def adjust(target: Allocation, current: Allocation = BEFORE, number: int = 2) -> Plan:
    return Plan(id=f"p-{number}", kind="adjust", job=JOB, current=current, target=target, reason="more")


def ps_job(runtime: Object) -> Object:
    (job,) = [each for each in runtime["spec"]["template"]["spec"]["replicatedJobs"] if each["name"] == "ps"]
    return dict(job["template"]["spec"])


def roles_of_pods(server: StandIn) -> list[str]:
    return sorted(pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] for pod in server.pods.values())


def fits(plan: Plan) -> Plan:
    """Return the plan without the roles that a TrainJob does not have."""
    nothing: dict[str, Any] = {"chief": (), "evaluator": ()}
    allocations = {"target": plan.target, "current": plan.current, "lower": plan.lower, "upper": plan.upper}
    return plan.model_copy(
        update={name: each and each.model_copy(update=nothing) for name, each in allocations.items()}
    )


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plans().map(fits))
def test_rendered_plan_with_ps_is_read_back(plan: Plan) -> None:
    executor = TrainJobExecutor()
    text = executor.render(plan)
    assert executor.parse(text) == plan
    assert executor.build(plan).documents == from_yaml(text)
    for document in yaml.safe_load_all(text):
        validator(document["kind"]).validate(document)


def test_workers_have_their_sizes_in_the_job_and_ps_in_the_runtime() -> None:
    runtime, job = yaml.safe_load_all(TrainJobExecutor().render(LAUNCH))
    assert (runtime["kind"], runtime["metadata"]["name"], job["kind"]) == ("TrainingRuntime", "ctr", "TrainJob")
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "ctr"}
    assert job["spec"]["runtimeRef"] == reference
    assert job["spec"]["trainer"]["numNodes"] == 2
    assert job["spec"]["trainer"]["resourcesPerNode"]["requests"] == {"cpu": "1", "memory": "1024Mi"}
    ps = ps_job(runtime)
    assert (ps["parallelism"], ps["completions"], ps["completionMode"]) == (1, 1, "Indexed")
    (container,) = ps["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "500m", "memory": "2048Mi"}
    assert container["name"] != "node", "Trainer would take it for a worker's"
    assert runtime["spec"]["template"]["spec"]["successPolicy"]["targetReplicatedJobs"] == ["node"]
    assert runtime["spec"]["mlPolicy"], "without it Trainer ignores the sizes of the TrainJob"


def test_priority_class_is_that_of_both_roles() -> None:
    job = JOB.model_copy(update={"deploy": Deploy(priority_class="high")})
    plan = LAUNCH.model_copy(update={"job": job})
    runtime, _ = yaml.safe_load_all(TrainJobExecutor().render(plan))
    jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert [each["template"]["spec"]["template"]["spec"]["priorityClassName"] for each in jobs] == ["high", "high"]
    assert TrainJobExecutor().as_rendered(plan).job.deploy.priority_class == "high"


def test_ps_of_two_sizes_are_refused() -> None:
    groups = tuple(Group(replicas=1, cpu=cpu, memory_bytes=GIB) for cpu in (1.0, 2.0))
    plan = LAUNCH.model_copy(update={"target": BEFORE.model_copy(update={"ps": groups})})
    with pytest.raises(InputError, match="has one size per role, and the plan has 2 for ps"):
        TrainJobExecutor().render(plan)


def test_job_runs_with_its_runtime_and_both_end_with_stop(server: StandIn, make: Make) -> None:
    executor = make()
    handle = executor.launch(LAUNCH)
    assert {TRAINJOB, RUNTIME} <= {*server.objects}
    assert roles_of_pods(server) == ["node", "node", "ps"]
    assert executor.observe(handle).allocation == BEFORE
    assert executor.launch(LAUNCH) == handle, "the same plan"
    assert make().find(LAUNCH) == handle
    assert make().stop(handle).status == "stopped"
    assert not {TRAINJOB, RUNTIME} & {*server.objects}
    assert server.pods == {}


def test_runtime_of_an_ended_job_stays_with_it(server: StandIn, make: Make) -> None:
    executor = make()
    handle = executor.launch(LAUNCH)
    server.set_status("TrainJob", "ctr", {"conditions": [{"type": "Complete", "status": "True"}]})
    assert executor.stop(handle).status == "finished"
    assert {TRAINJOB, RUNTIME} <= {*server.objects}


def test_change_of_ps_restarts_the_job_with_another_runtime(server: StandIn, make: Make) -> None:
    executor = make()
    handle = executor.launch(LAUNCH)
    first = {key: server.objects[key]["metadata"]["uid"] for key in (TRAINJOB, RUNTIME)}
    shown = executor.difference(adjust(MORE_PS))
    assert "parallelism: 3\n" in shown
    assert "+      value: ctr-ps-0-0.ctr:2222,ctr-ps-0-1.ctr:2222,ctr-ps-0-2.ctr:2222\n" in shown, "of the workers"
    assert shown.endswith("The job is deleted and restarted.\n")
    assert {key: server.objects[key]["metadata"]["uid"] for key in first} == first, "only shown"
    executor.adjust(handle, adjust(MORE_PS))
    assert not {*first.values()} & {server.objects[key]["metadata"]["uid"] for key in first}
    assert roles_of_pods(server) == ["node", "node", "ps", "ps", "ps"]
    assert executor.observe(handle).allocation == MORE_PS
    assert executor.difference(adjust(MORE_PS)) == ""
    with pytest.raises(InputError, match="was made for"):
        executor.adjust(handle, adjust(LARGER, number=3))


def test_pods_of_both_roles_are_resized_while_the_job_runs(server: StandIn, make: Make) -> None:
    server.resizes = True
    executor = make()
    handle = executor.launch(LAUNCH)
    pods = {pod["metadata"]["uid"] for pod in server.pods.values()}
    specs = copy.deepcopy([server.objects[key]["spec"] for key in (TRAINJOB, RUNTIME)])
    shown = executor.difference(adjust(LARGER))
    assert "2 running pods are resized: requests cpu 1 → 1500m" in shown
    assert "1 running pods are resized: requests cpu 500m → 1" in shown
    executor.adjust(handle, adjust(LARGER))
    assert {pod["metadata"]["uid"] for pod in server.pods.values()} == pods
    assert executor.observe(handle).allocation == LARGER
    assert [server.objects[key]["spec"] for key in (TRAINJOB, RUNTIME)] == specs, "nobody may change a trainer"
    more = LARGER.model_copy(update={"ps": (LARGER.ps[0].model_copy(update={"replicas": 2}),)})
    executor.adjust(handle, adjust(more, LARGER, 3))
    assert executor.observe(handle).allocation == more


def test_dry_run_of_a_launch_checks_both_objects_and_leaves_none(server: StandIn, make: Make) -> None:
    shown = make().difference(LAUNCH)
    assert "+kind: TrainingRuntime" in shown
    assert "+kind: TrainJob" in shown
    assert "+    name: ctr" in shown
    assert "torch-distributed" not in shown, "the runtime by which the server checks it"
    assert not server.objects
    for plural in ("trainingruntimes", "trainjobs"):
        server.fail("PATCH", f"/{plural}/", 422, message=f"no such field in {plural}")
        with pytest.raises(InputError, match=f"no such field in {plural}"):
            make().difference(LAUNCH)
    assert not server.objects


def test_refused_launch_leaves_no_runtime(server: StandIn, make: Make) -> None:
    server.fail("PATCH", "/trainjobs/", 422, message="no")
    with pytest.raises(InputError, match="refuses to apply TrainJob"):
        make().launch(LAUNCH)
    assert not server.objects


def test_job_and_runtime_are_restored_when_a_restart_is_refused(server: StandIn, make: Make) -> None:
    executor = make()
    handle = executor.launch(LAUNCH)
    specs = copy.deepcopy([server.objects[key]["spec"] for key in (TRAINJOB, RUNTIME)])
    server.fail("PATCH", "/trainjobs/ctr", 422, message="no", after=1)  # the dry run has another name, then
    server.fail("PATCH", "/trainjobs/ctr", 422, message="no")
    with pytest.raises(SizewrightError):
        executor.adjust(handle, adjust(MORE_PS))
    assert [server.objects[key]["spec"] for key in (TRAINJOB, RUNTIME)] == specs
    assert executor.observe(handle).allocation == BEFORE


def test_copy_of_a_job_that_cannot_be_restored_has_both_objects(
    server: StandIn, make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cluster_executor, "_RESTORE_TIMEOUT_S", 0.5)
    executor = make()
    handle = executor.launch(LAUNCH)
    server.fail("PATCH", "/trainingruntimes/", 403, message="no", after=1, times=100)
    with pytest.raises(SizewrightError, match="Its object is in"):
        executor.adjust(handle, adjust(MORE_PS))
    (kept,) = tmp_path.glob("sizewright-*/*.yaml")
    assert [each["kind"] for each in yaml.safe_load_all(kept.read_text())] == ["TrainingRuntime", "TrainJob"]


def test_runtime_of_somebody_else_is_not_touched(server: StandIn, make: Make) -> None:
    runtime, _ = yaml.safe_load_all(TrainJobExecutor().render(LAUNCH))
    del runtime["metadata"]["labels"]
    server.create("TrainingRuntime", "default", runtime)
    before = copy.deepcopy(server.objects)
    for call in (make().launch, make().difference):
        with pytest.raises(InputError, match="TrainingRuntime default/ctr exists, and Sizewright did not make it"):
            call(LAUNCH)
    assert server.objects == before


def test_runtime_that_a_job_left_behind_is_used_again(server: StandIn, make: Make) -> None:
    make().launch(LAUNCH)
    server.delete(*TRAINJOB)
    assert make().difference(LAUNCH)
    handle = make().launch(LAUNCH.model_copy(update={"target": MORE_PS}))
    assert make().observe(handle).allocation == MORE_PS


def test_launch_waits_for_a_runtime_that_is_being_deleted(server: StandIn, make: Make) -> None:
    make().launch(LAUNCH)
    server.delete(*TRAINJOB)
    server.objects[RUNTIME]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    reads = []

    def forget(method: str, path: str, answer: Any) -> Any:
        if method == "GET" and path.endswith("/trainingruntimes/ctr"):
            reads.append(path)
            if len(reads) == 2:
                server.delete(*RUNTIME)
        return answer

    server.odd = forget
    handle = make().launch(LAUNCH)
    assert "deletionTimestamp" not in server.objects[RUNTIME]["metadata"]
    assert make().observe(handle).allocation == BEFORE


def test_job_that_is_created_again_by_its_object_alone_keeps_its_runtime(server: StandIn, make: Make) -> None:
    executor = make()
    executor.launch(LAUNCH)
    (listed,) = executor.api.list("trainer.kubeflow.org/v1alpha1", "TrainJob", "default", "sizewright/job-hash")
    executor.recreate(listed, executor.as_created(listed))
    assert roles_of_pods(server) == ["node", "node", "ps"]


BASE = """\
# Ours.
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata:
  name: our-runtime
spec:
  mlPolicy: {numNodes: 1}
  template:
    spec:
      replicatedJobs:
      - name: dataset-initializer
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: dataset-initializer}}
          spec: {template: {spec: {restartPolicy: Never, containers: [{name: dataset-initializer, image: "ours:1"}]}}}
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            template:
              spec:
                containers:
                - {name: node, image: "ours:1", resources: &sizes {requests: {cpu: "3", memory: 2Gi}}}
      - name: NAME
        replicas: 1
        template:
          spec:
            parallelism: 4   # ours
            completions: 4
            template:
              spec:
                containers:
                - {name: server, image: "ours:1", resources: *sizes}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  generateName: ctr-
spec:
  runtimeRef: {name: our-runtime, kind: TrainingRuntime}
  trainer:
    numNodes: 4   # ours
    resourcesPerNode:
      requests: {cpu: "3", memory: 2Gi}
"""


@pytest.fixture
def base(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "base.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(("name", "roles"), [("ps", {}), ("pserver", {}), ("tables", {"ps": "tables"})])
def test_base_with_both_documents_keeps_all_but_its_sizes(
    base: Callable[[str], Path], name: str, roles: dict[str, str]
) -> None:
    executor = TrainJobExecutor(base=base(BASE.replace("NAME", name)), roles=roles)
    text = executor.render(LAUNCH)
    expected = BASE.replace("NAME", name)
    for before, after in (
        ("parallelism: 4", "parallelism: 1"), ("completions: 4", "completions: 1"), ("numNodes: 4", "numNodes: 2"),
        ('requests: {cpu: "3", memory: 2Gi}\n', 'requests: {cpu: "1", memory: 1024Mi}\n'),
        ("&sizes ", ""), ("resources: *sizes", 'resources: {requests: {cpu: "500m", memory: 2Gi}}'),
    ):  # fmt: skip
        assert before in expected
        expected = expected.replace(before, after)
    assert text == expected
    remarks = executor.remarks(LAUNCH)
    path = "TrainingRuntime spec.template.spec.replicatedJobs"
    assert any(
        each.startswith(f"{path}[dataset-initializer] is not in the plan and stays unchanged") for each in remarks
    )
    assert any(each.startswith(f"{path}[pserver] is taken for ps") for each in remarks) == (name == "pserver")
    read = TrainJobExecutor(roles=roles).parse(text).target
    assert (read.replicas("worker"), read.ps) == (2, (Group(replicas=1, cpu=0.5, memory_bytes=2 * GIB),))


def test_runtime_of_a_base_is_applied_under_the_name_of_the_job(
    server: StandIn, make: Make, base: Callable[[str], Path]
) -> None:
    executor = make(base=base(BASE.replace("NAME", "ps")))
    handle = executor.launch(LAUNCH)
    assert [name for kind, _, name in server.objects if kind == "TrainingRuntime"] == ["ctr"]
    assert server.objects[TRAINJOB]["spec"]["runtimeRef"]["name"] == "ctr"
    assert roles_of_pods(server) == ["dataset-initializer", "node", "node", "ps"]
    assert executor.observe(handle).allocation == BEFORE
    executor.adjust(handle, adjust(MORE_PS))
    assert executor.observe(handle).allocation == MORE_PS


@pytest.mark.parametrize("runtime", ["", "our-other"])
def test_base_without_the_runtime_of_its_job_is_refused_for_ps(base: Callable[[str], Path], runtime: str) -> None:
    text = BASE.replace("NAME", "ps")
    path = base(text.replace("name: our-runtime", f"name: {runtime}", 1) if runtime else text.partition("---\n")[2])
    with pytest.raises(
        InputError, match="has no TrainingRuntime that its TrainJob names, but plan p-1 has ps"
    ) as caught:
        TrainJobExecutor(base=path).render(LAUNCH)
    assert "spec.runtimeRef" in caught.value.remedy


def test_jobs_of_a_base_may_have_names_of_their_own(server: StandIn, make: Make, base: Callable[[str], Path]) -> None:
    text = BASE.replace("NAME", "ps").replace("- name: node", "- name: nodes").replace("dataset-initializer", "ps-2")
    executor = make(base=base(text))
    handle = executor.launch(LAUNCH)
    document = executor._existing_object(handle)
    assert executor.role_names(document) == {"worker": "nodes", "ps": "ps"}
    assert executor.sizes_of(document)["ps"] == BEFORE.ps
    assert any("[ps-2] is not in the plan and stays unchanged" in each for each in executor.remarks(LAUNCH))


@pytest.mark.parametrize("needed", ["  mlPolicy: {numNodes: 1}\n", "trainjob-ancestor-step: trainer"])
def test_runtime_by_which_trainer_ignores_sizes_is_reported(base: Callable[[str], Path], needed: str) -> None:
    text, ignored = BASE.replace("NAME", "ps"), "Trainer ignores numNodes and resourcesPerNode"
    assert not any(ignored in each for each in TrainJobExecutor(base=base(text)).remarks(LAUNCH))
    text = text.replace(needed, "" if needed.endswith("\n") else "other: x")
    assert any(ignored in each for each in TrainJobExecutor(base=base(text)).remarks(LAUNCH))


def test_runtime_without_the_ps_of_a_plan_is_refused(base: Callable[[str], Path]) -> None:
    with pytest.raises(InputError, match="there: trainer, dataset-initializer, tables") as caught:
        TrainJobExecutor(base=base(BASE.replace("NAME", "tables"))).render(LAUNCH)
    assert "--role ps=" in caught.value.remedy


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("  mlPolicy: {numNodes: 1}\n  template:", "  mlPolicy: {numNodes: 1}\n  templates:", "must be a mapping"),
        ("replicatedJobs:\n", "jobs:\n", "has no spec.replicatedJobs"),
        ("parallelism: 4", "parallelism: four", r"replicatedJobs\[ps\].parallelism is 'four'"),
        (
            "template:\n          spec:\n            parallelism",
            "template:\n          specs:\n            parallelism",
            r"replicatedJobs\[ps\]",
        ),
        ("metadata:\n  name: our", "meta:\n  name: our", "TrainingRuntime metadata must be a mapping"),
    ],
)
def test_invalid_field_of_a_runtime_is_named(right: str, wrong: str, message: str) -> None:
    text = BASE.replace("NAME", "ps")
    assert right in text
    with pytest.raises(InputError, match=message):
        TrainJobExecutor().parse(text.replace(right, wrong))
