"""Plans as RayJobs of KubeRay: a group of Ray workers for each role."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar

from sizewright.errors import InputError
from sizewright.executors.kubernetes.cluster_executor import ClusterExecutor
from sizewright.executors.kubernetes.container_spec import YamlMap, quoted_like, round_up_cores
from sizewright.executors.kubernetes.manifest_executor import group_names, set_if_present
from sizewright.executors.kubernetes.pod_command import (
    ContainerCommand,
    Discovery,
    container_command,
    runs_job_command,
)
from sizewright.executors.kubernetes.pod_template import metadata, pod_template
from sizewright.executors.kubernetes.pods import PodLabels
from sizewright.executors.kubernetes.repeated_sizes import SizeChange
from sizewright.spec import ROLES, Group, Plan, Role
from sizewright.spec.outcome import Status
from sizewright.spec.units import is_count

_HEAD_RESOURCES = {"cpu": "1", "memory": "2Gi"}


class KuberayExecutor(ClusterExecutor):
    """Render plans as RayJobs (`ray.io/v1`).

    The Ray pods of a group offer a resource with the role's name, by which actors are placed. The autoscaler may scale
    a group between the plan's `lower` and `upper`.
    """

    name = "kuberay"
    api_version = "ray.io/v1"
    kind = "RayJob"
    roles_path = "spec.rayClusterSpec.workerGroupSpecs"
    named_by = "groupName"
    roles: ClassVar[Mapping[Role, str]] = {role: role for role in ROLES}
    containers = ("ray-worker",)
    first_container_trains = True  # KubeRay starts Ray there, and injected sidecars follow it
    aliases: ClassVar[Mapping[Role, Sequence[str]]] = {"worker": ("trainer",), "ps": ("pserver", "parameter-server")}
    discovery = Discovery("RayJob")
    labels = PodLabels("ray.io/cluster", "ray.io/group")
    max_name_length = 47  # KubeRay's own limit for RayJobs

    def end_status(self, document: Mapping[str, Any]) -> Status | None:
        """Return the status by that of the Ray job, or of its deployment if Ray never started the job."""
        status = document.get("status") or {}
        if status.get("jobStatus") == "SUCCEEDED":
            return "finished"
        if status.get("jobStatus") == "STOPPED":
            return "stopped"
        if status.get("jobStatus") == "FAILED" or str(status.get("jobDeploymentStatus")).upper() == "FAILED":
            return "failed"
        return None

    def job_label(self, document: Mapping[str, Any]) -> str:
        """Return the name of the Ray cluster that KubeRay created for the job."""
        return str((document.get("status") or {}).get("rayClusterName") or document["metadata"]["name"])

    def minimal_manifest(self, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> dict[str, Any]:
        """Return a manifest whose head runs the job's command as the driver, and trains nothing itself."""
        driver = self._driver(plan)
        head = pod_template(plan, "ray-head", "Never", driver)
        head["spec"]["containers"][0]["resources"] = {
            "requests": dict(_HEAD_RESOURCES),
            "limits": dict(_HEAD_RESOURCES),
        }
        del head["spec"]["containers"][0]["command"]  # KubeRay starts Ray there
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": metadata(plan),
            "spec": {
                "entrypoint": shlex.join(driver.words),
                "shutdownAfterJobFinishes": True,
                "rayClusterSpec": {
                    "headGroupSpec": {"rayStartParams": {"num-cpus": "0"}, "template": head},
                    "workerGroupSpecs": [
                        self._worker_group(plan, role, name, driver)
                        for role, role_groups in groups.items()
                        for name in group_names(self.roles[role], len(role_groups))
                    ],
                },
            },
        }

    def adapt(self, document: YamlMap, plan: Plan, changes: Sequence[SizeChange]) -> Iterator[str]:
        """Adapt the range in which each group may be scaled, and the resources that its pods offer to Ray."""
        for role in self.roles:
            entries = [change.spec.entry for change in changes if change.role == role]
            for entry in entries:
                count = entry["replicas"]
                lower = upper = count
                if len(entries) == 1:
                    lower = min(plan.lower.replicas(role), count) if plan.lower else count
                    upper = max(plan.upper.replicas(role), count) if plan.upper else count
                set_if_present(entry, "minReplicas", count if plan.job.training.sync == "sync" else lower)
                set_if_present(entry, "maxReplicas", upper)
        for change in changes:
            hosts = change.spec.entry.get("numOfHosts", 1)
            if hosts != 1:
                raise InputError(
                    f"{change.spec.field}.numOfHosts is {hosts}: each replica of this group is {hosts} pods, but plans "
                    "count pods.",
                    "Set it to 1.",
                )
            params = change.spec.entry.get("rayStartParams")
            if isinstance(params, MutableMapping):
                yield from _adapt_ray_params(params, change)

    def _driver(self, plan: Plan) -> ContainerCommand:
        """Return the command that runs once, on the head, and starts everything else through Ray."""
        command = plan.job.command
        if command is None:
            return ContainerCommand(list(plan.job.deploy.command), [])
        if runs_job_command(plan.job):
            raise InputError(
                f"{plan.job.name} is a command that is started for each replica, but a RayJob starts one driver.",
                "Set the driver as deploy.command in the job file, or use an executor that starts the command for "
                "each replica: volcano, slurm.",
            )
        if any(f"{{{name}}}" in text for text in command.env.values() for name in ("index", "role", "cores")):
            raise InputError(
                f"command.env of {plan.job.name} differs from replica to replica, but all pods of a RayJob share one.",
                "Remove {index}, {role} and {cores} from it.",
            )
        role, group = next((role, group) for role, group in plan.target.groups if group.replicas)
        driver = container_command(plan, role, group, self.discovery, None)
        return ContainerCommand(driver.words, [variable for variable in driver.env if variable["name"] in command.env])

    def _worker_group(self, plan: Plan, role: Role, name: str, driver: ContainerCommand) -> dict[str, Any]:
        template = pod_template(plan, "ray-worker", "Never", driver)
        del template["spec"]["containers"][0]["command"]
        role_resource = json.dumps(json.dumps({role: 1}))  # encoded twice, since it passes through a shell
        return {
            "groupName": name,
            "replicas": 0,
            "minReplicas": 0,
            "maxReplicas": 0,
            "rayStartParams": {"resources": role_resource},
            "template": template,
        }


