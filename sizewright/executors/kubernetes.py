"""What manifests for Kubernetes share: metadata, pod templates."""

from __future__ import annotations

from typing import Any

from sizewright.errors import InputError
from sizewright.executors.plan_notes import notes
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


def pod_template(plan: Plan, container: str, restart: str) -> dict[str, Any]:
    """A pod of one container, whose resources are written where its role is."""
    told = {
        "name": container,
        "image": plan.job.deploy.image,
        "command": list(plan.job.deploy.command),
        "env": [
            {"name": BATCH_SIZE_ENV, "value": str(plan.target.batch_size)},
            {"name": PROGRESS, "value": STDOUT},  # log_samples prints, and `observe` reads the pod's log
        ],
    }
    policy = {"restartPolicy": restart} if restart else {}
    return {"spec": {**policy, "containers": [told]}}


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
