"""Plans for DLRover's operator on Kubernetes: ElasticJobs, and the ScalePlans of its releases up to 0.4."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from sizewright.errors import InputError
from sizewright.executors.kubernetes import scale_plan
from sizewright.executors.kubernetes.api import KubeApi
from sizewright.executors.kubernetes.cluster_executor import ClusterExecutor
from sizewright.executors.kubernetes.container_spec import ContainerSpec, YamlMap
from sizewright.executors.kubernetes.manifest import Manifest
from sizewright.executors.kubernetes.manifest_executor import find_document
from sizewright.executors.kubernetes.pod_command import Discovery
from sizewright.executors.kubernetes.pod_template import metadata, pod_template
from sizewright.executors.kubernetes.pods import PodLabels
from sizewright.executors.kubernetes.repeated_sizes import SizeChange
from sizewright.executors.kubernetes.totals import beyond_total
from sizewright.spec import ROLES, Group, Plan, Role
from sizewright.spec.outcome import Status

_RESTARTS = 3
_LAST_WITH_SCALE_PLANS = (0, 4)


class DlroverExecutor(ClusterExecutor):
    """Render plans as ElasticJobs (`elastic.iml.github.io/v1alpha1`).

    Releases from 0.5 on change a running job by its ElasticJob. With `version` 0.4 or less, a plan that changes a
    running job is rendered as a ScalePlan.
    """

    name = "dlrover"
    api_version = "elastic.iml.github.io/v1alpha1"
    kind = "ElasticJob"
    roles_path = "spec.replicaSpecs"
    roles: ClassVar[Mapping[Role, str]] = {role: role for role in ROLES}
    platform_entries = ("dlrover-master", "master")
    discovery = Discovery(
        "ElasticJob",
        provides=frozenset({"tf_config"}),
        unsupported={
            "torchrun": "DLRover's parameter server strategy has no MASTER_ADDR, RANK and WORLD_SIZE for its replicas",
            "hosts": "DLRover sets only TF_CONFIG",
        },
    )
    # DLRover truncates CPU requests to tenths of a core: 250m would become 0.2, and 40m would become 0.
    cpu_step_m = 100
    # The service of its master is named elasticjob-NAME-dlrover-master, and Kubernetes allows 63 characters.
    max_name_length = 63 - len("elasticjob--dlrover-master")

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

    def _build_new(self, plan: Plan, base_text: str | None) -> Manifest:
        """Build the ElasticJob of a plan, or the ScalePlan of a change."""
        if self._changes_by_scale_plan(plan):
            groups = self.groups(plan)
            return Manifest([scale_plan.build_scale_plan(plan, groups, self.cpu_step_m)], self.header(plan, groups))
        return super()._build_new(plan, base_text)

    def change_object(self, plan: Plan, planned_job: YamlMap) -> YamlMap:
        """Return the ScalePlan of a change for releases that need one, else the ElasticJob."""
        return self._select(self.build(plan), plan) if self._changes_by_scale_plan(plan) else planned_job

    def _changes_by_scale_plan(self, plan: Plan) -> bool:
        return self._scale_plans and plan.kind == "adjust"

    def sized_object(self, job_object: dict[str, Any]) -> dict[str, Any]:
        """Return the last ScalePlan of the job, if it has been changed by one, else the ElasticJob itself."""
        if not self._scale_plans:
            return job_object
        name, namespace = job_object["metadata"]["name"], job_object["metadata"]["namespace"]
        scale_plans = self.api.list(self.api_version, scale_plan.KIND, namespace, f"elasticjob.dlrover/name={name}")
        # ScalePlans of an earlier job of the same name stay in the cluster.
        created_at = scale_plan.created_at(job_object)
        current = [each for each in scale_plans if scale_plan.created_at(each) >= created_at]
        return max([job_object, *current], key=scale_plan.applied_at)

    def container_specs(self, document: YamlMap, role: Role) -> list[ContainerSpec]:
        """Return the places of a role's sizes in an ElasticJob or a ScalePlan."""
        if document.get("kind") == scale_plan.KIND:
            return scale_plan.container_specs(document, role)
        return super().container_specs(document, role)

    def select_document(self, documents: list[Any], name: str, job: str = "") -> YamlMap:
        """Return the ScalePlan of a file, or its ElasticJob if it has none."""
        if any(scale_plan.is_scale_plan(document) for document in documents):
            return find_document(documents, self.api_version, scale_plan.KIND, name)
        return find_document(documents, self.api_version, self.kind, name, job)

    def groups(self, plan: Plan) -> dict[Role, tuple[Group, ...]]:
        """Return the groups that have replicas. Raises InputError without workers or without PS."""
        groups = super().groups(plan)
        for role in ("worker", "ps"):
            if role not in groups:
                raise InputError(
                    f"DLRover's parameter server strategy needs at least one {role}; plan {plan.id} has none.",
                    f"Add a {role} to its target.",
                )
        return groups

    def minimal_manifest(self, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> dict[str, Any]:
        """Return a manifest with autoScale off: DLRover's own optimizer would replace these sizes at the start."""
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
                        "template": pod_template(plan, "main", "Never", self.container_command(plan, role, group)),
                    }
                    for role, (group,) in groups.items()
                },
            },
        }

    def adapt(self, document: YamlMap, plan: Plan, changes: Sequence[SizeChange]) -> Iterator[str]:
        """Yield a sentence for each setting that may replace the sizes, or is below what they need."""
        spec = document["spec"]
        for change in changes:
            if change.spec.entry.get("autoScale"):
                yield f"{change.spec.field}.autoScale is on: DLRover's own optimizer may replace these sizes."
        yield from beyond_total(spec.get("resourceLimits"), "spec.resourceLimits", self.entries(document))

    def header(self, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> list[str]:
        """Return the comment lines above a manifest."""
        rounding = "CPU is rounded up to tenths of a core, which is what DLRover reads."
        return [*super().header(plan, groups), rounding]

    def end_status(self, document: Mapping[str, Any]) -> Status | None:
        """Return the status by the ElasticJob's phase."""
        phase = (document.get("status") or {}).get("phase")
        return {"Succeeded": "finished", "Failed": "failed"}.get(str(phase))  # type: ignore[return-value]


def _release(version: str) -> tuple[int, int]:
    parts = version.lstrip("v").split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):
        raise InputError(f"'{version}' is not a release of DLRover.", "Write it as 0.4 or 0.5.1.")
    return int(parts[0]), int(parts[1])
