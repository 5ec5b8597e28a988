"""The pods that the operators of eight platforms create for a job, with the labels that the executors rely on.

An ElasticJob's pods are replaced where sizes change; ScalePlans of its older releases come before it. The pods of a
TFJob, a PyTorchJob and a Volcano job keep the sizes they began with. A RayJob is not changed by its operator once it
runs. The jobs of a running JobSet, and the trainer of a TrainJob, may not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]
_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


class UnchangeableError(Exception):
    """A change that the operator does not allow; the server refuses it."""


class NotAdmittedError(Exception):
    """An object that the operator's webhook does not allow; the server refuses it, also in a dry run."""


def check_admitted(document: Object, objects: dict[tuple[str, str, str], Object]) -> None:
    """Raise if a TrainJob comes before its TrainingRuntime, or the trainer of one is not one Job with a `node`."""
    spec = document.get("spec", {})
    if document["kind"] == "TrainJob" and spec["runtimeRef"].get("kind") == "TrainingRuntime":
        name = spec["runtimeRef"]["name"]
        if ("TrainingRuntime", document["metadata"]["namespace"], name) not in objects:
            raise NotAdmittedError(f"spec.runtimeRef: {name} must be created before the TrainJob is created")
    if document["kind"] == "TrainingRuntime":
        for job in spec["template"]["spec"]["replicatedJobs"]:
            if job["template"].get("metadata", {}).get("labels", {}).get(_STEP) == "trainer":
                names = [each["name"] for each in job["template"]["spec"]["template"]["spec"]["containers"]]
                if job.get("replicas", 1) != 1 or "node" not in names:
                    raise NotAdmittedError("the trainer must be one Job with a container named node")


def pods_of(objects: dict[tuple[str, str, str], Object], existing: dict[str, Object]) -> dict[str, Object]:
    """Return the pods by name: unchanged ones that stay, and new ones."""
    pods: dict[str, Object] = {}
    for (kind, _, name), document in objects.items():
        if kind not in _REPLICAS or "spec" not in document or _is_suspended(document):
            continue
        for word, index, containers, labels in _REPLICAS[kind](document, objects):
            pod_name = f"{name}-{word.lower()}-{index}"
            old = existing.get(pod_name)
            if old and kind != "ElasticJob":
                pods[pod_name] = old
                continue
            if old and old["spec"]["containers"][0]["resources"] == containers[0]["resources"]:
                pods[pod_name] = old
                continue
            if old:
                pod_name += "-r"  # replaces a pod of another size
                if pod_name in existing:
                    pods[pod_name] = existing[pod_name]
                    continue
            pods[pod_name] = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    return pods


def _is_suspended(document: Object) -> bool:
    spec = document["spec"]
    return bool(spec.get("suspend") or spec.get("runPolicy", {}).get("suspend"))


def _kubeflow(document: Object, _: Any) -> Iterator[tuple[str, int, list[Object], dict[str, str]]]:
    key = {"TFJob": "tfReplicaSpecs", "PyTorchJob": "pytorchReplicaSpecs"}[document["kind"]]
    for word, spec in document["spec"][key].items():
        for index in range(spec["replicas"]):
            keys = {"job-name": document["metadata"]["name"], "replica-type": word.lower(), "replica-index": str(index)}
            yield word, index, _containers(spec), {f"training.kubeflow.org/{k}": v for k, v in keys.items()}


def _volcano(document: Object, _: Any) -> Iterator[tuple[str, int, list[Object], dict[str, str]]]:
    for task in document["spec"]["tasks"]:
        for index in range(task["replicas"]):
            keys = {"job-name": document["metadata"]["name"], "task-spec": task["name"], "task-index": str(index)}
            yield task["name"], index, _containers(task), {f"volcano.sh/{k}": v for k, v in keys.items()}


def _jobset(document: Object, _: Any) -> Iterator[tuple[str, int, list[Object], dict[str, str]]]:
    for job in document["spec"]["replicatedJobs"]:
        spec = job["template"]["spec"]
        for number in range(job.get("replicas", 1)):
            for index in range(spec.get("parallelism", 1)):
                labels = {
                    "jobset.sigs.k8s.io/jobset-name": document["metadata"]["name"],
                    "jobset.sigs.k8s.io/replicatedjob-name": job["name"],
                    "jobset.sigs.k8s.io/job-index": str(number),
                    "batch.kubernetes.io/job-completion-index": str(index),
                }
                yield f"{job['name']}-{number}", index, _containers(spec), labels


