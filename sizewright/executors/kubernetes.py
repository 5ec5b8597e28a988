"""What manifests for Kubernetes share: quantities, resource requirements, metadata."""

from __future__ import annotations

import math
from typing import Any

from sizewright.errors import InputError
from sizewright.spec import Allocation, Group, Plan, Resources, Role
from sizewright.spec.units import MIB

GPU_RESOURCE = "nvidia.com/gpu"
BATCH_SIZE_ENV = "SIZEWRIGHT_BATCH_SIZE"


def cpu_quantity(cores: float, step_m: int = 1) -> str:
    """Cores as Kubernetes writes them (`500m`, `2`), rounded up to whole steps of `step_m` millicores.

    Raises InputError for an infinite number.
    """
    if not math.isfinite(cores):
        raise InputError(f"{cores} is not a number of cores.", "Give a finite number, such as 2 or 500m.")
    # Rounding first, or 0.07 cores (70.00000000000001 millicores) would become 71m.
    steps = max(1, math.ceil(round(cores * 1000 / step_m, 6)))
    millicores = steps * step_m
    return f"{millicores}m" if millicores % 1000 else str(millicores // 1000)


def memory_quantity(memory_bytes: int) -> str:
    """Bytes in whole Mi, rounded up."""
    return f"{-(-memory_bytes // MIB)}Mi"


def resource_requirements(replica: Resources | Group, cpu_step_m: int = 1) -> dict[str, dict[str, str | int]]:
    """Equal requests and limits of one replica's container; memory that is not known (0) is left out."""
    amounts: dict[str, str | int] = {"cpu": cpu_quantity(replica.cpu, cpu_step_m)}
    if replica.memory_bytes:
        amounts["memory"] = memory_quantity(replica.memory_bytes)
    if replica.gpu:
        amounts[GPU_RESOURCE] = replica.gpu.count
    return {"requests": dict(amounts), "limits": dict(amounts)}


def metadata(plan: Plan) -> dict[str, Any]:
    """Name, namespace, labels to select by, and annotations that say which plan this is and why."""
    return {
        "name": plan.job.name,
        "namespace": plan.job.deploy.namespace,
        "labels": {"app.kubernetes.io/managed-by": "sizewright", "sizewright/job-hash": plan.job.hash},
        "annotations": {"sizewright/plan": plan.id, "sizewright/reason": plan.reason},
    }


def only_group(allocation: Allocation, role: Role) -> Group | None:
    """The one group of a role that has replicas, none where no group has; raises InputError where several have."""
    groups = [group for group in getattr(allocation, role) if group.replicas]
    if len(groups) > 1:
        sizes = " and ".join(f"{group.replicas} × {group.cpu:g} cores" for group in groups)
        raise InputError(
            f"A manifest of this kind has one size per role, and the plan has {len(groups)} for {role}: {sizes}.",
            "Make the groups equal, or merge them into one.",
        )
    return groups[0] if groups else None
