"""Plans as RayJobs of KubeRay: a group of Ray workers for each role."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any, ClassVar

from sizewright.executors.cluster_executor import ClusterExecutor
from sizewright.executors.kubernetes import metadata, pod_template
from sizewright.executors.manifest_executor import group_names, replace
from sizewright.executors.pods import PodLabels
from sizewright.executors.slots import Node
from sizewright.spec import ROLES, Group, Plan, Role
from sizewright.spec.outcome import Status

_HEAD = {"cpu": "1", "memory": "2Gi"}


class KuberayExecutor(ClusterExecutor):
    """Renders plans as RayJobs (`ray.io/v1`).

    Ray pods of a group offer a resource of the role's name, by which actors find their place; groups may be scaled
    between the plan's `lower` and `upper`.
    """

    name = "kuberay"
    api_version, kind = "ray.io/v1", "RayJob"
    roles_at, named_by = "spec.rayClusterSpec.workerGroupSpecs", "groupName"
    roles: ClassVar[Mapping[Role, str]] = {role: role for role in ROLES}
    containers = ("ray-worker",)
    labels = PodLabels("ray.io/cluster", "ray.io/group")
    longest_name = 47  # KubeRay's own limit for RayJobs

    def ended(self, document: Mapping[str, Any]) -> Status | None:
        """By the status of its Ray job, or of its deployment where Ray never began it."""
        status = document.get("status") or {}
        if status.get("jobStatus") == "SUCCEEDED":
            return "finished"
        if status.get("jobStatus") == "STOPPED":
            return "stopped"
        return (
            "failed" if "FAILED" in (status.get("jobStatus"), str(status.get("jobDeploymentStatus")).upper()) else None
        )

    def labelled(self, document: Mapping[str, Any]) -> str:
        """The name of the Ray cluster that KubeRay made for the job."""
        return str((document.get("status") or {}).get("rayClusterName") or document["metadata"]["name"])

    def minimal(self, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> dict[str, Any]:
        """The command is the driver, on a head that trains nothing itself."""
        head = pod_template(plan, "ray-head", "Never")
        head["spec"]["containers"][0]["resources"] = {"requests": dict(_HEAD), "limits": dict(_HEAD)}
        del head["spec"]["containers"][0]["command"]  # KubeRay starts Ray there
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": metadata(plan),
            "spec": {
                "entrypoint": shlex.join(plan.job.deploy.command),
                "shutdownAfterJobFinishes": True,
                "rayClusterSpec": {
                    "headGroupSpec": {"rayStartParams": {"num-cpus": "0"}, "template": head},
                    "workerGroupSpecs": [
                        self._group(plan, role, name)
                        for role, of_role in groups.items()
                        for name in group_names(self.roles[role], len(of_role))
                    ],
                },
            },
        }

    def fit(self, document: Node, plan: Plan) -> None:
        """The range that each group may be scaled in."""
        for role in self.roles:
            slots = self.slots(document, role)
            for slot in slots:
                count = slot.counted["replicas"]
                alone = len(slots) == 1
                least = plan.lower.replicas(role) if plan.lower and alone else count
                most = plan.upper.replicas(role) if plan.upper and alone else count
                replace(slot.counted, "minReplicas", min(least, count))
                replace(slot.counted, "maxReplicas", max(most, count))

    def _group(self, plan: Plan, role: Role, name: str) -> dict[str, Any]:
        template = pod_template(plan, "ray-worker", "Never")
        del template["spec"]["containers"][0]["command"]
        offers = json.dumps(json.dumps({role: 1}))  # a string within a string: it passes through a shell
        return {
            "groupName": name, "replicas": 0, "minReplicas": 0, "maxReplicas": 0,
            "rayStartParams": {"resources": offers}, "template": template,
        }  # fmt: skip