def _adapt_ray_params(params: YamlMap, change: SizeChange) -> Iterator[str]:
    """Adapt the parameters of `ray start` that repeat a size of the container.

    A parameter of 0, by which Ray uses none of the resource, stays unchanged. Yield a sentence for each parameter that
    a person should check.
    """
    path = f"{change.spec.field}.rayStartParams"
    before, after = change.before, change.after
    for name, old_size, new_size in (
        ("num-cpus", before.cpu and round_up_cores(before.cpu), after.cpu and round_up_cores(after.cpu)),
        ("num-gpus", before.gpus, after.gpus),
        ("memory", before.memory_bytes, after.memory_bytes),
    ):
        value = str(params.get(name, ""))
        if value in ("", "0") or new_size is None or value == str(new_size):
            continue
        params[name] = quoted_like(params[name], new_size)
        if value != str(old_size):
            yield f"{path}.{name} was {value}, which was not the size of the container; it is now {new_size}."
    store = str(params.get("object-store-memory", ""))
    if is_count(store) and before.memory_bytes and after.memory_bytes and before.memory_bytes != after.memory_bytes:
        new_store = int(store) * after.memory_bytes // before.memory_bytes
        params["object-store-memory"] = quoted_like(params["object-store-memory"], new_store)
        yield f"{path}.object-store-memory was {store}; it keeps its share of the container's memory: {new_store}."
    elif is_count(store) and after.memory_bytes and int(store) >= after.memory_bytes:
        yield f"{path}.object-store-memory is {store}, but the container has only {after.memory_bytes} bytes: lower it."
