"""Users' manifests get new sizes and keep everything else; settings that repeat a size are adapted or reported."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sizewright.errors import InputError
from sizewright.executors import get_executor
from sizewright.executors.kubernetes.manifest_executor import ManifestExecutor
from sizewright.formatting import GIB, MIB
from sizewright.spec import Allocation, Gpu, Group, Job, Plan

TARGET = Allocation.of(6, 2, 1.5, 0.5, 512, 512 * MIB, 384 * MIB)
LOWER = Allocation.of(2, 1, 1.5, 0.5, 512, 512 * MIB, 384 * MIB)
PLATFORMS = ["jobset", "kubeflow", "volcano", "kuberay", "dlrover"]
PLAN = Plan(id="p-1", kind="launch", job=Job(name="ctr"), target=TARGET, lower=LOWER, upper=TARGET, reason="best")


def executor_of(name: str, base: Path, **options: Any) -> ManifestExecutor:
    executor = get_executor(name, base=base, **options)
    assert isinstance(executor, ManifestExecutor)
    return executor


def sized(name: str, base: Path, plan: Plan = PLAN, **options: Any) -> Any:
    return yaml.safe_load(executor_of(name, base, **options).render(plan))


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "base.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("case", "name", "worker", "ps"),
    [
        ("M03/k3.yaml", "kubeflow", "Worker", "PS"),
        ("M04/k10.yaml", "kubeflow", "worker", "ps"),
        ("M13/v1.yaml", "volcano", "trainer", "pserver"),
        ("M17/r2.yaml", "kuberay", "worker", "ps"),
        ("M19/d1.yaml", "dlrover", "worker", "ps"),
        ("M19/k18.yaml", "kubeflow", "Worker", "PS"),
    ],
)
def test_public_manifest_changes_only_its_sizes(case: str, name: str, worker: str, ps: str, shared: Path) -> None:
    base = shared / "field" / case
    plan = Plan.load(shared / "field" / "_common" / "plan.yaml")
    executor = executor_of(name, base)
    before, after = yaml.safe_load(base.read_text()), yaml.safe_load(executor.render(plan))
    entries = executor.entries(after)
    assert [entries[role]["replicas"] for role in (worker, ps)] == [6, 2]
    requested = executor.sizes_of(executor.document(plan))
    assert (requested["worker"][0].cpu, requested["worker"][0].memory_bytes) == (1.5, 512 * MIB)
    assert (requested["ps"][0].cpu, requested["ps"][0].memory_bytes) == (0.5, 384 * MIB)
    assert _without_sizes(after, executor, (worker, ps)) == _without_sizes(before, executor, (worker, ps))
    assert executor.as_rendered(plan).target.replicas("worker") == 6  # what guardrails are held to


def test_changed_base_is_read_again(tmp_path: Path) -> None:
    text = get_executor("kubeflow").render(PLAN)
    executor = executor_of("kubeflow", written(tmp_path, text + "# first\n"))
    assert executor.render(PLAN).endswith("# first\n")
    written(tmp_path, text + "# second\n")
    assert executor.render(PLAN).endswith("# second\n")


_COUNTS = ("replicas", "parallelism", "completions", "minAvailable", "minReplicas", "maxReplicas")


def _without_sizes(document: Any, executor: ManifestExecutor, names: tuple[str, ...]) -> Any:
    """Return what a plan does not write."""
    document = copy.deepcopy(document)
    for name, entry in executor.entries(document).items():
        if name in names:
            inner = executor.inner_entry(entry, name)
            for key in (*_COUNTS, "rayStartParams"):
                entry.pop(key, None)
                inner.pop(key, None)
            containers = inner["template"]["spec"]["containers"]
            main = next((c for c in containers if c.get("name") in executor.containers), containers[0])
            resources = main.get("resources") or {}
            for kind in ("requests", "limits"):
                amounts = {k: v for k, v in (resources.get(kind) or {}).items() if k not in ("cpu", "memory")}
                resources[kind] = amounts
                if not amounts:
                    del resources[kind]
            if not resources:
                main.pop("resources", None)
    document["spec"].pop("minAvailable", None)
    return document


def test_base_with_generate_name_is_sized(tmp_path: Path) -> None:
    text = get_executor("kubeflow").render(PLAN).replace("  name: ctr\n", "  generateName: ctr-\n")
    assert executor_of("kubeflow", written(tmp_path, text)).render(PLAN) == text
    with pytest.raises(InputError, match="generateName is 'A b'"):
        sized("kubeflow", written(tmp_path, text.replace("ctr-\n", "A b-\n")))


RAY_JOB = """\
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: ctr}
spec:
  entrypoint: NUM_WORKERS=4 python train.py --num-workers 2 --epochs 2
  runtimeEnvYAML: |
    env_vars:
      WORLD_SIZE: "4"
  rayClusterSpec:
    headGroupSpec: {rayStartParams: {}, template: {spec: {containers: [{name: ray-head, image: r}]}}}
    workerGroupSpecs:
    - replicas: 2
      minReplicas: 1
      maxReplicas: 5
      groupName: small-group
      rayStartParams: {num-cpus: "4", num-gpus: '0', memory: '8589934592', object-store-memory: '2147483648'}
      template: {spec: {containers: [{name: ray-worker, image: r, resources: {limits: {cpu: 4, memory: 8Gi}}}]}}
