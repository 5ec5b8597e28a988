"""What is a PyTorchJob's own: its Master is the first worker, and has the size of the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from sizewright.errors import InputError
from sizewright.executors import get_executor
from sizewright.executors.kubernetes.pytorchjob import PyTorchJobExecutor
from sizewright.executors.yaml_documents import from_yaml
from sizewright.formatting import GIB
from sizewright.spec import Allocation, Gpu, Group, Job, Plan
from sizewright.spec.command import Command
from tests.helpers.crds import validator
from tests.helpers.random_plans import plans, without_ps
from tests.helpers.stand_in import StandIn, stand_in


def plan(workers: int = 4, cpu: float = 1.5, gpus: int = 0, run: str = "python train.py") -> Plan:
    worker = Group(replicas=workers, cpu=cpu, memory_bytes=GIB, gpu=Gpu(count=gpus) if gpus else None)
    target = Allocation(worker=(worker,), ps=(), batch_size=512)
    job = Job(name="ctr", command=Command(run=run, rendezvous="torchrun"))
    return Plan(id="p-1", kind="launch", job=job, target=target, reason="best")


def entries(text: str) -> dict[str, Any]:
    specs: dict[str, Any] = yaml.safe_load(text)["spec"]["pytorchReplicaSpecs"]
    return specs


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plans().map(without_ps))
def test_rendered_plan_is_read_back(plan: Plan) -> None:
    executor = PyTorchJobExecutor()
    text = executor.render(plan)
    assert executor.parse(text) == plan
    assert executor.build(plan).documents == from_yaml(text)
    validator("PyTorchJob").validate(yaml.safe_load(text))


@pytest.mark.parametrize("workers", [1, 4])
def test_master_is_one_of_the_workers(workers: int) -> None:
    text = PyTorchJobExecutor().render(plan(workers))
    assert yaml.safe_load(text)["spec"].keys() == {"runPolicy", "pytorchReplicaSpecs"}
    master, others = entries(text).values()
    assert (master["replicas"], others["replicas"]) == (1, workers - 1)
    assert master["template"] == others["template"]
    (container,) = master["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "1500m", "memory": "1024Mi"}
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["SIZEWRIGHT_WORKERS"] == str(workers)
    assert (variables["LOCAL_RANK"], variables["LOCAL_WORLD_SIZE"]) == ("0", "1")
    assert not {"MASTER_ADDR", "RANK", "WORLD_SIZE", "SIZEWRIGHT_INDEX"} & variables.keys(), "the operator sets them"


def test_number_of_a_pod_cannot_be_used() -> None:
    with pytest.raises(InputError, match="a PyTorchJob does not number its replicas"):
        PyTorchJobExecutor().render(plan(run="python train.py --rank {index}"))


def test_ps_are_refused() -> None:
    with_ps = plan().model_copy(update={"target": Allocation.of(2, 1, 1.0, 1.0, 512, GIB, GIB)})
    with pytest.raises(InputError, match="A PyTorchJob has no ps, but plan p-1 has") as caught:
        PyTorchJobExecutor().render(with_ps)
    assert "executor jobset" in caught.value.remedy


BASE = """\
# Ours.
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  generateName: ctr-
  labels: {kueue.x-k8s.io/queue-name: ads}
spec:
  nprocPerNode: "8"
  runPolicy:
    suspend: true   # Kueue's
    schedulingPolicy: {minAvailable: 3, minResources: {cpu: "9"}}
  pytorchReplicaSpecs:
    master:
      replicas: 1
      template:
        spec:
          containers:
          - name: pytorch
            image: ours
            resources: &size
              limits: {nvidia.com/gpu: 8}
              requests: {cpu: "3", memory: 2Gi}
    worker:
      replicas: 2   # ours
      template:
        spec:
          nodeSelector: {fast: "yes"}
          containers:
          - name: pytorch
            image: ours
            args: [--nnodes=3]
            resources: *size
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "base.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_base_keeps_all_but_its_sizes(tmp_path: Path) -> None:
    executor = PyTorchJobExecutor(base=written(tmp_path, BASE))
    before, after = yaml.safe_load(BASE), yaml.safe_load(executor.render(plan(5, gpus=4)))
    size = {"limits": {"nvidia.com/gpu": 4}, "requests": {"cpu": "1500m", "memory": "1024Mi"}}
    for name, replicas in (("master", 1), ("worker", 4)):
        before["spec"]["pytorchReplicaSpecs"][name]["replicas"] = replicas
        before["spec"]["pytorchReplicaSpecs"][name]["template"]["spec"]["containers"][0]["resources"] = size
    before["spec"]["nprocPerNode"] = "4"
    before["spec"]["runPolicy"]["schedulingPolicy"] = {"minAvailable": 5, "minResources": {"cpu": "7500m"}}
    assert after == before
    assert "# ours" in executor.render(plan(5, gpus=4))
    remarks = executor.remarks(plan(5, gpus=4))
    assert "--nnodes says 3; workers are now 5." in " ".join(remarks)
    assert not any("is not in the plan" in remark for remark in remarks)
    assert PyTorchJobExecutor().parse(executor.render(plan(5, gpus=4))).target.replicas("worker") == 5


