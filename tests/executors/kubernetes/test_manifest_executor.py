"""Promises of all executors whose platform takes manifests."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sizewright.errors import InputError
from sizewright.executors import get_executor
from sizewright.executors.kubernetes.dlrover import DlroverExecutor
from sizewright.executors.kubernetes.jobset import JobSetExecutor
from sizewright.executors.kubernetes.kubeflow import KubeflowExecutor
from sizewright.executors.kubernetes.kuberay import KuberayExecutor
from sizewright.executors.kubernetes.manifest_executor import ManifestExecutor
from sizewright.executors.kubernetes.volcano import VolcanoExecutor
from sizewright.executors.yaml_documents import from_yaml
from sizewright.formatting import GIB, MIB
from sizewright.spec import Allocation, Job, Plan
from tests.helpers.crds import validator
from tests.helpers.random_plans import plans

PLATFORMS = [DlroverExecutor(), JobSetExecutor(), KubeflowExecutor(), VolcanoExecutor(), KuberayExecutor()]
JOB = Job(name="ctr")


def plan(workers: int = 4, ps: int = 2, cpu: float = 0.5, memory: int = GIB, **more: object) -> Plan:
    target = Allocation.of(workers, ps, cpu, cpu, 512, memory, memory)
    return Plan(id="p-1", kind="launch", job=JOB, target=target, reason="Chosen.", **more)  # type: ignore[arg-type]


def fits(executor: ManifestExecutor) -> st.SearchStrategy[Plan]:
    return plans(max_groups=3 if executor.named_by else 1).filter(lambda p: len(p.job.name) <= executor.max_name_length)


@pytest.mark.parametrize("executor", PLATFORMS, ids=lambda e: e.name)
def test_rendered_plan_is_read_back(executor: ManifestExecutor) -> None:
    _hold(executor, 75)


@pytest.mark.long
@pytest.mark.parametrize("executor", PLATFORMS, ids=lambda e: e.name)
def test_more_plans_are_read_back(executor: ManifestExecutor) -> None:
    _hold(executor, 120)


def _hold(executor: ManifestExecutor, cases: int) -> None:
    @settings(max_examples=cases, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(fits(executor))
    def same(plan: Plan) -> None:
        text = executor.render(plan)
        assert executor.parse(text) == plan
        assert executor.build(plan).documents == from_yaml(text)
        validator(executor.kind).validate(yaml.safe_load(text))

    same()


@pytest.mark.parametrize("executor", PLATFORMS, ids=lambda e: e.name)
def test_sizes_changed_by_hand_are_read(executor: ManifestExecutor) -> None:
    launch = plan(memory=700 * MIB)
    text = executor.render(launch)
    assert text.count("700Mi") == 4
    changed = executor.parse(text.replace("700Mi", "1G").replace("cpu: 500m", "cpu: '0.7'"))
    assert {g.memory_bytes for _, g in changed.target.groups} == {10**9}
    assert {g.cpu for _, g in changed.target.groups} == {0.7}
    assert changed.model_copy(update={"target": launch.target}) == launch
    other = executor.parse(text.replace("value: '512'", "value: '64'"))
    assert other.target.batch_size == 64


@pytest.mark.parametrize("executor", PLATFORMS, ids=lambda e: e.name)
@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("700Mi", "400m", "resources.memory is '400m', which is only 0.4 bytes"),
        ("700Mi", "much", "resources.memory is 'much', which is not an amount"),
        ("cpu: 500m", "cpu: 1Gi", "resources.cpu is '1Gi', which is not a number of cores: it has no unit Gi"),
        ("cpu: 500m", "cpu: -1", "resources.cpu is '-1'"),
        ("replicas: 4", "replicas: four", "replicas is 'four'"),
        ("containers:", "container:", "has no containers"),
        ("kind: ", "kind: My", "holds: My"),
    ],
)
def test_invalid_field_is_named(executor: ManifestExecutor, right: str, wrong: str, message: str) -> None:
    text = executor.render(plan(memory=700 * MIB))
    if executor.entry_path:  # the entry is that of a Job
        right, wrong, message = (word.replace("replicas", "parallelism") for word in (right, wrong, message))
    assert right in text
    with pytest.raises(InputError, match=message) as caught:
        executor.parse(text.replace(right, wrong))
    assert caught.value.remedy


BASES = {
    "kubeflow": """\
