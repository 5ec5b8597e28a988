"""What manifests for Kubernetes share: metadata, pod templates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sizewright.errors import InputError
from sizewright.executors.plan_notes import notes
from sizewright.executors.pod_command import Start
from sizewright.executors.slots import BATCH_SIZE_ENV
from sizewright.progress import STDOUT
from sizewright.progress import VARIABLE as PROGRESS
from sizewright.spec import Allocation, Group, Plan, Role
from sizewright.spec.units import format_count


def metadata(plan: Plan) -> dict[str, Any]:
    """Name, namespace, labels to select by, and annotations that say which plan this is and why."""
    return {
        "name": plan.job.name,
        "namespace": plan.job.deploy.namespace,
        "labels": {"app.kubernetes.io/managed-by": "sizewright", "sizewright/job-hash": plan.job.hash},
        "annotations": notes(plan),
    }


def pod_template(plan: Plan, container: str, restart: str, start: Start) -> dict[str, Any]:
    """A pod of one container, whose resources are written where its role is."""
    usual = {
        BATCH_SIZE_ENV: {"name": BATCH_SIZE_ENV, "value": str(plan.target.batch_size)},
        PROGRESS: {"name": PROGRESS, "value": STDOUT},  # log_samples prints, and `observe` reads the pod's log
    }
    own = {each["name"] for each in start.env}
    told = {
        "name": container,
        "image": plan.job.deploy.image,
        "command": start.words,
        **({"workingDir": plan.job.deploy.folder} if plan.job.deploy.folder else {}),
        "env": [*start.env, *(each for name, each in usual.items() if name not in own)],
    }
    policy = {"restartPolicy": restart} if restart else {}
    return {"spec": {**policy, "containers": [told]}}


def floors(plan: Plan, role: Role, counts: Sequence[int]) -> list[int]:
    """How many replicas of each group start together: all, but of asynchronous workers as many as the plan's `lower`
    has."""
    if role != "worker" or plan.job.training.sync == "sync":
        return list(counts)
    left, found = max(1, (plan.lower or plan.target).replicas(role)), []
    for count in counts:
        found.append(min(count, left))
        left -= found[-1]
    return found


def only_group(allocation: Allocation, role: Role) -> Group | None:
    """The one group of a role that has replicas, none where no group has; raises InputError where several have."""
    groups = [group for group in getattr(allocation, role) if group.replicas]
    if len(groups) > 1:
        sizes = " and ".join(f"{group.replicas} × {format_count(group.cpu, 'core')}" for group in groups)
        raise InputError(
            f"A manifest of this kind has one size per role, and the plan has {len(groups)} for {role}: {sizes}.",
            "Make the groups equal, or merge them into one.",
        )
    return groups[0] if groups else None
