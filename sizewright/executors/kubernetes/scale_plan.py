"""ScalePlans, the objects by which DLRover up to 0.4 changes a running ElasticJob.

DLRover acts once on each newly created ScalePlan, so every plan becomes an object with a name of its own. It takes a
resource that is missing for 0, so all of them are written. (Kind and fields: DLRover v0.4.0.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from sizewright.errors import InputError
from sizewright.executors.kubernetes.container_spec import ContainerSpec, YamlMap, expect_mapping
from sizewright.executors.kubernetes.pod_template import metadata
from sizewright.executors.plan_annotations import APPLIED_AT
from sizewright.formatting import cpu_quantity, memory_quantity
from sizewright.spec import Group, Plan, Role

KIND = "ScalePlan"


def is_scale_plan(document: Any) -> bool:
    """Return whether the document is a ScalePlan."""
    return isinstance(document, Mapping) and document.get("kind") == KIND


def applied_at(document: Mapping[str, Any]) -> tuple[str, str]:
    """Return the times by which the plans of a job are ordered: when each was applied, and when it was created."""
    return (document["metadata"].get("annotations") or {}).get(APPLIED_AT, ""), created_at(document)


def created_at(document: Mapping[str, Any]) -> str:
    """Return the time at which an object was created; empty if the server does not say it."""
    return document["metadata"].get("creationTimestamp") or ""


def container_specs(document: YamlMap, role: Role) -> list[ContainerSpec]:
    """Return the place of a role's size; empty if the ScalePlan does not have the role."""
    field = f"spec.replicaResourceSpecs.{role}"
    entry = expect_mapping(document.get("spec"), "spec").get("replicaResourceSpecs", {}).get(role)
    if entry is None:
        return []
    resources = {"requests": expect_mapping(entry.get("resource"), field)}
    return [ContainerSpec(field, expect_mapping(entry, field), {"resources": resources})]


def build_scale_plan(plan: Plan, groups: Mapping[Role, tuple[Group, ...]], cpu_step_m: int) -> dict[str, Any]:
    """Return the ScalePlan object of a plan. Raises InputError for a change that a ScalePlan cannot express."""
    if plan.current and plan.current.batch_size != plan.target.batch_size:
        raise InputError(
            f"Plan {plan.id} changes the batch size, which a ScalePlan cannot express.",
            "Stop the job, and launch it with the other batch size.",
        )
    meta = metadata(plan)
    # Long plan ids are cut; the hash keeps the names of different plans different.
    digest = hashlib.sha256(plan.id.encode()).hexdigest()[:8]
    meta["name"] = f"{plan.job.name}-{plan.id.removeprefix(plan.job.name + '-')}"[:54].rstrip("-") + f"-{digest}"
    meta["labels"] |= {"elasticjob.dlrover/name": plan.job.name, "scale-type": "manual"}
    return {
        "apiVersion": "elastic.iml.github.io/v1alpha1",
        "kind": KIND,
        "metadata": meta,
        "spec": {
            "ownerJob": plan.job.name,
            "replicaResourceSpecs": {
                role: _resource_spec(plan, role, group, cpu_step_m) for role, (group,) in groups.items()
            },
        },
    }


def _resource_spec(plan: Plan, role: Role, group: Group, cpu_step_m: int) -> dict[str, Any]:
    if not group.memory_bytes:
        raise InputError(
            f"Plan {plan.id} has no memory for {role}, and a ScalePlan without it requests none.",
            f"Set the memory of {role}.",
        )
    if group.gpu:
        raise InputError(f"Plan {plan.id} has GPUs for {role}, which a ScalePlan cannot request.", "Leave them out.")
    return {
        "replicas": group.replicas,
        "resource": {"cpu": cpu_quantity(group.cpu, cpu_step_m), "memory": memory_quantity(group.memory_bytes)},
    }