def _trainjob(document: Object, objects: Any) -> Iterator[tuple[str, int, list[Object], dict[str, str]]]:
    trainer, meta = document["spec"]["trainer"], document["metadata"]
    runtime = objects.get(("TrainingRuntime", meta.get("namespace", ""), document["spec"]["runtimeRef"]["name"]))
    jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"] if runtime else []
    others = [job for job in jobs if job["template"].get("metadata", {}).get("labels", {}).get(_STEP) != "trainer"]
    yield from _jobset({"metadata": meta, "spec": {"replicatedJobs": others}}, objects)
    container = {
        "name": "node",
        "resources": trainer["resourcesPerNode"],
        **{key: trainer[key] for key in ("image", "command", "env") if key in trainer},
    }
    for index in range(trainer.get("numNodes", 1)):
        labels = {
            "jobset.sigs.k8s.io/jobset-name": document["metadata"]["name"],
            "jobset.sigs.k8s.io/replicatedjob-name": "node",
            "batch.kubernetes.io/job-completion-index": str(index),
        }
        yield "node-0", index, [dict(container)], labels


def _rayjob(document: Object, _: Any) -> Iterator[tuple[str, int, list[Object], dict[str, str]]]:
    cluster = f"{document['metadata']['name']}-x7k2p"
    document.setdefault("status", {})["rayClusterName"] = cluster
    spec = document["spec"]["rayClusterSpec"]
    yield "head", 0, _containers(spec["headGroupSpec"]), {"ray.io/cluster": cluster, "ray.io/group": "headgroup"}
    for group in spec["workerGroupSpecs"]:
        for index in range(group["replicas"]):
            labels = {"ray.io/cluster": cluster, "ray.io/group": group["groupName"]}
            yield group["groupName"], index, _containers(group), labels


def _elasticjob(document: Object, objects: Any) -> Iterator[tuple[str, int, list[Object], dict[str, str]]]:
    name = document["metadata"]["name"]
    plans = [each for (kind, _, _), each in objects.items() if kind == "ScalePlan" and each["spec"]["ownerJob"] == name]
    for word, spec in document["spec"]["replicaSpecs"].items():
        count, containers = spec["replicas"], _containers(spec)
        for plan in plans:  # in order of creation
            resources = plan["spec"]["replicaResourceSpecs"][word]
            count = resources["replicas"]
            containers[0]["resources"] = {"requests": resources["resource"], "limits": resources["resource"]}
        for index in range(count):
            keys = {"name": name, "replica-type": word, "rank-index": str(index)}
            yield word, index, containers, {f"elasticjob.dlrover/{k}": v for k, v in keys.items()}


def _batchjob(document: Object, _: Any) -> Iterator[tuple[str, int, list[Object], dict[str, str]]]:
    for index in range(document["spec"].get("parallelism", 1)):
        labels = {
            "batch.kubernetes.io/job-name": document["metadata"]["name"],
            "batch.kubernetes.io/job-completion-index": str(index),
        }
        yield "worker", index, _containers(document["spec"]), labels


def _containers(spec: Object) -> list[Object]:
    return [dict(each) for each in spec["template"]["spec"]["containers"]]


_REPLICAS = {
    "TFJob": _kubeflow, "PyTorchJob": _kubeflow, "Job": _volcano, "JobSet": _jobset, "TrainJob": _trainjob,
    "RayJob": _rayjob, "ElasticJob": _elasticjob, "BatchJob": _batchjob,
}  # fmt: skip


def _volcano_spec(before: Object, after: Object) -> None:
    """Raise if anything but minAvailable and replicas changes, as Volcano's webhook does."""

    def rest(document: Object) -> Any:
        tasks = [
            {k: v for k, v in t.items() if k not in ("replicas", "minAvailable")} for t in document["spec"]["tasks"]
        ]
        return {**document["spec"], "tasks": tasks, "minAvailable": 0}

    if rest(before) != rest(after):
        raise UnchangeableError("job updates may not change fields other than `minAvailable`, `tasks[*].replicas`")


def _jobset_spec(before: Object, after: Object) -> None:
    """Raise if the jobs change, as JobSet's webhook does for one that is not suspended."""
    if before["spec"]["replicatedJobs"] != after["spec"]["replicatedJobs"]:
        raise UnchangeableError("spec.replicatedJobs: Invalid value: field is immutable")


def _trainjob_spec(before: Object, after: Object) -> None:
    """Raise if the trainer changes, as the definition of TrainJobs says."""
    if before["spec"].get("trainer") != after["spec"].get("trainer"):
        raise UnchangeableError("spec.trainer: Invalid value: field is immutable")


def _batchjob_spec(before: Object, after: Object) -> None:
    """Raise if the pods change, as the server does for Jobs before Kubernetes 1.36."""
    if before["spec"]["template"] != after["spec"]["template"]:
        raise UnchangeableError("spec.template: Invalid value: field is immutable")


IMMUTABLE = {"BatchJob": _batchjob_spec, "Job": _volcano_spec, "JobSet": _jobset_spec, "TrainJob": _trainjob_spec}