"""


def test_only_group_is_taken_for_the_workers(tmp_path: Path) -> None:
    workers = PLAN.model_copy(update={"target": Allocation.of(6, 0, 1.5, 1, 512, 512 * MIB)})
    executor = executor_of("kuberay", written(tmp_path, RAY_JOB))
    (group,) = yaml.safe_load(executor.render(workers))["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert (group["groupName"], group["replicas"], group["minReplicas"]) == ("small-group", 6, 2)
    assert group["rayStartParams"] == {
        "num-cpus": "2", "num-gpus": "0", "memory": str(512 * MIB), "object-store-memory": str(128 * MIB)
    }  # fmt: skip
    remarks = " ".join(executor.remarks(workers))
    assert "small-group] is taken for worker" in remarks
    assert "spec.entrypoint: NUM_WORKERS says 4; workers are now 6." in remarks
    assert "spec.entrypoint: --num-workers says 2; workers are now 6." in remarks
    assert "spec.runtimeEnvYAML: WORLD_SIZE says 4; workers are now 6." in remarks
    assert "object-store-memory was 2147483648" in remarks
    assert "epochs" not in remarks
    with pytest.raises(InputError, match=r"has no ps in .*there: small-group") as caught:
        executor.render(PLAN)
    assert "--role ps=NAME" in caught.value.remedy


def test_ray_parameter_that_differs_from_the_container_is_reported(tmp_path: Path) -> None:
    text = RAY_JOB.replace('num-cpus: "4"', 'num-cpus: "16"').replace("limits: {cpu: 4, memory: 8Gi}", "")
    workers = PLAN.model_copy(update={"target": Allocation.of(6, 0, 1.5, 1, 512)})
    executor = executor_of("kuberay", written(tmp_path, text))
    (group,) = yaml.safe_load(executor.render(workers))["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert group["rayStartParams"]["num-cpus"] == "2"
    assert group["rayStartParams"]["memory"] == "8589934592"  # how much there is is not known
    assert any("num-cpus was 16" in remark for remark in executor.remarks(workers))


def test_replica_of_several_hosts_is_refused(tmp_path: Path) -> None:
    text = RAY_JOB.replace("groupName: small-group", "groupName: worker\n      numOfHosts: 4")
    workers = PLAN.model_copy(update={"target": Allocation.of(6, 0, 1.5, 1, 512)})
    with pytest.raises(InputError, match="numOfHosts is 4"):
        sized("kuberay", written(tmp_path, text), workers)


VOLCANO_JOB = """\
apiVersion: v1
kind: List
items:
- apiVersion: scheduling.volcano.sh/v1beta1
  kind: Queue
  metadata: {name: ads}
  spec: {weight: 1}
- apiVersion: batch.volcano.sh/v1alpha1
  kind: Job
  metadata: {name: ctr, namespace: ads}
  spec:
    minAvailable: 4
    tasks:
    - {name: scheduler, replicas: 1, template: {spec: {containers: [{name: s, image: i}]}}}
    - {name: servers, replicas: 1, minAvailable: 1, template: {spec: {containers: [{name: s, image: i}]}}}
    - name: nodes
      replicas: 4
      minAvailable: 4
      template:
        spec:
          initContainers: [{name: copy, image: i, resources: {limits: {cpu: 9, memory: 9Gi}}}]
          containers:
          - name: train
            image: i
            command: ["bash", "-c", "OMP_NUM_THREADS=8 torchrun --nnodes=4 --nproc_per_node 8 train.py --epochs 4"]
            env: [{name: WORLD_SIZE, value: "4"}, {name: PADDLE_PSERVERS_NUM, value: "1"}, {name: SEED, value: "4"}]
            resources: {requests: {cpu: 8, memory: 1Gi, amd.com/gpu: 8}, limits: {cpu: 16, amd.com/gpu: 8}}
          - {name: proxy, image: i, resources: {requests: {cpu: 4, memory: 1Gi}}}
