"""Plans as jobs of Volcano, which starts the replicas of a job together or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from sizewright.executors.kubernetes.cluster_executor import ClusterExecutor
from sizewright.executors.kubernetes.container_spec import YamlMap
from sizewright.executors.kubernetes.manifest_executor import set_if_present
from sizewright.executors.kubernetes.pod_command import Discovery
from sizewright.executors.kubernetes.pod_template import metadata, pod_template
from sizewright.executors.kubernetes.pods import PodLabels
from sizewright.executors.kubernetes.repeated_sizes import SizeChange
from sizewright.spec import Group, Plan, Role
from sizewright.spec.outcome import Status


class VolcanoExecutor(ClusterExecutor):
    """Render plans as Jobs (`batch.volcano.sh/v1alpha1`) with one task per role.

    The gang's minimum is all PS, since each holds rows that no other has, and as many workers as the plan's `lower`.
    """

    name = "volcano"
    api_version = "batch.volcano.sh/v1alpha1"
    kind = "Job"
    roles_path = "spec.tasks"
    named_by = "name"
    roles: ClassVar[Mapping[Role, str]] = {"chief": "chief", "worker": "worker", "ps": "ps", "evaluator": "evaluator"}
    aliases: ClassVar[Mapping[Role, Sequence[str]]] = {"worker": ("trainer",), "ps": ("pserver", "parameter-server")}
    discovery = Discovery("Volcano job", host="{job}-{role}-{index}.{job}")
    labels = PodLabels("volcano.sh/job-name", "volcano.sh/task-spec", "volcano.sh/task-index")
    scales: ClassVar[frozenset[Role]] = frozenset({"worker"})  # nothing else of a running job can be changed
    max_name_length = 63 - len("-evaluator-2-000")
    resizes_pods = True

    def end_status(self, document: Mapping[str, Any]) -> Status | None:
        """Return the status by the phase of the job's state."""
        phase = ((document.get("status") or {}).get("state") or {}).get("phase")
        if phase == "Completed":
            return "finished"
        return "failed" if phase in ("Failed", "Aborted", "Terminated") else None

    def minimal_manifest(self, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> dict[str, Any]:
        """Return a manifest whose replicas find each other by Volcano's svc plugin. The job ends with its workers."""
        tasks = [self._task(plan, role, name, group) for role, name, group in self.named_groups(groups)]
        priority = {"priorityClassName": plan.job.deploy.priority_class} if plan.job.deploy.priority_class else {}
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": metadata(plan),
            "spec": {
                "schedulerName": "volcano",
                "minAvailable": 0,
                "maxRetry": 3,
                **priority,
                "plugins": {"env": [], "svc": []},
                "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
                "tasks": tasks,
            },
        }

    def adapt(self, document: YamlMap, plan: Plan, changes: Sequence[SizeChange]) -> Iterator[str]:
        """Adapt the gang's minimum, of each task and of the job."""
        needed = self.min_available(document, plan)
        entries = self.entries(document)
        sized = {id(change.spec.entry) for change in changes}
        for name, count in needed.items():
            if id(entries[name]) in sized:
                set_if_present(entries[name], "minAvailable", count)
        set_if_present(document["spec"], "minAvailable", sum(needed.values()))
        yield from ()

    def _task(self, plan: Plan, role: Role, name: str, group: Group) -> dict[str, Any]:
        policies = {"policies": [{"event": "TaskCompleted", "action": "CompleteJob"}]} if role == "worker" else {}
        return {
            "name": name,
            "replicas": 0,
            "minAvailable": 0,
            **policies,
            "template": pod_template(plan, "main", "OnFailure", self.container_command(plan, role, group)),
        }
