"""Jobs of Kubernetes itself (`batch/v1`), whose pods are all workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from sizewright.errors import InputError
from sizewright.executors.kubernetes.cluster_executor import MAX_WORKERS, ClusterExecutor
from sizewright.executors.kubernetes.container_spec import (
    ContainerSpec,
    Counter,
    YamlMap,
    expect_mapping,
    training_container,
)
from sizewright.executors.kubernetes.objects import true_conditions
from sizewright.executors.kubernetes.pod_command import Discovery
from sizewright.executors.kubernetes.pods import PodLabels
from sizewright.spec import Role
from sizewright.spec.outcome import Status

_GENERATED_LABELS = ("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name")


class BatchJobs(ClusterExecutor):
    """Change Jobs that users wrote. Plans are not rendered as Jobs: a JobSet is one with a name for each pod."""

    name = "job"
    api_version = "batch/v1"
    kind = "Job"
    roles_path = "spec"
    roles: ClassVar[Mapping[Role, str]] = {"worker": "job"}
    discovery = Discovery("Job")
    resizes_pods = True
    scales_in_queues = True
    labels = PodLabels(
        "batch.kubernetes.io/job-name", "batch.kubernetes.io/job-name", "batch.kubernetes.io/job-completion-index"
    )

    def entries(self, document: YamlMap) -> dict[str, YamlMap]:
        """Return the spec, which is that of the workers."""
        return {"job": expect_mapping(document.get("spec"), "spec")}

    def container_specs(self, document: YamlMap, role: Role) -> list[ContainerSpec]:
        """Return the place of the workers' sizes; empty for other roles.

        An indexed Job has as many completions as pods. Completions of other Jobs are work items, which stay.
        """
        if role != "worker":
            return []
        (spec,) = self.entries(document).values()
        counter = Counter(spec, ("parallelism", "completions") if _is_elastic(spec) else ("parallelism",))
        return [ContainerSpec("spec", spec, training_container(spec.get("template"), self.containers, "spec"), counter)]

    def worker_limits(self, job_object: Mapping[str, Any]) -> tuple[int, int]:
        """Return the limits of an indexed Job. Raises InputError for one whose completions are work items."""
        if _is_elastic(expect_mapping(job_object.get("spec"), "spec")):
            return 1, MAX_WORKERS
        raise InputError(
            "The number of workers of this Job cannot change while it runs.",
            "Make it an indexed Job with as many completions as pods.",
        )

    def role_names(self, document: YamlMap) -> dict[Role, str]:
        """Return the Job's name for the workers: its pods have no label for a role."""
        return {"worker": str(document["metadata"]["name"])}

    def as_created(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a Job without the selector and the labels that the server generates from its uid."""
        created = super().as_created(document)
        if not created["spec"].get("manualSelector"):
            created["spec"].pop("selector", None)
            labels = created["spec"]["template"].get("metadata", {}).get("labels", {})
            for generated in _GENERATED_LABELS:
                labels.pop(generated, None)
        return created

    def end_status(self, document: Mapping[str, Any]) -> Status | None:
        """Return the status by the Job's conditions."""
        true = true_conditions(document)
        return "finished" if "Complete" in true else "failed" if "Failed" in true else None


def _is_elastic(spec: Mapping[str, Any]) -> bool:
    """Return whether a Job has one pod for each of its completions, whose number the server lets change with theirs."""
    return spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism", 1)