"""
MAPPED = {"worker": "nodes", "ps": "servers"}


def test_roles_are_mapped_and_the_rest_is_kept(tmp_path: Path) -> None:
    executor = executor_of("volcano", written(tmp_path, VOLCANO_JOB), roles=MAPPED)
    queue, job = yaml.safe_load(executor.render(PLAN))["items"]
    before = yaml.safe_load(VOLCANO_JOB)["items"]
    assert queue == before[0]
    scheduler, servers, nodes = job["spec"]["tasks"]
    assert scheduler == before[1]["spec"]["tasks"][0]
    assert (servers["replicas"], servers["minAvailable"]) == (2, 2)
    assert (nodes["replicas"], nodes["minAvailable"]) == (6, 2)  # asynchronous: as few as the plan's lower
    assert job["spec"]["minAvailable"] == 1 + 2 + 2
    train, proxy = nodes["template"]["spec"]["containers"]
    assert proxy == before[1]["spec"]["tasks"][2]["template"]["spec"]["containers"][1]
    assert train["resources"] == {
        "requests": {"cpu": "1500m", "memory": "512Mi", "amd.com/gpu": 8}, "limits": {"cpu": "1500m", "amd.com/gpu": 8}
    }  # fmt: skip
    remarks = executor.remarks(PLAN)
    assert remarks == [
        "spec.tasks[scheduler] is not in the plan and stays unchanged (1 × its current size).",
        "spec.tasks[nodes]: container train is taken for the one that trains.",
        "spec.tasks[nodes]: an init container requests 9 of cpu, more than the 5500m of the containers that run after "
        "it: each pod takes the larger amount. Lower the request of the init container.",
        "spec.tasks[nodes]: an init container requests 9216Mi of memory, more than the 1536Mi of the containers that "
        "run after it: each pod takes the larger amount. Lower the request of the init container.",
        "spec.tasks[nodes] keeps 8 amd.com/gpu per replica: the plan has no GPUs.",
        "spec.tasks[nodes]: OMP_NUM_THREADS says 8; the cores of each are now 1.5.",
        "spec.tasks[nodes]: --nnodes says 4; workers are now 6.",
        "spec.tasks[nodes]: WORLD_SIZE says 4; workers are now 6.",
        "spec.tasks[nodes]: PADDLE_PSERVERS_NUM says 1; PS are now 2.",
    ]


def test_synchronous_workers_start_together(tmp_path: Path) -> None:
    job = PLAN.job.model_copy(update={"training": PLAN.job.training.model_copy(update={"sync": "sync"})})
    plan = PLAN.model_copy(update={"job": job})
    for name in ("volcano", "kuberay"):
        text = get_executor(name).render(plan)
        assert ("minAvailable: 6" in text) == (name == "volcano")
        assert ("minReplicas: 6" in text) == (name == "kuberay")
    more = Allocation.of(9, 3, 1.5, 0.5, 512)
    unequal = PLAN.model_copy(update={"lower": more})  # a lower that has more replicas than the target
    assert yaml.safe_load(get_executor("volcano").render(unequal))["spec"]["minAvailable"] == 8


def test_gang_of_a_tfjob_follows_its_sizes(tmp_path: Path) -> None:
    document = yaml.safe_load(get_executor("kubeflow").render(PLAN))
    policy = {"minAvailable": 40, "minResources": {"cpu": "80", "memory": "1Ti", "pods": 40}, "queue": "ads"}
    document["spec"]["runPolicy"]["schedulingPolicy"] = policy
    base = written(tmp_path, yaml.safe_dump(document))
    got = sized("kubeflow", base)["spec"]["runPolicy"]["schedulingPolicy"]
    assert got == {
        "minAvailable": 4, "minResources": {"cpu": "4", "memory": "1792Mi", "pods": 40}, "queue": "ads"
    }  # fmt: skip


def test_file_with_several_jobs_sizes_the_one_with_the_plans_name(tmp_path: Path) -> None:
    text = get_executor("dlrover").render(PLAN.model_copy(update={"target": LOWER}))
    both = text.replace("name: ctr\n", "name: other\n") + "---\n" + text + "---\n"
    documents = list(yaml.safe_load_all(executor_of("dlrover", written(tmp_path, both)).render(PLAN)))
    counts = [d["spec"]["replicaSpecs"]["worker"]["replicas"] for d in documents if d]
    assert counts == [2, 6]
    with pytest.raises(InputError, match=r"has 2 ElasticJobs \(other, ctr\), and none of them is named new"):
        sized("dlrover", tmp_path / "base.yaml", PLAN.model_copy(update={"job": Job(name="new")}))


def test_chief_keeps_the_size_that_an_alias_shares_with_the_workers(tmp_path: Path) -> None:
    text = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: ctr}
spec:
  tfReplicaSpecs:
    Master:
      template: {spec: {containers: [{name: tensorflow, image: i, resources: &size {requests: {cpu: 4, memory: 4Gi}}}]}}
    Worker:
      template:
        spec:
          containers:
          - {name: tensorflow, image: i, resources: *size}
    PS:
      template:
        spec:
          containers:
          - name: tensorflow
            image: i
            resources: {<<: *size}
"""
    executor = executor_of("kubeflow", written(tmp_path, text))
    specs = yaml.safe_load(executor.render(PLAN))["spec"]["tfReplicaSpecs"]
    requested = {
        role: spec["template"]["spec"]["containers"][0]["resources"]["requests"] for role, spec in specs.items()
    }
    assert requested == {
        "Master": {"cpu": 4, "memory": "4Gi"}, "Worker": {"cpu": "1500m", "memory": "512Mi"},
        "PS": {"cpu": "500m", "memory": "384Mi"},
    }  # fmt: skip
    assert "replicas" not in specs["Master"]


