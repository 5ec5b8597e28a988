"""The job's own command in manifests: its words, its environment, and how its replicas find each other."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from sizewright.errors import InputError
from sizewright.executors import get_executor
from sizewright.spec import Allocation, Deploy, Group, Job, Plan, Resources
from sizewright.spec.command import Command
from sizewright.training.command.rendezvous import ReplicaSlot, make_start
from tests.helpers.crds import validator

RUN = "python -u train.py --bs {batch_size} --n {workers} --id {index} --as {role}"
INDEX_LABELS = {
    "kubeflow": "training.kubeflow.org/replica-index", "volcano": "volcano.sh/task-index",
    "dlrover": "elasticjob.dlrover/rank-index", "jobset": "batch.kubernetes.io/job-completion-index",
    "trainjob": "batch.kubernetes.io/job-completion-index",
}  # fmt: skip


def plan(rendezvous: str = "hosts", run: str = RUN, deploy: Deploy = Deploy(), ps: int = 2, **env: str) -> Plan:  # noqa: B008
    command = Command(run=run, rendezvous=rendezvous, env={"DATA": "/data/{role}", **env})  # type: ignore[arg-type]
    target = Allocation.of(3, 0 if rendezvous == "torchrun" else ps, 1.5, 0.5, 64, 1 << 30, 1 << 30)
    return Plan(id="p-1", kind="launch", job=Job(name="ctr", command=command, deploy=deploy), target=target, reason="")


def containers(name: str, launch: Plan) -> dict[str, Any]:
    """The container of each role."""
    executor: Any = get_executor(name)
    documents = list(yaml.safe_load_all(executor.render(launch)))
    for each in documents:
        validator(each["kind"]).validate(each)
    document = executor.select_document(documents, name)
    return {
        role: executor.container_specs(document, role)[0].container
        for role in ("worker", "ps")
        if executor.container_specs(document, role)
    }


def as_started(container: dict[str, Any], index: int) -> tuple[list[str], dict[str, str]]:
    """Words and environment as Kubernetes makes them: `$(NAME)` of variables before, `$$` for `$`."""
    env: dict[str, str] = {}

    def expanded(text: str) -> str:
        def value(match: re.Match[str]) -> str:
            return "$" if match[0] == "$$" else env.get(match[1], match[0])

        return re.sub(r"\$\$|\$\((\w+)\)", value, text)

    for each in container["env"]:
        env[each["name"]] = str(index) if "valueFrom" in each else expanded(each["value"])
    return [expanded(word) for word in container["command"]], env


@pytest.mark.parametrize(
    ("name", "rendezvous"),
    [("kubeflow", "hosts"), ("kubeflow", "tf_config"), ("volcano", "hosts"), ("volcano", "tf_config"),
     ("volcano", "torchrun"), ("dlrover", "tf_config"), ("jobset", "hosts"), ("jobset", "tf_config"),
     ("jobset", "torchrun"), ("trainjob", "torchrun"), ("trainjob", "hosts"), ("trainjob", "tf_config")],
)  # fmt: skip
def test_replicas_start_like_those_of_the_engine(name: str, rendezvous: str) -> None:
    launch = plan(rendezvous)
    host = {
        "kubeflow": "ctr-{}-{}", "volcano": "ctr-{}-{}.ctr", "dlrover": "", "jobset": "ctr-{}-0-{}.ctr",
        "trainjob": "ctr-{}-0-{}.ctr",
    }[name]  # fmt: skip
    job_names = {"worker": "node"} if name == "trainjob" else {}
    port = 29500 if rendezvous == "torchrun" else 2222
    slots = [
        ReplicaSlot(role, i, Resources(cpu=group.cpu, memory_bytes=0), host.format(job_names.get(role, role), i), port)
        for role, group in launch.target.groups
        for i in range(group.replicas)
    ]
    replica_containers = containers(name, launch)
    assert set(replica_containers) == {role for role, _ in launch.target.groups}
    for slot in slots:
        words, env = as_started(replica_containers[slot.role], slot.number)
        expected = make_start(launch.job, slots, slot, launch.target)
        assert words == list(expected.words)
        expected_env = dict(expected.env)
        if name in ("kubeflow", "dlrover") and rendezvous == "tf_config":
            del expected_env["TF_CONFIG"]  # the operator gives it
        got = {key: env[key] for key in expected_env if key in env}
        if "TF_CONFIG" in expected_env:
            assert json.loads(got.pop("TF_CONFIG")) == json.loads(expected_env.pop("TF_CONFIG"))
        assert got == expected_env
        assert (env["DATA"], env["SIZEWRIGHT_INDEX"]) == (f"/data/{slot.role}", str(slot.number))
        index = replica_containers[slot.role]["env"][0]["valueFrom"]["fieldRef"]["fieldPath"]
        assert index == f"metadata.labels['{INDEX_LABELS[name]}']"


@pytest.mark.parametrize(
    ("name", "rendezvous", "message"),
    [
        ("kubeflow", "torchrun", "a TFJob gives its replicas no MASTER_ADDR, RANK and WORLD_SIZE"),
        ("pytorchjob", "tf_config", "a PyTorchJob gives its replicas no TF_CONFIG"),
        ("pytorchjob", "hosts", "a PyTorchJob does not tell its replicas their numbers"),
        ("dlrover", "torchrun", "no MASTER_ADDR, RANK and WORLD_SIZE"),
        ("dlrover", "hosts", "DLRover sets only TF_CONFIG"),
        ("kuberay", "hosts", "a RayJob starts one driver"),
        ("kuberay", "torchrun", "a RayJob starts one driver"),
        ("kuberay", "tf_config", "a RayJob starts one driver"),
    ],
)
def test_unsupported_rendezvous_is_refused(name: str, rendezvous: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        get_executor(name).render(plan(rendezvous))
    assert "volcano" in caught.value.remedy


def test_text_that_kubernetes_would_expand_is_escaped() -> None:
    run = ["bash", "-c", "echo $$ $(hostname) $(DATA) $HOME; python train.py --bs {batch_size}"]
    launch = plan("hosts", run=run, SHOWN="$(DATA)")  # type: ignore[arg-type]
    words, env = as_started(containers("volcano", launch)["worker"], 0)
    assert words == [*run[:2], "echo $$ $(hostname) $(DATA) $HOME; python train.py --bs 64"]
    assert env["SHOWN"] == "$(DATA)"


def test_secret_is_read_from_the_cluster() -> None:
    launch = plan("hosts", API_TOKEN="abc123", STORE="postgresql://me:abc123@db/x")
    executor: Any = get_executor("kubeflow")
    text = executor.render(launch)
    assert "abc123" not in text
    worker = containers("kubeflow", launch)["worker"]
    sources = {each["name"]: each.get("valueFrom") for each in worker["env"] if "valueFrom" in each}
    assert sources["API_TOKEN"] == {"secretKeyRef": {"name": "ctr", "key": "API_TOKEN"}}
    assert sources["STORE"] == {"secretKeyRef": {"name": "ctr", "key": "STORE"}}
    assert any(
        "kubectl -n default create secret generic ctr --from-literal=API_TOKEN=" in r for r in executor.remarks(launch)
    )


def test_deploy_command_overrides_the_jobs_command() -> None:
    deploy = Deploy(command=("torchrun", "train.py"), image="me/ctr:1", folder="/app")
    worker = containers("volcano", plan("torchrun", deploy=deploy))["worker"]
    assert (worker["command"], worker["workingDir"]) == (["torchrun", "train.py"], "/app")
    assert {"DATA", "WORLD_SIZE", "SIZEWRIGHT_BATCH_SIZE"} <= {each["name"] for each in worker["env"]}
    executor: Any = get_executor("kuberay")
    driver = plan("torchrun", run="python train.py", deploy=deploy, EXTRA="1").model_copy(update={})
    with pytest.raises(InputError, match=r"differs from replica to replica"):
        executor.render(driver)
    command = Command(run="python train.py", rendezvous="torchrun", env={"DATA": "/d", "N": "{workers}"})
    job = Job(name="ctr", command=command, deploy=deploy)
    document = yaml.safe_load(executor.render(driver.model_copy(update={"job": job})))
    assert document["spec"]["entrypoint"] == "torchrun train.py"
    for group in (document["spec"]["rayClusterSpec"]["headGroupSpec"],
                  *document["spec"]["rayClusterSpec"]["workerGroupSpecs"]):  # fmt: skip
        env = {each["name"]: each["value"] for each in group["template"]["spec"]["containers"][0]["env"]}
        assert (env["DATA"], env["N"]) == ("/d", "3")


def test_replica_number_shared_by_two_groups_is_refused() -> None:
    launch = plan("hosts")
    two = (*launch.target.worker, Group(replicas=1, cpu=4, memory_bytes=0))
    with pytest.raises(InputError, match="would have the same number"):
        get_executor("volcano").render(
            launch.model_copy(update={"target": launch.target.model_copy(update={"worker": two})})
        )


@pytest.mark.parametrize("name", ["kubeflow", "volcano", "dlrover", "kuberay", "jobset"])
def test_placeholders_of_a_job_file_are_reported(name: str) -> None:
    executor: Any = get_executor(name)
    built_in = Plan(id="p-1", kind="launch", job=Job(name="ctr"), target=plan().target, reason="")
    (remark,) = executor.remarks(built_in)
    assert "deploy.image" in remark
    assert "deploy.command (python train.py)" in remark
    assert remark in executor.render(built_in)
    job_with_command = Job(name="ctr", deploy=Deploy(image="me/ctr:1", command=("python", "-m", "ctr")))
    assert executor.remarks(built_in.model_copy(update={"job": job_with_command})) == []
    if name in ("kubeflow", "volcano"):
        (remark,) = executor.remarks(plan("hosts"))
        assert "deploy.command" not in remark


def test_slurm_starts_the_same_command() -> None:
    executor: Any = get_executor("slurm")
    assert executor.parse(executor.render(plan("hosts"))).job.command.run == tuple(RUN.split())
    assert executor.remarks(plan("hosts")) == []
    built_in = Plan(id="p-1", kind="launch", job=Job(name="ctr"), target=plan().target, reason="")
    (remark,) = executor.remarks(built_in)
    assert "deploy.command" in remark


@pytest.mark.parametrize(("samples", "names"), [(None, set()), (640, {"SIZEWRIGHT_SAMPLES"})])
def test_number_of_samples_is_a_variable_where_it_is_known(samples: int | None, names: set[str]) -> None:
    launch = plan("hosts", RUN)
    job = launch.job.model_copy(update={"training": launch.job.training.model_copy(update={"samples": samples})})
    _, env = as_started(containers("volcano", launch.model_copy(update={"job": job}))["worker"], 0)
    assert {name for name in env if name == "SIZEWRIGHT_SAMPLES"} == names


@pytest.mark.parametrize("name", ["jobset", "trainjob", "volcano"])
def test_ranks_of_a_worker_are_started_by_torchrun(name: str) -> None:
    launch = plan("torchrun", run="python train.py --batch {batch_size}")
    command = launch.job.command.model_copy(update={"processes": 4})  # type: ignore[union-attr]
    launch = launch.model_copy(update={"job": launch.job.model_copy(update={"command": command})})
    container = containers(name, launch)["worker"]
    words, env = as_started(container, 2)
    host = {"jobset": "ctr-worker-0-0.ctr", "trainjob": "ctr-node-0-0.ctr", "volcano": "ctr-worker-0.ctr"}[name]
    assert words == [
        "torchrun", "--nnodes=3", "--nproc-per-node=4", "--node-rank=2", f"--master-addr={host}", "--master-port=29500",
        "--no-python", "python", "train.py", "--batch", "64",
    ]  # fmt: skip
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK"} & env.keys()
    assert env["OMP_NUM_THREADS"] == "1"


def test_ranks_of_a_worker_are_refused_where_the_platform_numbers_them() -> None:
    launch = plan("torchrun", run="python train.py")
    command = launch.job.command.model_copy(update={"processes": 4})  # type: ignore[union-attr]
    launch = launch.model_copy(update={"job": launch.job.model_copy(update={"command": command})})
    with pytest.raises(InputError, match=r"ctr starts 4 ranks in each worker .*PyTorchJob gets one .* Use executor"):
        get_executor("pytorchjob").render(launch)
