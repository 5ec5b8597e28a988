"""Launch plans as ElasticJob manifests for DLRover's operator on Kubernetes."""

from __future__ import annotations

from typing import Any

from sizewright.errors import InputError
from sizewright.executors.kubernetes import (
    BATCH_SIZE_ENV,
    GPU_RESOURCE,
    metadata,
    only_group,
    resource_requirements,
)
from sizewright.executors.manifest import to_yaml
from sizewright.executors.render_only import RenderOnly, require_launch
from sizewright.spec import ROLES, Group, Plan, Role

# DLRover reads CPU requests to a tenth of a core, so that 250m would become 0.2 and 40m nothing.
_CPU_STEP_M = 100
_RESTARTS = 3
# Its master's service is called elasticjob-NAME-dlrover-master, and Kubernetes allows 63 characters.
_LONGEST_NAME = 63 - len("elasticjob--dlrover-master")


class DlroverExecutor(RenderOnly):
    """Renders launch plans as ElasticJobs (`elastic.iml.github.io/v1alpha1`)."""

    name = "dlrover"

    def render(self, plan: Plan) -> str:
        """The manifest; raises InputError for a plan that an ElasticJob cannot express."""
        require_launch(plan, self.name)
        if len(plan.job.name) > _LONGEST_NAME:
            raise InputError(
                f"The name '{plan.job.name}' is too long for DLRover's services.",
                f"Use at most {_LONGEST_NAME} characters.",
            )
        groups = _groups(plan)
        return to_yaml(_header(plan, groups), _elastic_job(plan, groups))


def _groups(plan: Plan) -> dict[Role, Group]:
    found = {role: group for role in ROLES if (group := only_group(plan.target, role))}
    for role in ("worker", "ps"):
        if role not in found:
            raise InputError(
                f"DLRover's parameter server strategy needs at least one {role}; plan {plan.id} has none.",
                f"Add a {role} to its target.",
            )
    return found


def _elastic_job(plan: Plan, groups: dict[Role, Group]) -> dict[str, Any]:
    # autoScale is off, or DLRover's own optimizer would replace these sizes at the start.
    return {
        "apiVersion": "elastic.iml.github.io/v1alpha1",
        "kind": "ElasticJob",
        "metadata": metadata(plan),
        "spec": {
            "distributionStrategy": "ParameterServerStrategy",
            "optimizeMode": "single-job",
            "replicaSpecs": {role: _replica_spec(plan, group) for role, group in groups.items()},
        },
    }


def _replica_spec(plan: Plan, group: Group) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": plan.job.deploy.image,
        "command": list(plan.job.deploy.command),
        "env": [{"name": BATCH_SIZE_ENV, "value": str(plan.target.batch_size)}],
        "resources": resource_requirements(group, _CPU_STEP_M),
    }
    return {
        "replicas": group.replicas,
        "restartCount": _RESTARTS,
        "autoScale": False,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }


def _header(plan: Plan, groups: dict[Role, Group]) -> list[str]:
    lines = [
        f"Sizewright plan {plan.id}: launch {plan.target.describe()}",
        f"Why: {plan.reason}",
        "Run it with: kubectl apply -f this-file.yaml",
        "CPU is rounded up to tenths of a core, which is what DLRover reads.",
    ]
    for role, group in groups.items():
        if not group.memory_bytes:
            lines.append(f"The memory of {role} is not known, so none is asked for and none is guaranteed.")
        if group.gpu and group.gpu.kind not in ("gpu", GPU_RESOURCE):
            lines.append(f"GPUs of {role} are of kind {group.gpu.kind}: add the nodeSelector that finds them.")
    return lines
