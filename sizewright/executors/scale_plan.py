"""ScalePlans, by which DLRover up to 0.4 changes a running ElasticJob.

Its watcher acts on newly created objects, once each: every plan is an object of its own name. A resource that is not
told counts as 0, so all are told. (Kind and fields: DLRover v0.4.0.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from sizewright.errors import InputError
from sizewright.executors.kubernetes import metadata
from sizewright.executors.plan_notes import APPLIED_AT
from sizewright.executors.slots import Node, Slot, node
from sizewright.spec import Group, Plan, Role
from sizewright.spec.units import cpu_quantity, memory_quantity

KIND = "ScalePlan"


def is_one(document: Any) -> bool:
    """Whether it is of this kind."""
    return isinstance(document, Mapping) and document.get("kind") == KIND


def made_at(document: Mapping[str, Any]) -> tuple[str, str]:
    """What orders the plans of a job: when each was applied."""
    meta = document["metadata"]
    return (meta.get("annotations") or {}).get(APPLIED_AT, ""), meta.get("creationTimestamp", "")


def slots(document: Node, role: Role) -> list[Slot]:
    """Where the sizes of a role are."""
    field = f"spec.replicaResourceSpecs.{role}"
    entry = node(document.get("spec"), "spec").get("replicaResourceSpecs", {}).get(role)
    if entry is None:
        return []
    return [Slot(field, node(entry, field), {"resources": {"requests": node(entry.get("resource"), field)}})]


def document(plan: Plan, groups: Mapping[Role, tuple[Group, ...]], cpu_step_m: int) -> dict[str, Any]:
    """The object. Raises InputError for sizes that it cannot tell."""
    if plan.current and plan.current.batch_size != plan.target.batch_size:
        raise InputError(
            f"Plan {plan.id} changes the batch size, which a ScalePlan does not have.",
            "Stop the job, and launch it with the other batch size.",
        )
    told = metadata(plan)
    told["name"] = _name(plan)
    told["labels"] |= {"elasticjob.dlrover/name": plan.job.name, "scale-type": "manual"}
    return {
        "apiVersion": "elastic.iml.github.io/v1alpha1",
        "kind": KIND,
        "metadata": told,
        "spec": {
            "ownerJob": plan.job.name,
            "replicaResourceSpecs": {role: _spec(plan, role, group, cpu_step_m) for role, (group,) in groups.items()},
        },
    }


def _name(plan: Plan) -> str:
    """Of no other plan: ids may differ where they are too long to be told whole."""
    own = hashlib.sha256(plan.id.encode()).hexdigest()[:8]
    return f"{plan.job.name}-{plan.id.removeprefix(plan.job.name + '-')}"[:54].rstrip("-") + f"-{own}"


def _spec(plan: Plan, role: Role, group: Group, cpu_step_m: int) -> dict[str, Any]:
    if not group.memory_bytes:
        raise InputError(
            f"Plan {plan.id} does not tell the memory of {role}, and a ScalePlan without it asks for none.",
            f"Give the memory of {role}.",
        )
    if group.gpu:
        raise InputError(f"Plan {plan.id} has GPUs of {role}, which a ScalePlan cannot ask for.", "Leave them out.")
    return {
        "replicas": group.replicas,
        "resource": {"cpu": cpu_quantity(group.cpu, cpu_step_m), "memory": memory_quantity(group.memory_bytes)},
    }