@pytest.mark.parametrize("name", PLATFORMS)
def test_unknown_memory_is_not_requested(name: str, tmp_path: Path) -> None:
    plan = PLAN.model_copy(update={"target": Allocation.of(2, 1, 1, 1, 512)})
    executor = executor_of(name, written(tmp_path, get_executor(name).render(PLAN)))
    assert [group.memory_bytes for _, group in plan.target.groups] == [0, 0]
    assert [groups[0].memory_bytes for groups in executor.sizes_of(executor.document(plan)).values()] == [
        512 * MIB,
        384 * MIB,
    ]
    assert sum("plan has no memory" in remark for remark in executor.remarks(plan)) == 2
    text = get_executor(name).render(plan)
    for entry in executor.entries(yaml.safe_load(text)).values():
        pod = executor.inner_entry(entry, "")["template"]["spec"]
        resources = pod["containers"][0]["resources"]
        assert resources == {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}


@pytest.mark.parametrize(
    ("kind", "resource"),
    [("gpu", "nvidia.com/gpu"), ("A100", "nvidia.com/gpu"), ("mi300x", "amd.com/gpu"), ("gaudi2", "habana.ai/gaudi")],
)
@pytest.mark.parametrize("name", PLATFORMS)
def test_gpus_are_requested_and_read_back(name: str, kind: str, resource: str, tmp_path: Path) -> None:
    gpu = Gpu(kind=kind, count=2)
    worker = Group(replicas=3, cpu=4, memory_bytes=GIB, gpu=gpu)
    plan = PLAN.model_copy(update={"target": TARGET.model_copy(update={"worker": (worker,)})})
    executor = get_executor(name)
    assert isinstance(executor, ManifestExecutor)
    text = executor.render(plan)
    entry = executor.entries(yaml.safe_load(text))[executor.roles["worker"]]
    resources = executor.inner_entry(entry, "")["template"]["spec"]["containers"][0]["resources"]
    assert [resources[part][resource] for part in ("requests", "limits")] == [2, 2]
    assert executor.parse(text) == plan
    base = executor_of(name, written(tmp_path, get_executor(name).render(PLAN)))
    assert base.sizes_of(base.document(plan))["worker"][0].gpu == Gpu(count=2)


def test_unknown_role_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'server' is not a role of a Job") as caught:
        executor_of("volcano", tmp_path, roles={"server": "x"})
    assert "worker, ps" in caught.value.remedy or "chief, worker" in caught.value.remedy
    base = written(tmp_path, VOLCANO_JOB)
    with pytest.raises(InputError, match="has no worker in") as caught:
        sized("volcano", base)
    assert "--role worker=scheduler" in caught.value.remedy
    with pytest.raises(InputError, match="has no trainers in"):
        sized("volcano", base, roles={"worker": "trainers", "ps": "servers"})


