"""What is a TrainJob's own: its workers are the nodes of a runtime, and its pods push their progress."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from sizewright.errors import InputError
from sizewright.executors.kubernetes.trainjob import TrainJobExecutor
from sizewright.executors.yaml_documents import from_yaml
from sizewright.formatting import GIB
from sizewright.spec import Allocation, Bounds, Deploy, Gpu, Group, Job, Plan, Training
from sizewright.spec.command import Command
from tests.helpers.crds import validator
from tests.helpers.random_plans import plans, without_ps
from tests.helpers.stand_in import stand_in
from tests.helpers.status_server import Push, status_server

COMMAND = Command(run="python train.py", rendezvous="torchrun")


def plan(workers: int = 4, cpu: float = 1.5, gpus: int = 0, **deploy: str) -> Plan:
    worker = Group(replicas=workers, cpu=cpu, memory_bytes=GIB, gpu=Gpu(count=gpus) if gpus else None)
    job = Job(name="ctr", command=COMMAND, deploy=Deploy(**deploy))  # type: ignore[arg-type]
    target = Allocation(worker=(worker,), ps=(), batch_size=512)
    return Plan(id="p-1", kind="launch", job=job, target=target, reason="best")


def fits(plan: Plan) -> Plan:
    deploy = plan.job.deploy.model_copy(update={"priority_class": None})
    return without_ps(plan.model_copy(update={"job": plan.job.model_copy(update={"deploy": deploy})}))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plans().map(fits))
def test_rendered_plan_is_read_back(plan: Plan) -> None:
    executor = TrainJobExecutor()
    text = executor.render(plan)
    assert executor.parse(text) == plan
    assert executor.build(plan).documents == from_yaml(text)
    validator("TrainJob").validate(yaml.safe_load(text))


def test_roles_that_a_runtime_does_not_have_are_refused() -> None:
    target = plan().target.model_copy(update={"chief": (Group(replicas=1, cpu=1.0, memory_bytes=GIB),)})
    with pytest.raises(InputError, match="A TrainJob has no chief, but plan p-1 has") as caught:
        TrainJobExecutor().render(plan().model_copy(update={"target": target}))
    assert "executor jobset" in caught.value.remedy


def test_plan_without_workers_is_refused() -> None:
    target = Allocation(worker=(), ps=(Group(replicas=1, cpu=1.0, memory_bytes=GIB),), batch_size=512)
    with pytest.raises(InputError, match="A TrainJob needs at least one worker; plan p-1 has none"):
        TrainJobExecutor().render(plan().model_copy(update={"target": target}))


def test_priority_class_that_only_a_runtime_can_set_is_refused() -> None:
    with pytest.raises(InputError, match=r"deploy\.priority_class is high"):
        TrainJobExecutor().render(plan(priority_class="high"))


def test_containers_start_in_the_folder_of_the_job() -> None:
    trainer = yaml.safe_load(TrainJobExecutor().render(plan(folder="/my app")))["spec"]["trainer"]
    assert trainer["command"] == ["sh", "-c", 'cd "$0" && exec "$@"', "/my app", "python", "train.py"]


BASE = """\
# Ours.
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  generateName: ctr-
  labels: {kueue.x-k8s.io/queue-name: ads}
spec:
  suspend: true   # Kueue's
  runtimeRef: {name: our-runtime, kind: TrainingRuntime}
  trainer:
    numNodes: 2   # ours
    numProcPerNode: 8
    args: [--nnodes=2]
    env:
    - {name: WORLD_SIZE, value: "2"}
    resourcesPerNode:
      limits: {nvidia.com/gpu: 8}
      requests: {cpu: "3", memory: 2Gi}
