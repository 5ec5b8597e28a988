"""Plans as jobs of Volcano, which starts the replicas of a job together or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from sizewright.executors.cluster_executor import ClusterExecutor
from sizewright.executors.kubernetes import metadata, pod_template
from sizewright.executors.manifest_executor import group_names, replace
from sizewright.executors.pod_command import Finds
from sizewright.executors.pods import PodLabels
from sizewright.executors.repeated_sizes import Change
from sizewright.executors.slots import Node
from sizewright.spec import Group, Plan, Role
from sizewright.spec.outcome import Status


class VolcanoExecutor(ClusterExecutor):
    """Renders plans as Jobs (`batch.volcano.sh/v1alpha1`) with one task per role.

    The gang's floor are all PS, each of which holds rows that no other has, and as many workers as the plan's `lower`.
    """

    name = "volcano"
    api_version, kind, roles_at, named_by = "batch.volcano.sh/v1alpha1", "Job", "spec.tasks", "name"
    roles: ClassVar[Mapping[Role, str]] = {"chief": "chief", "worker": "worker", "ps": "ps", "evaluator": "evaluator"}
    aliases: ClassVar[Mapping[Role, Sequence[str]]] = {"worker": ("trainer",), "ps": ("pserver", "parameter-server")}
    finds = Finds("Volcano job", host="{job}-{role}-{index}.{job}")
    labels = PodLabels("volcano.sh/job-name", "volcano.sh/task-spec", "volcano.sh/task-index")
    scales: ClassVar[frozenset[Role]] = frozenset({"worker"})  # all else of a job cannot be changed
    longest_name = 63 - len("-evaluator-2-000")

    def ended(self, document: Mapping[str, Any]) -> Status | None:
        """By the phase of its state."""
        phase = ((document.get("status") or {}).get("state") or {}).get("phase")
        if phase == "Completed":
            return "finished"
        return "failed" if phase in ("Failed", "Aborted", "Terminated") else None

    def minimal(self, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> dict[str, Any]:
        """Replicas find each other by the files of Volcano's svc plugin; the job ends with its workers."""
        tasks = [
            self._task(plan, role, name, group)
            for role, of_role in groups.items()
            for name, group in zip(group_names(self.roles[role], len(of_role)), of_role, strict=True)
        ]
        priority = {"priorityClassName": plan.job.deploy.priority_class} if plan.job.deploy.priority_class else {}
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": metadata(plan),
            "spec": {
                "schedulerName": "volcano", "minAvailable": 0, "maxRetry": 3, **priority,
                "plugins": {"env": [], "svc": []}, "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
                "tasks": tasks,
            },
        }  # fmt: skip

    def fit(self, document: Node, plan: Plan, changes: Sequence[Change]) -> Iterator[str]:
        """The floor of the gang, of each task and of all."""
        needed, entries = self.floor(document, plan), self.entries(document)
        sized = {id(change.slot.counted) for change in changes}
        for name, count in needed.items():
            if id(entries[name]) in sized:
                replace(entries[name], "minAvailable", count)
        replace(document["spec"], "minAvailable", sum(needed.values()))
        yield from ()

    def _task(self, plan: Plan, role: Role, name: str, group: Group) -> dict[str, Any]:
        ends = {"policies": [{"event": "TaskCompleted", "action": "CompleteJob"}]} if role == "worker" else {}
        return {
            "name": name,
            "replicas": 0,
            "minAvailable": 0,
            **ends,
            "template": pod_template(plan, "main", "OnFailure", self.start(plan, role, group)),
        }
