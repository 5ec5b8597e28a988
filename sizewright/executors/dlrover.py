"""Plans for DLRover's operator on Kubernetes: ElasticJobs, and the ScalePlans of its releases up to 0.4."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from sizewright.errors import InputError
from sizewright.executors import scale_plan
from sizewright.executors.cluster_executor import ClusterExecutor
from sizewright.executors.kube_api import KubeApi
from sizewright.executors.kubernetes import metadata, pod_template
from sizewright.executors.manifest import to_yaml
from sizewright.executors.manifest_executor import find
from sizewright.executors.pod_command import Finds
from sizewright.executors.pods import PodLabels
from sizewright.executors.repeated_sizes import Change
from sizewright.executors.slots import Node, Slot
from sizewright.executors.totals import beyond_total
from sizewright.spec import ROLES, Group, Plan, Role
from sizewright.spec.outcome import Status

_RESTARTS = 3
_LAST_WITH_SCALE_PLANS = (0, 4)


class DlroverExecutor(ClusterExecutor):
    """Renders plans as ElasticJobs (`elastic.iml.github.io/v1alpha1`), which is how releases from 0.5 on are changed,
    too. With `version` 0.4 or less, a plan that changes a running job is a ScalePlan.
    """

    name = "dlrover"
    api_version, kind = "elastic.iml.github.io/v1alpha1", "ElasticJob"
    roles_at = "spec.replicaSpecs"
    roles: ClassVar[Mapping[Role, str]] = {role: role for role in ROLES}
    of_platform = ("dlrover-master", "master")
    finds = Finds(
        "ElasticJob",
        gives=frozenset({"tf_config"}),
        refuses={
            "torchrun": "DLRover's parameter server strategy has no MASTER_ADDR, RANK and WORLD_SIZE for its replicas",
            "hosts": "DLRover tells replicas of each other by TF_CONFIG alone",
        },
    )
    # DLRover reads CPU requests to a tenth of a core, so that 250m would become 0.2 and 40m nothing.
    cpu_step_m = 100
    # Its master's service is called elasticjob-NAME-dlrover-master, and Kubernetes allows 63 characters.
    longest_name = 63 - len("elasticjob--dlrover-master")

    labels = PodLabels(*(f"elasticjob.dlrover/{key}" for key in ("name", "replica-type", "rank-index")))
    scales: ClassVar[frozenset[Role]] = frozenset({"worker", "ps"})
    resizes = True

    def __init__(
        self,
        *,
        base: str | Path | None = None,
        roles: Mapping[str, str] | None = None,
        version: str | None = None,
        kubeconfig: str | None = None,
        context: str | None = None,
        api: KubeApi | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(base=base, roles=roles, kubeconfig=kubeconfig, context=context, api=api, clock=clock)
        self._scale_plans = version is not None and _release(version) <= _LAST_WITH_SCALE_PLANS

    def _rendered(self, plan: Plan) -> tuple[str, list[str]]:
        if self._scale_plans and plan.kind == "adjust":
            groups = self.groups(plan)
            return to_yaml(self.header(plan, groups), scale_plan.document(plan, groups, self.cpu_step_m)), []
        return super()._rendered(plan)

    def latest(self, there: dict[str, Any]) -> dict[str, Any]:
        """The last ScalePlan of a job, where it is changed by such; those of an earlier job of its name stay behind."""
        if not self._scale_plans:
            return there
        name, namespace = there["metadata"]["name"], there["metadata"]["namespace"]
        found = self.api.list(self.api_version, scale_plan.KIND, namespace, f"elasticjob.dlrover/name={name}")
        began = there["metadata"].get("creationTimestamp", "")
        own = [each for each in found if each["metadata"].get("creationTimestamp", "") >= began]
        return max([there, *own], key=scale_plan.made_at)

    def slots(self, document: Node, role: Role) -> list[Slot]:
        """Where the sizes of a role are."""
        if document.get("kind") == scale_plan.KIND:
            return scale_plan.slots(document, role)
        return super().slots(document, role)

    def mine(self, documents: list[Any], name: str, job: str = "") -> Node:
        """An ElasticJob or a ScalePlan."""
        kind = scale_plan.KIND if any(scale_plan.is_one(each) for each in documents) else self.kind
        return find(documents, self.api_version, kind, name, job if kind == self.kind else "")

    def groups(self, plan: Plan) -> dict[Role, tuple[Group, ...]]:
        """Those that have replicas; its parameter server strategy needs both roles."""
        found = super().groups(plan)
        for role in ("worker", "ps"):
            if role not in found:
                raise InputError(
                    f"DLRover's parameter server strategy needs at least one {role}; plan {plan.id} has none.",
                    f"Add a {role} to its target.",
                )
        return found

    def minimal(self, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> dict[str, Any]:
        """autoScale is off, or DLRover's own optimizer would replace these sizes at the start."""
        template: dict[str, Any] = {"restartCount": _RESTARTS, "autoScale": False}
        if plan.job.deploy.priority_class:
            template["priority"] = plan.job.deploy.priority_class
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": metadata(plan),
            "spec": {
                "distributionStrategy": "ParameterServerStrategy",
                "optimizeMode": "single-job",
                "replicaSpecs": {
                    role: {
                        "replicas": 0,
                        **template,
                        "template": pod_template(plan, "main", "Never", self.start(plan, role, group)),
                    }
                    for role, (group,) in groups.items()
                },
            },
        }

    def fit(self, document: Node, plan: Plan, changes: Sequence[Change]) -> Iterator[str]:
        """Say what would replace the sizes, or has less room than they need."""
        spec = document["spec"]
        for change in changes:
            if change.slot.counted.get("autoScale"):
                yield f"{change.slot.field}.autoScale is on: DLRover's own optimizer may replace these sizes."
        yield from beyond_total(spec.get("resourceLimits"), "spec.resourceLimits", self.entries(document))

    def header(self, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> list[str]:
        """Comment lines above a manifest."""
        rounding = "CPU is rounded up to tenths of a core, which is what DLRover reads."
        return [*super().header(plan, groups), rounding]

    def ended(self, document: Mapping[str, Any]) -> Status | None:
        """By its phase."""
        phase = (document.get("status") or {}).get("phase")
        return {"Succeeded": "finished", "Failed": "failed"}.get(str(phase))  # type: ignore[return-value]


def _release(version: str) -> tuple[int, int]:
    parts = version.lstrip("v").split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):
        raise InputError(f"'{version}' is not a release of DLRover.", "Write such as 0.4 or 0.5.1.")
    return int(parts[0]), int(parts[1])