# Ours: do not touch the volumes.
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: ours, namespace: "ads"}   # flow, on purpose
spec:
  tfReplicaSpecs:
    PS:
      replicas: 1        # was 3
      template:
        spec:
          containers:
          - name: tensorflow
            image: 'ours:1'
            resources: {requests: {cpu: "0.5", memory: 1Gi}}
    Worker:
      replicas: 4
      template:
        spec:
          containers:
          - name: sidecar
            image: proxy
            resources: {requests: {cpu: 100m}}
          - name: tensorflow
            image: ours:1
            env:
            - {name: SIZEWRIGHT_BATCH_SIZE, value: "512"}
            resources:
              requests:
                cpu: 1
                memory: 512Mi  # a guess
                ephemeral-storage: 10Gi
              limits:
                memory: 512Mi
""",
}


def test_base_changes_only_its_sizes(tmp_path: Path) -> None:
    base = tmp_path / "base.yaml"
    base.write_text(BASES["kubeflow"], encoding="utf-8")
    text = KubeflowExecutor(base=base).render(plan(workers=6, ps=2, cpu=0.5))
    expected = (
        BASES["kubeflow"]
        .replace("replicas: 1        # was 3", "replicas: 2        # was 3")
        .replace("replicas: 4", "replicas: 6")
        .replace("cpu: 1\n", "cpu: 500m\n")
        .replace("memory: 512Mi  # a guess", "memory: 1024Mi # a guess")
        .replace("limits:\n                memory: 512Mi", "limits:\n                memory: 1024Mi")
    )
    assert text == expected


def test_base_with_the_plans_sizes_stays_unchanged(tmp_path: Path) -> None:
    base = tmp_path / "base.yaml"
    for executor in PLATFORMS:
        launch = plan()
        base.write_text(executor.render(launch), encoding="utf-8")
        assert type(executor)(base=base).render(launch) == base.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "is not YAML"),
        ("", "no TFJob; it holds: nothing"),
        ("- 1", "it holds: "),
        (BASES["kubeflow"].replace("TFJob", "PyTorchJob"), "no TFJob; it holds: PyTorchJob"),
        (BASES["kubeflow"].replace("kubeflow.org/v1", "kubeflow.org/v2"), "apiVersion 'kubeflow.org/v2'"),
        (BASES["kubeflow"] + "---\n" + BASES["kubeflow"], "has 2 TFJobs"),
        (BASES["kubeflow"].replace("    PS:", "    Servers:"), "has no PS in spec.tfReplicaSpecs"),
        (BASES["kubeflow"].replace("tfReplicaSpecs", "replicaSpecs"), "has no spec.tfReplicaSpecs"),
        (BASES["kubeflow"].replace("SIZEWRIGHT_BATCH_SIZE", "OTHER"), "batch size is 256"),
    ],
)
def test_unsuitable_base_is_refused(tmp_path: Path, text: str, message: str) -> None:
    base = tmp_path / "base.yaml"
    base.write_text(text, encoding="utf-8")
    launch = plan()
    target = launch.target.model_copy(update={"batch_size": 256})
    with pytest.raises(InputError, match=message) as caught:
        KubeflowExecutor(base=base).render(launch.model_copy(update={"target": target}))
    assert caught.value.remedy


def test_missing_base_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        KubeflowExecutor(base=tmp_path / "none.yaml").render(plan())


def test_keep_plan_is_not_rendered() -> None:
    keep = plan().model_copy(update={"kind": "keep"})
    for executor in PLATFORMS:
        with pytest.raises(InputError, match="keeps the job as it is"):
            executor.render(keep)


def test_gang_minimum_is_lower_workers_and_all_ps() -> None:
    lower = plan(workers=2).target
    document = yaml.safe_load(VolcanoExecutor().render(plan(workers=6, ps=3, lower=lower)))
    assert document["spec"]["minAvailable"] == 5
    assert [(t["name"], t["minAvailable"]) for t in document["spec"]["tasks"]] == [("worker", 2), ("ps", 3)]


def test_ray_groups_may_be_scaled_between_lower_and_upper() -> None:
    launch = plan(workers=6, ps=3, lower=plan(workers=2).target, upper=plan(workers=9, ps=4).target)
    document = yaml.safe_load(KuberayExecutor().render(launch))
    ranges = [
        (g["groupName"], g["minReplicas"], g["replicas"], g["maxReplicas"])
        for g in document["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    ]
    assert ranges == [("worker", 2, 6, 9), ("ps", 2, 3, 4)]


def test_sizes_shared_by_an_alias_are_separated(tmp_path: Path) -> None:
    document = KubeflowExecutor().render(plan())
    text = yaml.safe_load(document)
    specs = text["spec"]["tfReplicaSpecs"]
    specs["PS"]["template"] = specs["Worker"]["template"]  # written as an anchor and its alias
    base = tmp_path / "base.yaml"
    base.write_text(yaml.safe_dump(text), encoding="utf-8")
    assert "&id001" in base.read_text(encoding="utf-8")
    target = plan().target
    other = target.ps[0].model_copy(update={"cpu": target.worker[0].cpu * 2})
    launch = plan().model_copy(update={"target": target.model_copy(update={"ps": (other,)})})
    sized = KubeflowExecutor(base=base)
    assert sized.sizes_of(sized.document(launch)) == {"worker": target.worker, "ps": (other,)}
    text = sized.render(launch)
    assert KubeflowExecutor(base=base).render(launch) == text


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("resources:", "resources: [cpu]\n            was:", "resources must be a mapping, got .*cpu"),
        ("env:", "env: [A=b]\n            was:", "env must be a mapping, got 'A=b'"),
        ("sizewright/plan-record:", "sizewright/plan-record: text\n    was:", "The plan in the manifest"),
    ],
)
def test_value_that_must_be_a_mapping_is_refused(right: str, wrong: str, message: str) -> None:
    text = KubeflowExecutor().render(plan())
    assert right in text
    with pytest.raises(InputError, match=message):
        KubeflowExecutor().parse(text.replace(right, wrong, 1))


def test_invalid_batch_size_is_refused() -> None:
    text = KubeflowExecutor().render(plan())
    assert "value: '512'" in text
    with pytest.raises(InputError, match="batch_size must be at least 1, got 0"):
        KubeflowExecutor().parse(text.replace("value: '512'", "value: '0'"))


def test_as_rendered_includes_what_a_base_asks_for(tmp_path: Path) -> None:
    document = yaml.safe_load(KubeflowExecutor().render(plan()))
    specs = document["spec"]["tfReplicaSpecs"]
    specs["Evaluator"] = {**specs["Worker"], "replicas": 50}
    pod = specs["Worker"]["template"]["spec"]
    pod["priorityClassName"] = "system-critical"
    pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 8
    base = tmp_path / "base.yaml"
    base.write_text(yaml.dump(document, Dumper=_Plain), encoding="utf-8")
    rendered = KubeflowExecutor(base=base).as_rendered(plan())
    assert rendered.target.replicas("evaluator") == 50
    assert rendered.target.gpus() >= 8
    assert rendered.job.deploy.priority_class == "system-critical"


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


@pytest.mark.parametrize(
    ("name", "by_kubectl"),
    [("jobset", False), ("kubeflow", False), ("volcano", False), ("kuberay", False), ("dlrover", True)],
)
def test_header_of_a_change_names_kubectl_only_where_it_restarts_pods(name: str, by_kubectl: bool) -> None:
    one, two = (Allocation.of(workers, 1, 1.0, 1.0, 512) for workers in (1, 2))
    launch = Plan(id="p-1", kind="launch", job=Job(name="ctr"), target=one, reason="first")
    change = Plan(id="p-2", kind="adjust", job=Job(name="ctr"), current=one, target=two, reason="more")
    executor = get_executor(name)
    other_batch = change.model_copy(update={"target": two.model_copy(update={"batch_size": 256})})
    assert "or kubectl apply" not in executor.render(other_batch)
    assert "or kubectl apply" in executor.render(launch)
    assert ("or kubectl apply" in executor.render(change)) is by_kubectl
