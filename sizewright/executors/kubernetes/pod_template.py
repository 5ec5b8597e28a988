"""The parts that manifests for all platforms on Kubernetes share: metadata and pod templates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sizewright.errors import InputError
from sizewright.executors.kubernetes.container_spec import BATCH_SIZE_ENV
from sizewright.executors.kubernetes.pod_command import ContainerCommand
from sizewright.executors.plan_annotations import plan_annotations
from sizewright.formatting import format_count
from sizewright.progress import STDOUT
from sizewright.progress import VARIABLE as PROGRESS
from sizewright.spec import Allocation, Group, Plan, Role


def metadata(plan: Plan) -> dict[str, Any]:
    """Return name, namespace, labels to select by, and annotations with the plan and its reason."""
    return {
        "name": plan.job.name,
        "namespace": plan.job.deploy.namespace,
        "labels": {"app.kubernetes.io/managed-by": "sizewright", "sizewright/job-hash": plan.job.hash},
        "annotations": plan_annotations(plan),
    }


def pod_template(plan: Plan, container: str, restart: str, start: ContainerCommand) -> dict[str, Any]:
    """Return a pod of one container without resources; these are written with the sizes of its role."""
    defaults = {
        BATCH_SIZE_ENV: {"name": BATCH_SIZE_ENV, "value": str(plan.target.batch_size)},
        PROGRESS: {"name": PROGRESS, "value": STDOUT},  # log_samples prints, and `observe` reads the pod's log
    }
    names = {variable["name"] for variable in start.env}
    spec: dict[str, Any] = {"restartPolicy": restart} if restart else {}
    spec["containers"] = [
        {
            "name": container,
            "image": plan.job.deploy.image,
            "command": start.words,
            **({"workingDir": plan.job.deploy.folder} if plan.job.deploy.folder else {}),
            "env": [*start.env, *(variable for name, variable in defaults.items() if name not in names)],
        }
    ]
    return {"spec": spec}


def min_available(plan: Plan, role: Role, counts: Sequence[int]) -> list[int]:
    """Return how many replicas of each of a role's groups must start together.

    These are all replicas, but of asynchronous workers only as many as the plan's `lower` has.
    """
    if role != "worker" or plan.job.training.sync == "sync":
        return list(counts)
    remaining = max(1, (plan.lower or plan.target).replicas(role))
    needed = []
    for count in counts:
        needed.append(min(count, remaining))
        remaining -= needed[-1]
    return needed


def only_group(allocation: Allocation, role: Role) -> Group | None:
    """Return the group of a role that has replicas, or None. Raises InputError if several groups have."""
    groups = [group for group in getattr(allocation, role) if group.replicas]
    if len(groups) > 1:
        sizes = " and ".join(f"{group.replicas} × {format_count(group.cpu, 'core')}" for group in groups)
        raise InputError(
            f"A manifest of this kind has one size per role, and the plan has {len(groups)} for {role}: {sizes}.",
            "Make the groups equal, or merge them into one.",
        )
    return groups[0] if groups else None