def test_base_that_has_its_sizes_stays_as_it_is(tmp_path: Path) -> None:
    executor = PyTorchJobExecutor(base=written(tmp_path, BASE))
    assert executor.render(plan(3, cpu=3.0, gpus=8).model_copy(update={"target": executor.parse(BASE).target})) == BASE


def test_master_alone_is_one_worker(tmp_path: Path) -> None:
    executor = PyTorchJobExecutor(base=written(tmp_path, BASE[: BASE.index("    worker:")].replace("&size", "")))
    assert entries(executor.render(plan(1)))["master"]["replicas"] == 1
    with pytest.raises(InputError, match=r"pytorchReplicaSpecs\.master is one worker, but plan p-1 has 2") as caught:
        executor.render(plan(2))
    assert "Add spec.pytorchReplicaSpecs.Worker" in caught.value.remedy


ELASTIC = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: ctr}
spec:
  elasticPolicy: {minReplicas: 2, maxReplicas: 3, rdzvBackend: c10d, nProcPerNode: 1}
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - {name: pytorch, image: ours, resources: {requests: {cpu: 1, memory: 1Gi}}}
"""


OTHER = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: ctr}
spec:
  pytorchReplicaSpecs:
    MASTER:
      template:
        spec:
          initContainers: [{name: copy, image: c, resources: {requests: {cpu: 12}}}]
          containers:
          - name: pytorch
            image: ours
            env: [{name: OMP_NUM_THREADS, value: "8"}]
            resources: &size
              requests: {cpu: 8, memory: 64Gi}
          - {name: proxy, image: p, resources: *size}
    Worker:
      replicas: 3
      template: {spec: {containers: [{name: pytorch, image: ours, resources: {requests: {cpu: 2, memory: 2Gi}}}]}}
"""


def test_master_of_another_size_is_told_and_its_sidecar_stays(tmp_path: Path) -> None:
    executor = PyTorchJobExecutor(base=written(tmp_path, OTHER))
    specs = entries(executor.render(plan(4)))
    main, proxy = specs["MASTER"]["template"]["spec"]["containers"]
    assert main["resources"]["requests"] == {"cpu": "1500m", "memory": "1024Mi"}
    assert proxy["resources"]["requests"] == {"cpu": 8, "memory": "64Gi"}
    assert specs["Worker"]["replicas"] == 3
    remarks = " ".join(executor.remarks(plan(4)))
    assert "spec.pytorchReplicaSpecs.MASTER is a worker, and gets the size of the others." in remarks
    assert "OMP_NUM_THREADS says 8; the cores of each are now 1.5" in remarks
    assert "MASTER: an init container requests 12 of cpu" in remarks
    assert "is not in the plan" not in remarks


@pytest.mark.parametrize("count", ["2", "x", "0"])
def test_several_masters_are_refused(tmp_path: Path, count: str) -> None:
    text = OTHER.replace("    MASTER:\n", f"    MASTER:\n      replicas: {count}\n")
    with pytest.raises(InputError, match=r"MASTER\.replicas is .*: a PyTorchJob has one Master"):
        PyTorchJobExecutor(base=written(tmp_path, text)).render(plan(4))


def test_master_may_not_be_mapped_to_all_workers(tmp_path: Path) -> None:
    executor = PyTorchJobExecutor(base=written(tmp_path, OTHER), roles={"worker": "MASTER"})
    with pytest.raises(InputError, match="MASTER is one worker, but plan p-1 has 4"):
        executor.render(plan(4))


def test_key_that_is_no_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has the key 1, which is no name"):
        PyTorchJobExecutor(base=written(tmp_path, OTHER.replace("Worker:", "1:"))).render(plan(4))


@pytest.mark.parametrize(("workers", "bounds"), [(1, (1, 3)), (3, (2, 3)), (5, (2, 5))])
def test_bounds_of_an_elastic_job_contain_its_workers(tmp_path: Path, workers: int, bounds: tuple[int, int]) -> None:
    document = yaml.safe_load(PyTorchJobExecutor(base=written(tmp_path, ELASTIC)).render(plan(workers)))
    assert document["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == workers
    policy = document["spec"]["elasticPolicy"]
    assert (policy["minReplicas"], policy["maxReplicas"], policy["nProcPerNode"]) == (*bounds, 2)  # of 1.5 cores


@pytest.fixture
def server() -> Iterator[StandIn]:
    pytest.importorskip("kubernetes")
    with stand_in() as api_server:
        api_server.resizes = True
        yield api_server


def test_master_is_observed_and_resized_with_the_workers(server: StandIn, tmp_path: Path) -> None:
    executor = get_executor("pytorchjob", kubeconfig=server.kubeconfig(tmp_path))
    launch = plan(3)
    handle = executor.launch(launch)
    pods = set(server.pods)
    assert pods == {"ctr-master-0", "ctr-worker-0", "ctr-worker-1"}
    metrics = executor.observe(handle)
    assert [replica.name for replica in metrics.replicas] == ["worker-0", "worker-1", "worker-2"]
    assert metrics.allocation == launch.target
    target = plan(3, cpu=2.0).target
    change = launch.model_copy(update={"id": "p-2", "kind": "adjust", "current": launch.target, "target": target})
    uids = {pod["metadata"]["uid"] for pod in server.pods.values()}
    executor.adjust(handle, change)
    assert {pod["metadata"]["uid"] for pod in server.pods.values()} == uids
    assert executor.observe(handle).allocation == target