def test_line_breaks_and_layout_of_a_base_are_kept(tmp_path: Path) -> None:
    text = get_executor("volcano").render(PLAN.model_copy(update={"target": LOWER}))
    base = tmp_path / "base.yaml"
    base.write_bytes(text.replace("\n", "\r\n").encode())
    got = executor_of("volcano", base).render(PLAN)
    assert got.count("\r\n") == got.count("\n")
    odd = """\
apiVersion:   batch.volcano.sh/v1alpha1
kind: Job
metadata:   {name: ctr,   labels: {a:   b}}   # ours
spec:
  minAvailable:   3
  tasks:
      - name: worker
        replicas:   1
        template:
            spec:
                containers:
                  - name:   main
                    image: i
                    command: [ "a",  'b' ]
      - name: ps
        template: {spec:   {containers: [ {name: main, image: i} ]}}
"""
    got = executor_of("volcano", written(tmp_path, odd)).render(PLAN)
    assert [line for line in odd.split("\n") if line not in got.split("\n")] == [
        "  minAvailable:   3", "        replicas:   1",
        "        template: {spec:   {containers: [ {name: main, image: i} ]}}",
    ]  # fmt: skip
    assert yaml.safe_load(got)["spec"]["tasks"][0]["replicas"] == 6


# Random manifests: of each platform, with whatever users have around the sizes.

_EXTRAS = {
    "metadata": {"labels": {"team": "ads"}, "annotations": {"note": "on: purpose"}},
    "priority": 7,
    "volumes": [{"name": "data", "emptyDir": {"sizeLimit": "4Gi"}}],
    "nodeSelector": {"pool": "big"},
}
_SIDE = {"name": "proxy", "image": "p", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
_AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from([1, "2", "500m", 0.5]),
        "memory": st.sampled_from(["1Gi", "512Mi", 1 << 30]),
        "ephemeral-storage": st.just("1Gi"),
        "nvidia.com/gpu": st.sampled_from([1, "2"]),
    },
)


@st.composite
def _bases(draw: st.DrawFn, name: str) -> tuple[Any, dict[str, str]]:
    executor = get_executor(name)
    assert isinstance(executor, ManifestExecutor)
    mapped = {"worker": "learner", "ps": "store"} if executor.named_by and draw(st.booleans()) else {}
    words = {role: mapped.get(role, executor.roles[role]) for role in ("worker", "ps")}
    if not executor.named_by and draw(st.booleans()):
        words = {role: word.swapcase() for role, word in words.items()}
    document = yaml.safe_load(executor.render(PLAN))
    document["metadata"] = {draw(st.sampled_from(["name", "generateName"])): "ours"}
    document["spec"] |= {"someSetting": {"replicas": 4, "cpu": 8}}
    at = document["spec"]
    *path, last = executor.roles_path.split(".")[1:]
    for step in path:
        at = at[step]
    entries = executor.entries(document)
    specs: dict[str, Any] = {}
    for role, role_name in (("worker", executor.roles["worker"]), ("ps", executor.roles["ps"])):
        entry = copy.deepcopy(entries[role_name])
        inner = executor.inner_entry(entry, role_name)
        counted_by = executor.counter(entry, role_name).names
        for key in _COUNTS:
            if key in inner and draw(st.booleans()):
                inner[key] = draw(st.integers(1, 9))
            elif key in counted_by:
                del inner[key]
        pod = inner["template"]["spec"]
        main = pod["containers"][0]
        main["resources"] = draw(st.fixed_dictionaries({}, optional={"requests": _AMOUNTS, "limits": _AMOUNTS}))
        main["args"] = ["--lr", "0.1"]
        pod |= draw(st.fixed_dictionaries({}, optional={k: st.just(v) for k, v in _EXTRAS.items() if k != "metadata"}))
        if draw(st.booleans()):
            inner["template"]["metadata"] = _EXTRAS["metadata"]
        if draw(st.booleans()):
            pod["initContainers"] = [copy.deepcopy(_SIDE)]
        if draw(st.booleans()):
            pod["containers"].append(copy.deepcopy(_SIDE))
        specs[words[role]] = entry | ({executor.named_by: words[role]} if executor.named_by else {})
    if draw(st.booleans()):
        other = "Evaluator" if name == "kubeflow" else "evaluator"
        of_pod: Any = {"template": {"spec": {"containers": [{"name": "tensorflow", "image": "i"}]}}}
        for key in reversed(executor.entry_path):
            of_pod = {key: of_pod}
        specs[other] = {"replicas": 1, **of_pod} | ({executor.named_by: other} if executor.named_by else {})
    at[last] = list(specs.values()) if executor.named_by else specs
    return document, mapped


@pytest.mark.parametrize("name", PLATFORMS)
def test_random_bases_change_only_their_sizes(name: str, tmp_path: Path) -> None:
    _keep(name, tmp_path / "base.yaml", 15)


@pytest.mark.long
@pytest.mark.parametrize("name", PLATFORMS)
def test_many_random_bases_change_only_their_sizes(name: str, tmp_path: Path) -> None:
    _keep(name, tmp_path / "base.yaml", 25)


