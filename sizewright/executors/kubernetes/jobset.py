"""Plans as JobSets, Kubernetes' own way to run several groups of pods as one job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from sizewright.errors import InputError
from sizewright.executors.kubernetes.cluster_executor import ClusterExecutor
from sizewright.executors.kubernetes.container_spec import Counter, YamlMap
from sizewright.executors.kubernetes.objects import true_conditions
from sizewright.executors.kubernetes.pod_command import ContainerCommand, Discovery
from sizewright.executors.kubernetes.pod_template import metadata, pod_template
from sizewright.executors.kubernetes.pods import PodLabels
from sizewright.spec import Group, Plan, Role
from sizewright.spec.outcome import Status

_MAX_RESTARTS = 3


class JobSetExecutor(ClusterExecutor):
    """Render plans as JobSets (`jobset.x-k8s.io/v1alpha2`): each group of a role is one Job of numbered pods.

    The JobSet ends with its workers. Its controller lets nothing of a running JobSet change; only its pods can be
    resized.
    """

    name = "jobset"
    api_version = "jobset.x-k8s.io/v1alpha2"
    kind = "JobSet"
    roles_path = "spec.replicatedJobs"
    named_by = "name"
    entry_path = ("template", "spec")
    roles: ClassVar[Mapping[Role, str]] = {"chief": "chief", "worker": "worker", "ps": "ps", "evaluator": "evaluator"}
    aliases: ClassVar[Mapping[Role, Sequence[str]]] = {
        "worker": ("workers", "node", "trainer"),
        "ps": ("pserver", "parameter-server", "server"),
        "chief": ("master", "leader"),
    }
    discovery = Discovery("JobSet", host="{job}-{role}-0-{index}.{job}")
    labels = PodLabels(
        "jobset.sigs.k8s.io/jobset-name",
        "jobset.sigs.k8s.io/replicatedjob-name",
        "batch.kubernetes.io/job-completion-index",
    )
    max_name_length = 63 - len("-evaluator-2-0-000-xxxxx")  # of its pods
    resizes_pods = True

    def minimal_manifest(self, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> dict[str, Any]:
        """Return a manifest whose replicas find each other by the host names of its headless service."""
        jobs = self.named_groups(groups)
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": metadata(plan),
            "spec": jobset_spec(
                [
                    replicated_job(plan, name, "main", self.container_command(plan, role, group))
                    for role, name, group in jobs
                ],
                ends_with=[name for role, name, _ in jobs if role == "worker"],
            ),
        }

    def counter(self, entry: YamlMap, field: str) -> Counter:
        """Return the number of pods of a Job, or of Jobs of one pod each. Raises InputError if both are above 1."""
        job = self.inner_entry(entry, field)
        jobs, pods = entry.get("replicas", 1), job.get("parallelism", 1)
        if jobs in (0, 1):
            return Counter(job, ("parallelism", "completions"))
        if pods not in (0, 1):
            raise InputError(
                f"{field} has {jobs} replicas of {pods} pods each, and a size is one number of equal pods.",
                "Write replicas: 1 with parallelism and completions, or replicas with parallelism: 1.",
            )
        return Counter(entry)

    def end_status(self, document: Mapping[str, Any]) -> Status | None:
        """Return the status by the JobSet's conditions."""
        true = true_conditions(document)
        return "finished" if "Completed" in true else "failed" if "Failed" in true else None


def jobset_spec(jobs: Sequence[Mapping[str, Any]], ends_with: Sequence[str]) -> dict[str, Any]:
    """Return the spec of a JobSet, which ends with the jobs of some names."""
    return {
        "network": {"enableDNSHostnames": True},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": [*ends_with]},
        "failurePolicy": {"maxRestarts": _MAX_RESTARTS},
        "replicatedJobs": [*jobs],
    }


def replicated_job(plan: Plan, name: str, container: str, start: ContainerCommand) -> dict[str, Any]:
    """Return one Job of numbered pods, without their number and their sizes."""
    template = pod_template(plan, container, "OnFailure", start)
    if plan.job.deploy.priority_class:
        template["spec"]["priorityClassName"] = plan.job.deploy.priority_class
    job = {"completionMode": "Indexed", "parallelism": 0, "completions": 0, "template": template}
    return {"name": name, "replicas": 1, "template": {"spec": job}}