"""


def test_base_keeps_all_but_its_sizes(tmp_path: Path) -> None:
    base = tmp_path / "base.yaml"
    base.write_text(BASE, encoding="utf-8")
    executor = TrainJobExecutor(base=base)
    sized = plan(gpus=4)
    expected = BASE
    for before, after in (
        ("numNodes: 2", "numNodes: 4"), ("numProcPerNode: 8", "numProcPerNode: 4"), ("gpu: 8", "gpu: 4"),
        ('"3"', '"1500m"'), ("2Gi", "1024Mi"),
    ):  # fmt: skip
        expected = expected.replace(before, after)
    assert executor.render(sized) == expected
    remarks = executor.remarks(sized)
    assert "spec.trainer: WORLD_SIZE says 2; workers are now 4." in remarks
    assert "spec.trainer: --nnodes says 2; workers are now 4." in remarks
    assert TrainJobExecutor().parse(executor.render(sized)).target.worker[0] == Group(
        replicas=4, cpu=1.5, memory_bytes=GIB, gpu=Gpu(count=4)
    )


def test_number_of_processes_that_repeats_no_size_stays(tmp_path: Path) -> None:
    base = tmp_path / "base.yaml"
    base.write_text(BASE.replace("numProcPerNode: 8", "numProcPerNode: 1"), encoding="utf-8")
    assert "numProcPerNode: 1" in TrainJobExecutor(base=base).render(plan(gpus=4))


def test_base_whose_runtime_has_the_sizes_is_refused(tmp_path: Path) -> None:
    base = tmp_path / "base.yaml"
    base.write_text(BASE[: BASE.index("  trainer:")], encoding="utf-8")
    with pytest.raises(InputError, match=r"has no spec\.trainer") as caught:
        TrainJobExecutor(base=base).render(plan())
    assert "resourcesPerNode" in caught.value.remedy


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("1024Mi", "much", "spec.trainer: resourcesPerNode.memory is 'much'"),
        ("numNodes: 4", "numNodes: four", "spec.trainer.numNodes is 'four'"),
        ("cpu: 1500m", "cpu: 1Gi", "resourcesPerNode.cpu is '1Gi'"),
        ("resourcesPerNode:", "resources:", "does not say how many cores its workers request"),
        ("  trainer:", "  trainer: 3\n  other:", "spec.trainer must be a mapping"),
    ],
)
def test_invalid_field_is_named(right: str, wrong: str, message: str) -> None:
    lines = TrainJobExecutor().render(plan()).splitlines()
    text = "\n".join(line for line in lines if "sizewright/" not in line)
    assert right in text
    text = text.replace(right, wrong)
    with pytest.raises(InputError, match=message):
        TrainJobExecutor().parse(text)


PUSHED = {"name": "samples", "value": "5120"}


@pytest.mark.parametrize(
    ("pushed", "samples"),
    [
        ({"progressPercentage": 25, "metrics": [{"name": "loss", "value": "0.3"}, PUSHED]}, 5120),
        ({"progressPercentage": 25, "metrics": [{"name": "samples", "value": "5k"}]}, 2500),
        ({"progressPercentage": 25}, 2500),
        ({"metrics": [{"name": "loss", "value": "0.3"}]}, None), ({"progressPercentage": 0}, 0), ({}, None),
        (None, None),
    ],
)  # fmt: skip
def test_status_tells_samples_by_a_metric_or_a_percentage(pushed: dict[str, Any] | None, samples: int | None) -> None:
    job = Job(command=COMMAND, training=Training(samples=10_000))
    job_object = {"status": {"trainerStatus": pushed}}
    assert TrainJobExecutor().reported_samples(job_object, job) == samples
    assert TrainJobExecutor().reported_samples({}, job) is None


def test_percentage_of_an_unknown_number_of_samples_tells_none() -> None:
    job_object = {"status": {"trainerStatus": {"progressPercentage": 25}}}
    assert TrainJobExecutor().reported_samples(job_object, Job(command=COMMAND)) is None


def test_status_counts_where_logs_tell_no_samples(tmp_path: Path) -> None:
    with stand_in() as server:
        executor = TrainJobExecutor(kubeconfig=server.kubeconfig(tmp_path))
        handle = executor.launch(plan())
        server.set_status("TrainJob", "ctr", {"trainerStatus": {"metrics": [PUSHED]}})
        server.odd = lambda _, path, answer: "loss 0.3" if path.endswith("/log") else answer
        assert executor.observe(handle).samples_trained == 5120
        sums = {"samples": 700, "steps": 7, "at_s": 1.0}
        line = f"sizewright-progress {json.dumps({'process': 7, 'sums': sums, 'container': {}})}"
        server.odd = lambda _, path, answer: line if path.endswith("/log") else answer
        assert executor.observe(handle).samples_trained == 4 * 700, "of each replica"
        del server.objects["TrainJob", "default", "ctr"]["status"]
        assert executor.observe(handle).samples_trained == 4 * 700


def test_pushed_progress_is_observed(tmp_path: Path) -> None:
    with stand_in() as server:

        def write(push: Push) -> int:
            server.set_status("TrainJob", push.path.split("/")[-2], push.body)
            return 200

        executor = TrainJobExecutor(kubeconfig=server.kubeconfig(tmp_path))
        handle = executor.launch(plan())
        server.odd = lambda _, path, answer: "" if path.endswith("/log") else answer
        variables = {
            each["name"]: each["value"]
            for each in server.objects["TrainJob", "default", "ctr"]["spec"]["trainer"]["env"]
            if "value" in each
        }
        with status_server(tmp_path, write) as pushed_to:
            env = pushed_to.environment(**variables | {"RANK": "0", "SIZEWRIGHT_INDEX": "0"})
            program = "import sizewright, time; sizewright.log_samples(64); time.sleep(60)"
            with subprocess.Popen([sys.executable, "-c", program], env=os.environ | env) as process:
                try:
                    while not executor.observe(handle).samples_trained:
                        time.sleep(0.05)
                finally:
                    process.kill()
        assert executor.observe(handle).samples_trained == 4 * 64, "of four workers"


@pytest.mark.parametrize(
    ("condition", "status"),
    [({"type": "Complete", "status": "True"}, "finished"), ({"type": "Failed", "status": "True"}, "failed"),
     ({"type": "Failed", "status": "False"}, None), ({"type": "Suspended", "status": "True"}, None)],
)  # fmt: skip
def test_its_conditions_say_how_it_ended(condition: dict[str, str], status: str | None) -> None:
    assert TrainJobExecutor().end_status({"status": {"conditions": [condition]}}) == status


def test_ranks_of_a_node_follow_its_gpus() -> None:
    def on_gpus(count: int) -> Plan:
        launch = plan(workers=2, gpus=count)
        bounds = Bounds.model_validate({"worker": {"gpu": [1, 8]}})
        command = COMMAND.model_copy(update={"processes": "gpu"})
        return launch.model_copy(update={"job": launch.job.model_copy(update={"command": command, "bounds": bounds})})

    executor = TrainJobExecutor()
    trainer = yaml.safe_load(executor.render(on_gpus(4)))["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 4)
    assert "--nproc-per-node=4" in trainer["command"]
    assert executor.parse(executor.render(on_gpus(4))) == on_gpus(4)
    assert "numProcPerNode" not in yaml.safe_load(executor.render(on_gpus(1)))["spec"]["trainer"]