def _keep(name: str, base: Path, cases: int) -> None:
    @settings(max_examples=cases, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(_bases(name), st.integers(1, 20), st.integers(1, 5), st.sampled_from([0, GIB]), st.booleans())
    def kept(base_of: tuple[Any, dict[str, str]], workers: int, ps: int, memory: int, gpu: bool) -> None:
        document, mapped = base_of
        base.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        target = Allocation.of(workers, ps, 1.5, 0.5, 512, memory, memory)
        if gpu:
            more = target.worker[0].model_copy(update={"gpu": Gpu(count=3)})
            target = target.model_copy(update={"worker": (more,)})
        plan = PLAN.model_copy(update={"target": target})
        executor = executor_of(name, base, **({"roles": mapped} if mapped else {}))
        try:
            text = executor.render(plan)
        except InputError as error:
            assume("above the limit" not in error.message)  # what stays contradicts itself
            raise
        after = yaml.safe_load(text)
        words = executor.role_names(after)
        names = (words["worker"], words["ps"])
        gone = _without_gpus if gpu else _same
        assert gone(_without_sizes(after, executor, names)) == gone(_without_sizes(document, executor, names))
        for role in ("worker", "ps"):
            read, group = executor.sizes_of(executor.document(plan))[role][0], getattr(target, role)[0]
            assert (read.replicas, read.cpu) == (group.replicas, group.cpu)
            assert not memory or read.memory_bytes == memory
            assert not group.gpu or read.gpu == group.gpu
        base.write_text(text, encoding="utf-8")
        assert executor_of(name, base, **({"roles": mapped} if mapped else {})).render(plan) == text

    kept()


def _same(document: Any) -> Any:
    return document


def _without_gpus(document: Any) -> Any:
    if isinstance(document, dict):
        kept = {k: _without_gpus(v) for k, v in document.items() if k != "nvidia.com/gpu"}
        return {k: v for k, v in kept.items() if not (k in ("requests", "limits", "resources") and not v)}
    return [_without_gpus(each) for each in document] if isinstance(document, list) else document


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Return every mapping or list of a document with each of its keys."""
    if not isinstance(document, dict | list):
        return []
    items = document.items() if isinstance(document, dict) else enumerate(document)
    return [place for key, value in items for place in [(document, key), *_places(value)]]


@pytest.mark.parametrize("name", PLATFORMS)
def test_broken_base_raises_one_sentence(name: str, tmp_path: Path) -> None:
    full = yaml.safe_load(get_executor(name).render(PLAN))
    if name == "kubeflow":
        full["spec"]["runPolicy"]["schedulingPolicy"] = {"minAvailable": 3, "minResources": {"cpu": 1, "memory": "1Gi"}}
    if name == "dlrover":
        full["spec"]["resourceLimits"] = {"cpu": "5", "memory": "1Gi"}
    if name == "kuberay":
        for group in full["spec"]["rayClusterSpec"]["workerGroupSpecs"]:
            group |= {"numOfHosts": 1, "rayStartParams": {"num-cpus": "2", "memory": "9", "object-store-memory": "4"}}
        full["spec"]["runtimeEnvYAML"] = "env_vars: {A: '1'}"
    base = tmp_path / "base.yaml"
    odd = (None, "text", [None], -1, {"a": "b"})
    for i in range(len(_places(full))):
        document = copy.deepcopy(full)
        inside, key = _places(document)[i]
        inside[key] = odd[i % len(odd)]
        base.write_text(yaml.dump(document, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper)))
        with suppress(InputError):
            executor_of(name, base).remarks(PLAN)
            executor_of(name, base).as_rendered(PLAN)


_TFJOB = """\
# Of the ads team: ask before you change it.

%s---
# The job.
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: ctr}
spec:
  tfReplicaSpecs:
    Worker: {replicas: 2, template: {spec: {containers: [{name: tensorflow, image: i}]}}}
    PS: {replicas: 1, template: {spec: {containers: [{name: tensorflow, image: i}]}}}
# Below the job.
---   # another
# Its settings.
kind: ConfigMap
data:
  a: |
    # not a comment
    {{ left }}
# At the end."""


@pytest.mark.parametrize("directive", ["", "%YAML 1.2\n", "apiVersion: v1\nkind: Secret   # first\n"])
@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
def test_comments_around_documents_are_kept(tmp_path: Path, directive: str, line_break: str) -> None:
    path = tmp_path / "base.yaml"
    text = (_TFJOB % directive).replace("\n", line_break)
    path.write_bytes(text.encode())
    rendered = executor_of("kubeflow", path).render(PLAN)
    changed = [(a, b) for a, b in zip(text.split("\n"), rendered.split("\n"), strict=True) if a != b]
    assert [before.split(":")[0].strip() for before, _ in changed] == ["Worker", "PS"]


