"""Plans as RayJobs of KubeRay: a group of Ray workers for each role."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar

from sizewright.errors import InputError
from sizewright.executors.cluster_executor import ClusterExecutor
from sizewright.executors.kubernetes import metadata, pod_template
from sizewright.executors.manifest_executor import group_names, replace
from sizewright.executors.pod_command import Finds, Start, start, starts_command
from sizewright.executors.pods import PodLabels
from sizewright.executors.repeated_sizes import Change
from sizewright.executors.slots import Node, like, whole
from sizewright.spec import ROLES, Group, Plan, Role
from sizewright.spec.outcome import Status
from sizewright.spec.units import is_count


def _fit_ray(params: Node, change: Change) -> Iterator[str]:
    """Parameters of `ray start` that repeat the size of the container follow it; 0 says that Ray is to use none."""
    at, before, after = f"{change.slot.field}.rayStartParams", change.before, change.after
    for name, then, now in (
        ("num-cpus", before.cpu and whole(before.cpu), after.cpu and whole(after.cpu)),
        ("num-gpus", before.gpus, after.gpus),
        ("memory", before.memory_bytes, after.memory_bytes),
    ):
        was = str(params.get(name, ""))
        if was in ("", "0") or now is None or was == str(now):
            continue
        params[name] = like(params[name], now)
        if was != str(then):
            yield f"{at}.{name} was {was}, which was not the size of the container; it is now {now}."
    store = str(params.get("object-store-memory", ""))
    if is_count(store) and before.memory_bytes and after.memory_bytes and before.memory_bytes != after.memory_bytes:
        now = int(store) * after.memory_bytes // before.memory_bytes
        params["object-store-memory"] = like(params["object-store-memory"], now)
        yield f"{at}.object-store-memory was {store}; it keeps its share of the container's memory: {now}."
    elif is_count(store) and after.memory_bytes and int(store) >= after.memory_bytes:
        yield f"{at}.object-store-memory is {store}, and the container has {after.memory_bytes} bytes: lower it."


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
    first_container = True  # KubeRay starts Ray there, and injected sidecars come behind it
    aliases: ClassVar[Mapping[Role, Sequence[str]]] = {"worker": ("trainer",), "ps": ("pserver", "parameter-server")}
    finds = Finds("RayJob")
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
        driver = self._driver(plan)
        head = pod_template(plan, "ray-head", "Never", driver)
        head["spec"]["containers"][0]["resources"] = {"requests": dict(_HEAD), "limits": dict(_HEAD)}
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
                        self._group(plan, role, name, driver)
                        for role, of_role in groups.items()
                        for name in group_names(self.roles[role], len(of_role))
                    ],
                },
            },
        }

    def fit(self, document: Node, plan: Plan, changes: Sequence[Change]) -> Iterator[str]:
        """The range that each group may be scaled in, and what its pods tell Ray that they have."""
        for role in self.roles:
            slots = [change.slot for change in changes if change.role == role]
            for slot in slots:
                count = slot.counted["replicas"]
                alone = len(slots) == 1
                least = plan.lower.replicas(role) if plan.lower and alone else count
                most = plan.upper.replicas(role) if plan.upper and alone else count
                least = count if plan.job.training.sync == "sync" else min(least, count)
                replace(slot.counted, "minReplicas", least)
                replace(slot.counted, "maxReplicas", max(most, count))
        for change in changes:
            hosts = change.slot.counted.get("numOfHosts", 1)
            if hosts != 1:
                raise InputError(
                    f"{change.slot.field}.numOfHosts is {hosts}: a replica of this group is {hosts} pods, and plans "
                    "count pods.",
                    "Set it to 1.",
                )
            params = change.slot.counted.get("rayStartParams")
            if isinstance(params, MutableMapping):
                yield from _fit_ray(params, change)

    def _driver(self, plan: Plan) -> Start:
        """The command that runs once, on the head, and starts the rest by Ray."""
        command = plan.job.command
        if command is None:
            return Start(list(plan.job.deploy.command), [])
        if starts_command(plan.job):
            raise InputError(
                f"{plan.job.name} is a command that is started for each replica, and a RayJob starts one driver.",
                "Give the driver as deploy.command in the job file, or use an executor that starts the command for "
                "each replica: volcano, slurm.",
            )
        texts = [*command.env.values()]
        if any(f"{{{name}}}" in text for text in texts for name in ("index", "role", "cores")):
            raise InputError(
                f"command.env of {plan.job.name} differs from replica to replica, and all pods of a RayJob have one.",
                "Take {index}, {role} and {cores} out of it.",
            )
        (role, group), *_ = [(r, g) for r, g in plan.target.groups if g.replicas]
        own = {*command.env}
        told = start(plan, role, group, self.finds, None)
        return Start(told.words, [each for each in told.env if each["name"] in own])

    def _group(self, plan: Plan, role: Role, name: str, driver: Start) -> dict[str, Any]:
        template = pod_template(plan, "ray-worker", "Never", driver)
        del template["spec"]["containers"][0]["command"]
        offers = json.dumps(json.dumps({role: 1}))  # a string within a string: it passes through a shell
        return {
            "groupName": name, "replicas": 0, "minReplicas": 0, "maxReplicas": 0,
            "rayStartParams": {"resources": offers}, "template": template,
        }  # fmt: skip
