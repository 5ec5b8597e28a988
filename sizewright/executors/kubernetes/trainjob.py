"""Plans as TrainJobs of Kubeflow Trainer, for training without PS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from sizewright.errors import InputError
from sizewright.executors.kubernetes.cluster_executor import ClusterExecutor
from sizewright.executors.kubernetes.container_spec import (
    ContainerSpec,
    Counter,
    YamlMap,
    expect_mapping,
)
from sizewright.executors.kubernetes.jobset import JobSetExecutor
from sizewright.executors.kubernetes.objects import true_conditions
from sizewright.executors.kubernetes.pod_command import Discovery
from sizewright.executors.kubernetes.pod_template import metadata, pod_template
from sizewright.executors.kubernetes.repeated_sizes import SizeChange
from sizewright.spec import Group, Job, Plan, Role
from sizewright.spec.outcome import Status
from sizewright.spec.units import is_count
from sizewright.trainer_status import SAMPLES

_RUNTIME = "torch-distributed"
"""The runtime that every installation of Kubeflow Trainer has, and which a TrainJob's own image and command replace."""


class TrainJobExecutor(ClusterExecutor):
    """Render plans as TrainJobs (`trainer.kubeflow.org/v1alpha1`), whose workers are the nodes of a runtime.

    Nothing of a TrainJob's trainer can be changed; only its pods can be resized. A runtime has one kind of nodes: plans
    with PS are refused.
    """

    name = "trainjob"
    api_version = "trainer.kubeflow.org/v1alpha1"
    kind = "TrainJob"
    roles_path = "spec"
    roles: ClassVar[Mapping[Role, str]] = {"worker": "trainer"}
    discovery = Discovery("TrainJob", host="{job}-node-0-{index}.{job}")
    labels = JobSetExecutor.labels  # a runtime runs its nodes as a JobSet
    containers = ("node",)
    max_name_length = 63 - len("-node-0-000-xxxxx")  # of its pods
    resizes_pods = True

    def minimal_manifest(self, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> dict[str, Any]:
        """Return a manifest whose workers find each other by the host names of the runtime's headless service.

        Raises InputError for a priority class, which only a runtime can set.
        """
        deploy = plan.job.deploy
        if deploy.priority_class:
            raise InputError(
                f"deploy.priority_class is {deploy.priority_class}, but a TrainJob takes it from its runtime.",
                "Set it in a runtime of your own and name that in a base manifest, or use executor jobset.",
            )
        (group,) = groups["worker"]
        pod = pod_template(plan, "node", "", self.container_command(plan, "worker", group))
        (container,) = pod["spec"]["containers"]
        command = container["command"]
        if deploy.folder:  # a trainer has no workingDir
            command = ["sh", "-c", 'cd "$0" && exec "$@"', deploy.folder, *command]
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": metadata(plan),
            "spec": {
                "runtimeRef": {"name": _RUNTIME},
                "trainer": {"numNodes": 0, "image": container["image"], "command": command, "env": container["env"]},
            },
        }

    def entries(self, document: YamlMap) -> dict[str, YamlMap]:
        """Return the trainer, by name. Raises InputError if it is missing."""
        spec = expect_mapping(document.get("spec"), "spec")
        if "trainer" not in spec:
            raise InputError(
                "The TrainJob has no spec.trainer: its runtime has the sizes.",
                "Write spec.trainer with numNodes and resourcesPerNode, which replace those of the runtime.",
            )
        return {"trainer": expect_mapping(spec["trainer"], "spec.trainer")}

    def container_specs(self, document: YamlMap, role: Role) -> list[ContainerSpec]:
        """Return the place of the workers' sizes; empty for other roles."""
        if role != "worker":
            return []
        (trainer,) = self.entries(document).values()
        counter = Counter(trainer, ("numNodes",))
        return [ContainerSpec("spec.trainer", trainer, trainer, counter, resources="resourcesPerNode")]

    def role_names(self, document: YamlMap) -> dict[Role, str]:
        """Return the name that runtimes give the Job of their nodes, by which its pods are labelled."""
        return {"worker": "node"}

    def adapt(self, document: YamlMap, plan: Plan, changes: Sequence[SizeChange]) -> Iterator[str]:
        """Adapt the number of processes on a node, where it was that of its GPUs or cores."""
        for change in changes:
            trainer = change.spec.entry
            if trainer.get("numProcPerNode") == (before := change.before.processes) and before is not None:
                trainer["numProcPerNode"] = change.after.processes or before
        yield from ()

    def end_status(self, document: Mapping[str, Any]) -> Status | None:
        """Return the status by the TrainJob's conditions."""
        true = true_conditions(document)
        return "finished" if "Complete" in true else "failed" if "Failed" in true else None

    def reported_samples(self, job_object: Mapping[str, Any], job: Job) -> int | None:
        """Return the samples that a job's pods pushed to its status (KEP-2779).

        These are the metric `samples`, which `log_samples` pushes. Other code may push a percentage only, which counts
        if the job's number of samples is known.
        """
        status = (job_object.get("status") or {}).get("trainerStatus") or {}
        for metric in status.get("metrics") or []:
            if metric["name"] == SAMPLES and is_count(metric["value"]):
                return int(metric["value"])
        percentage = status.get("progressPercentage")
        return None if percentage is None or job.samples is None else job.samples * percentage // 100
