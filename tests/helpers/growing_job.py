"""A job whose memory grows beyond its limit, on a stand-in for a cluster; a limit twice as high would be enough."""

from __future__ import annotations

from typing import Any

import yaml

from sizewright.formatting import MIB
from sizewright.operator.labels import JOB, SIZE, START
from sizewright.spec import Allocation, Group, Job, Recommendation
from sizewright.spec.recommendation import Evidence
from tests.helpers.stand_in import StandIn

GROWS = """
import time
from sizewright import log_samples
kept = []
for step in range(250):
    kept.append(bytearray(b"x" * (1 << 20)))
    log_samples(1000)
    time.sleep(0.3)
"""
LIMIT_MIB = 128
"""The script needs about twice as much."""


def growing_job(name: str, script: str = GROWS) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a Job that runs a script, by default one whose memory grows beyond its limit, and its description."""
    described = {
        "name": name,
        "command": {"run": ["python", "-c", script]},
        "training": {"batch_size": 1000, "samples": 250_000},
        "bounds": {"worker": {"replicas": [1, 1], "cpu": [0.2, 0.5], "memory": ["64Mi", "1Gi"]}},
    }
    amounts = {"cpu": "500m", "memory": f"{LIMIT_MIB}Mi"}
    container = {
        "name": "main",
        "image": "ours:1",
        "command": ["python", "-c", script],
        "env": [{"name": "SIZEWRIGHT_PROGRESS", "value": "stdout"}],
        "resources": {"requests": dict(amounts), "limits": dict(amounts)},
    }
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"parallelism": 1, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    return document, described


def as_it_is(job: Job) -> Recommendation:
    worker = Group(replicas=1, cpu=0.5, memory_bytes=LIMIT_MIB * MIB)
    target = Allocation(worker=(worker,), ps=(), batch_size=job.training.batch_size)
    return Recommendation(
        status="ok", job=job.name, target=target, evidence=Evidence(trials=3, model="default"), reasons=("As it was.",)
    )


def put_suspended(server: StandIn, kind: str, document: dict[str, Any], described: dict[str, Any], **more: str) -> None:
    document["metadata"]["labels"] = {SIZE: START}
    document["metadata"]["annotations"] = {JOB: yaml.safe_dump(described), **more}
    document["spec"]["suspend"] = True
    server.create(kind, "default", document)
