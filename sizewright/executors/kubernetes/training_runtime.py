"""The runtime of a TrainJob with PS: a JobSet template with one Job for the workers and one for the PS.

Trainer sizes only the container `node` of the job that is marked as the trainer, and only if the runtime has an
`mlPolicy`. The PS have their sizes here. (Rules: Kubeflow Trainer 2.3, `pkg/runtime/core/trainingruntime.go`.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sizewright.executors.kubernetes.container_spec import YamlMap, expect_mapping
from sizewright.executors.kubernetes.jobset import jobset_spec, replicated_job
from sizewright.executors.kubernetes.pod_command import ContainerCommand
from sizewright.executors.kubernetes.pod_template import metadata
from sizewright.spec import Plan

KIND = "TrainingRuntime"
KEY = "runtime"
"""The key under which a TrainJob's document has its runtime; it is in memory only."""
NODE = "node"
"""The name of the workers' job, and of the container that Trainer sizes."""
JOBS_PATH = f"{KIND} spec.template.spec.replicatedJobs"
_GROUP = "trainer.kubeflow.org"
STEP, TRAINER = f"{_GROUP}/trainjob-ancestor-step", "trainer"
_MANAGED_BY = "app.kubernetes.io/managed-by"


def training_runtime(plan: Plan, worker: ContainerCommand, ps: ContainerCommand) -> dict[str, Any]:
    """Return the runtime of a plan's TrainJob, which replaces image, command, environment and sizes of its node."""
    node = replicated_job(plan, NODE, NODE, worker)
    node["template"] = {"metadata": {"labels": {STEP: TRAINER}}, **node["template"]}
    node["template"]["spec"] |= {"parallelism": 1, "completions": 1}
    node["template"]["spec"]["template"]["spec"]["containers"] = [{"name": NODE, "image": plan.job.deploy.image}]
    jobs = [node, replicated_job(plan, "ps", "ps", ps)]
    return {
        "apiVersion": f"{_GROUP}/v1alpha1",
        "kind": KIND,
        "metadata": {key: value for key, value in metadata(plan).items() if key != "annotations"},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": jobset_spec(jobs, ends_with=[NODE])}},
    }


def reference(name: str) -> dict[str, str]:
    """Return the `runtimeRef` of a runtime."""
    return {"apiGroup": _GROUP, "kind": KIND, "name": name}


def runtime_name(document: Mapping[str, Any]) -> str:
    """Return the name of the TrainingRuntime that a TrainJob names; empty if it names none."""
    spec = document.get("spec")
    named = spec.get("runtimeRef") if isinstance(spec, Mapping) else None
    return str(named.get("name") or "") if isinstance(named, Mapping) and named.get("kind") == KIND else ""


def runtime_in(documents: Sequence[Any], name: str) -> YamlMap | None:
    """Return the TrainingRuntime of a name, if it is among the documents."""
    for each in documents:
        if isinstance(each, Mapping) and each.get("kind") == KIND:
            meta = expect_mapping(each.get("metadata"), f"{KIND} metadata")
            if meta.get("name") == name:
                return expect_mapping(each, KIND)
    return None


def as_jobset(document: YamlMap) -> YamlMap:
    """Return the JobSet that the runtime of a TrainJob's document describes. Raises InputError if it has none."""
    value: Any = document[KEY]
    for key in ("spec", "template"):
        value = expect_mapping(value, KIND).get(key)
    return {"spec": expect_mapping(value, f"{KIND} spec.template").get("spec")}


def is_trainer(job: YamlMap) -> bool:
    """Return whether Trainer takes a Job of the template for that of the workers."""
    value: Any = job
    for key in ("template", "metadata", "labels", STEP):
        value = value.get(key) if isinstance(value, Mapping) else None
    return bool(value == TRAINER)


def is_sized_by_job(runtime: YamlMap, jobs: Iterable[YamlMap]) -> bool:
    """Return whether Trainer writes the sizes of a TrainJob into the jobs of its runtime."""
    spec = expect_mapping(runtime.get("spec"), f"{KIND} spec")
    return spec.get("mlPolicy") is not None and any(map(is_trainer, jobs))


def owned_by(runtime: YamlMap, job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a runtime as that of a job: of its name and namespace, and marked as made by Sizewright."""
    meta = expect_mapping(runtime.get("metadata"), f"{KIND} metadata")
    labels = expect_mapping(meta.get("labels") or {}, f"{KIND} metadata.labels")
    own = {key: job["metadata"][key] for key in ("name", "namespace")}
    own["labels"] = {**labels, _MANAGED_BY: "sizewright"}
    return {**runtime, "metadata": {**meta, **own}}


def is_ours(runtime: Mapping[str, Any]) -> bool:
    """Return whether Sizewright made a runtime on the cluster, so that it may change and delete it."""
    return bool((runtime["metadata"].get("labels") or {}).get(_MANAGED_BY) == "sizewright")
