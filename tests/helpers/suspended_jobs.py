"""Suspended jobs of each kind that ask the operator for sizes, and the switch of each kind."""

from __future__ import annotations

import copy
from typing import Any

import yaml

from sizewright.executors import get_executor
from sizewright.executors.kubernetes.manifest_executor import ManifestExecutor
from sizewright.formatting import GIB
from sizewright.operator.labels import JOB, SIZE, START
from sizewright.spec import Allocation, Deploy, Group, Job, Plan
from sizewright.spec.command import Command

Object = dict[str, Any]
JOB_FILE = {
    "name": "ctr",
    "command": {"run": ["python", "train.py"], "rendezvous": "torchrun"},
    "bounds": {"worker": {"replicas": [1, 16], "cpu": [1, 8], "memory": ["1Gi", "8Gi"]}},
}
KINDS = {"trainjob": "TrainJob", "jobset": "JobSet", "kuberay": "RayJob", "pytorchjob": "PyTorchJob", "job": "BatchJob"}
"""The stand-in's names of the kinds."""
_BATCH_JOB: Object = {
    "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "ctr", "namespace": "default"},
    "spec": {
        "parallelism": 2, "completions": 2, "completionMode": "Indexed",
        "template": {"spec": {"restartPolicy": "Never", "containers": [
            {"name": "main", "image": "ours:1", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
        ]}},
    },
}  # fmt: skip


def suspended(executor: str, name: str = "ctr", labels: dict[str, str] | None = None, **annotations: str) -> Object:
    """Return a suspended job of two workers with one core and 1 GiB each, with its description."""
    document = _BATCH_JOB if executor == "job" else _rendered(executor)
    document = copy.deepcopy(document)
    document["metadata"] |= {"name": name, "labels": {SIZE: START, **(labels or {})}}
    document["metadata"]["annotations"] = {JOB: yaml.safe_dump(JOB_FILE), **annotations}
    switch = document["spec"]["runPolicy"] if executor == "pytorchjob" else document["spec"]
    switch["suspend"] = True
    return document


def suspended_with_ps(name: str, job_file: str) -> Object:
    """Return a suspended RayJob with a group of workers and one of PS, described by the text of a job file."""
    document = suspended("kuberay", name)
    document["metadata"]["annotations"][JOB] = job_file
    spec = document["spec"]["rayClusterSpec"]
    (worker,) = spec["workerGroupSpecs"]
    spec["workerGroupSpecs"] = [worker, {**worker, "groupName": "ps"}]
    return document


def _rendered(executor: str) -> Object:
    command = Command(run=("python", "train.py"), rendezvous="torchrun")
    start = ("python", "driver.py") if executor == "kuberay" else Deploy().command
    job = Job(name="ctr", command=command, deploy=Deploy(image="ours:1", command=start))
    worker = Group(replicas=2, cpu=1.0, memory_bytes=GIB)
    target = Allocation(worker=(worker,), ps=(), batch_size=job.training.batch_size)
    made = get_executor(executor)
    assert isinstance(made, ManifestExecutor)
    return dict(made.document(Plan(id="p", kind="launch", job=job, target=target, reason="r")))