@pytest.mark.parametrize("indent", [None, 2, "\t"])
def test_manifest_in_json_stays_json(tmp_path: Path, indent: Any) -> None:
    document = yaml.safe_load(get_executor("kubeflow").render(PLAN))
    document["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] = 3
    text = json.dumps(document, indent=indent) + "\n"
    rendered = executor_of("kubeflow", written(tmp_path, text)).render(PLAN)
    assert rendered == text.replace('"replicas": 3', '"replicas": 6')
    assert json.loads(rendered)["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] == 6


def test_template_of_a_manifest_is_named(tmp_path: Path) -> None:
    text = _TFJOB % ""
    for template in ("replicas: {{ .Values.workers }}", "{{- if .Values.x }}\n"):
        base = written(tmp_path, text.replace("replicas: 2", template))
        with pytest.raises(InputError, match="is a template of Helm or Jinja") as caught:
            executor_of("kubeflow", base).render(PLAN)
        assert "helm template" in caught.value.remedy
    base = written(tmp_path, text.replace("image: i", 'image: "{{ image }}"'))
    with pytest.raises(InputError, match=r"holds \{\{ image }}"):
        executor_of("kubeflow", base).render(PLAN)


def test_manifest_in_another_encoding_is_read_or_refused(tmp_path: Path) -> None:
    base = tmp_path / "base.yaml"
    base.write_bytes((_TFJOB % "# é\n").encode("utf-16"))
    assert "# é" in executor_of("kubeflow", base).render(PLAN)
    base.write_bytes((_TFJOB % "# é\n").encode("latin-1"))
    with pytest.raises(InputError, match="is not UTF-8: byte 0xe9 at line 3"):
        executor_of("kubeflow", base).render(PLAN)


_POD = "{spec: {containers: [%s]}}"
_TASKS = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: ctr}
spec:
  tasks:
  - {name: worker, replicas: 2, template: %s}
  - {name: ps, replicas: 1, template: %s}
"""
_PROXY, _LOGS = "{name: proxy, image: envoy}", "{name: logs, image: fluent}"


@pytest.mark.parametrize(
    ("worker", "ps", "trains"),
    [
        ((_PROXY, "{name: main, image: t}"), ("{name: main, image: t}",), "main"),
        ((_PROXY, "{name: train, image: t}"), ("{name: train, image: t}",), "train"),
        ((_PROXY, "{name: worker, image: t:1}"), (_LOGS, "{name: server, image: t:1}"), "worker"),
        ((_PROXY, "{name: t, image: t, env: [{name: SIZEWRIGHT_WORKERS, value: '1'}]}"),
         (_PROXY, "{name: t, image: t, env: [{name: SIZEWRIGHT_PS, value: '1'}]}"), "t"),
    ],
)  # fmt: skip
def test_sidecar_that_comes_first_keeps_its_size(
    tmp_path: Path, worker: tuple[str, ...], ps: tuple[str, ...], trains: str
) -> None:
    base = written(tmp_path, _TASKS % (_POD % ", ".join(worker), _POD % ", ".join(ps)))
    executor = executor_of("volcano", base)
    containers = yaml.safe_load(executor.render(PLAN))["spec"]["tasks"][0]["template"]["spec"]["containers"]
    assert [each["name"] for each in containers if "resources" in each] == [trains]
    remark = f"container {trains} is taken for the one that trains"
    assert (remark in " ".join(executor.remarks(PLAN))) == (trains != "main")


def test_ambiguous_training_container_is_refused(tmp_path: Path) -> None:
    pod = _POD % f"{_PROXY}, {{name: train, image: t}}"
    with pytest.raises(InputError, match=r"has 2 containers \(proxy, train\), and it is unclear which one") as caught:
        sized("volcano", written(tmp_path, _TASKS % (pod, pod)))
    assert caught.value.remedy == "Name the one that trains main."


def test_tfjob_without_its_container_is_refused_with_the_reason(tmp_path: Path) -> None:
    text = (_TFJOB % "").replace("name: tensorflow", "name: trainer")
    with pytest.raises(InputError, match=r"no container named tensorflow, only trainer: .*refuses a TFJob without"):
        sized("kubeflow", written(tmp_path, text))


def test_ray_job_is_sized_in_its_first_container(tmp_path: Path) -> None:
    text = RAY_JOB.replace("containers: [{name: ray-worker, image: r,", "containers: [{name: mine, image: r,")
    text = text.replace("memory: 8Gi}}}]", "memory: 8Gi}}}, {name: ray-worker, image: x}]")
    workers = PLAN.model_copy(update={"target": Allocation.of(6, 0, 1.5, 1, 512, 512 * MIB)})
    (group,) = sized("kuberay", written(tmp_path, text), workers)["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    first, second = group["template"]["spec"]["containers"]
    assert (first["resources"]["limits"]["cpu"], second) == ("1500m", {"name": "ray-worker", "image": "x"})


@pytest.mark.parametrize(
    ("pod", "remark"),
    [
        ("initContainers: [{name: a, image: a, resources: {requests: {cpu: 8}}}]", "container requests 8 of cpu"),
        ("initContainers: [{name: a, image: a, resources: {limits: {memory: 4Gi}}}]", "requests 4096Mi of memory"),
        ("initContainers: [{name: s, image: a, restartPolicy: Always, resources: {requests: {cpu: 1}}}, "
         "{name: a, image: a, resources: {requests: {cpu: 2}}}]", "requests 3 of cpu, more than the 2500m of"),
        ("overhead: {cpu: 250m}", "overhead adds 250m of cpu to each pod"),
        ("resources: {requests: {cpu: 3}}", "the pod itself requests 3 of cpu"),
        ("initContainers: [{name: a, image: a, resources: {requests: {cpu: 1}}}]", ""),
    ],
)  # fmt: skip
def test_requests_beyond_the_containers_are_reported(tmp_path: Path, pod: str, remark: str) -> None:
    main = "containers: [{name: main, image: t}]"
    text = _TASKS % (f"{{spec: {{{pod}, {main}}}}}", f"{{spec: {{{main}}}}}")
    remarks = " ".join(executor_of("volcano", written(tmp_path, text)).remarks(PLAN))
    assert remark in remarks
    assert bool(remark) == ("[worker]" in remarks)


def test_gang_resources_include_init_containers_and_overhead(tmp_path: Path) -> None:
    init = "initContainers: [{name: a, image: a, resources: {requests: {cpu: 8}}}], overhead: {cpu: 1}, "
    text = (_TFJOB % "").replace("2, template: {spec: {", "2, template: {spec: {" + init)
    text = text.replace("spec:\n  tf", "spec:\n  runPolicy: {schedulingPolicy: {minResources: {cpu: 1}}}\n  tf")
    job, _ = yaml.safe_load_all(executor_of("kubeflow", written(tmp_path, text)).render(PLAN))
    assert job["spec"]["runPolicy"]["schedulingPolicy"]["minResources"]["cpu"] == "19"  # 2 × (8 + 1) and 2 × 0.5


TFJOB_OF_LIMITS = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: ctr}
spec:
  tfReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - name: tensorflow
            image: r
            env:
            - {name: TF_NUM_INTRAOP_THREADS, value: "8"}
            - {name: DMLC_NUM_WORKER, value: "2"}
            - {name: TF_CPP_MIN_LOG_LEVEL, value: "2"}
            resources:
              limits: {cpu: 8, memory: 8Gi, nvidia.com/gpu: 2}
"""


def test_amounts_that_are_only_limits_stay_limits(tmp_path: Path) -> None:
    gpu = Gpu(kind="gpu", count=1)
    worker = Group(replicas=6, cpu=1.5, memory_bytes=GIB, gpu=gpu)
    plan = PLAN.model_copy(update={"target": Allocation(worker=(worker,), batch_size=512)})
    executor = executor_of("kubeflow", written(tmp_path, TFJOB_OF_LIMITS))
    (container,) = executor.document(plan)["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert container["resources"] == {"limits": {"cpu": "1500m", "memory": "1024Mi", "nvidia.com/gpu": 1}}
    same = Group(replicas=2, cpu=8, memory_bytes=8 * GIB, gpu=Gpu(kind="gpu", count=2))
    as_it_is = plan.model_copy(update={"target": Allocation(worker=(same,), batch_size=512)})
    assert executor.render(as_it_is) == TFJOB_OF_LIMITS


def test_variables_that_repeat_a_size_are_reported(tmp_path: Path) -> None:
    worker = Group(replicas=6, cpu=1.5, memory_bytes=GIB)
    plan = PLAN.model_copy(update={"target": Allocation(worker=(worker,), batch_size=512)})
    remarks = " ".join(executor_of("kubeflow", written(tmp_path, TFJOB_OF_LIMITS)).remarks(plan))
    assert "TF_NUM_INTRAOP_THREADS says 8" in remarks
    assert "DMLC_NUM_WORKER says 2; workers are now 6" in remarks
    assert "LOG_LEVEL" not in remarks
