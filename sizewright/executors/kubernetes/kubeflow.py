"""Plans as TFJobs of Kubeflow's training operator, which run PS training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from sizewright.executors.kubernetes.cluster_executor import ClusterExecutor
from sizewright.executors.kubernetes.container_spec import YamlMap, expect_mapping
from sizewright.executors.kubernetes.manifest_executor import set_if_present
from sizewright.executors.kubernetes.objects import true_conditions
from sizewright.executors.kubernetes.pod_command import Discovery
from sizewright.executors.kubernetes.pod_template import metadata, pod_template
from sizewright.executors.kubernetes.pods import PodLabels
from sizewright.executors.kubernetes.repeated_sizes import SizeChange
from sizewright.executors.kubernetes.totals import fit_total
from sizewright.spec import Group, Plan, Role
from sizewright.spec.outcome import Status


class KubeflowExecutor(ClusterExecutor):
    """Render plans as TFJobs (`kubeflow.org/v1`)."""

    name = "kubeflow"
    api_version = "kubeflow.org/v1"
    kind = "TFJob"
    roles_path = "spec.tfReplicaSpecs"
    roles: ClassVar[Mapping[Role, str]] = {"chief": "Chief", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}
    aliases: ClassVar[Mapping[Role, Sequence[str]]] = {"chief": ("Master",)}
    discovery = Discovery(
        "TFJob",
        provides=frozenset({"tf_config"}),
        host="{job}-{role}-{index}",
        unsupported={"torchrun": "a TFJob gives its replicas no MASTER_ADDR, RANK and WORLD_SIZE"},
    )
    containers = ("tensorflow",)
    container_name_reason = (
        "the operator gives TF_CONFIG to the container of this name, and refuses a TFJob without one"
    )
    labels = PodLabels(*(f"training.kubeflow.org/{key}" for key in ("job-name", "replica-type", "replica-index")))
    scales: ClassVar[frozenset[Role]] = frozenset({"worker"})  # every replica's TF_CONFIG has the addresses of the PS
    max_name_length = 63 - len("-evaluator-000")  # its services have names such as NAME-worker-12
    resizes_pods = True
    keeps_start_sizes = False

    def minimal_manifest(self, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> dict[str, Any]:
        """Return a manifest with one container per role."""
        policy: dict[str, Any] = {"cleanPodPolicy": "Running"}
        if plan.job.deploy.priority_class:
            policy["schedulingPolicy"] = {"priorityClass": plan.job.deploy.priority_class}
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": metadata(plan),
            "spec": {
                "runPolicy": policy,
                self.roles_path.partition(".")[2]: self.replica_specs(plan, groups),
            },
        }

    def replica_specs(self, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> dict[str, Any]:
        """Return the entries of the roles by name, without their sizes."""
        return {self.roles[role]: self.replica_spec(plan, role, group) for role, (group,) in groups.items()}

    def replica_spec(self, plan: Plan, role: Role, group: Group) -> dict[str, Any]:
        """Return the entry of a role without its size. A replica that fails is restarted."""
        template = pod_template(plan, self.containers[0], "", self.container_command(plan, role, group))
        return {"replicas": 0, "restartPolicy": "OnFailure", "template": template}

    def adapt(self, document: YamlMap, plan: Plan, changes: Sequence[SizeChange]) -> Iterator[str]:
        """Adapt the gang's minimum and its resources, where the manifest has them."""
        run_policy = expect_mapping(document["spec"].get("runPolicy") or {}, "spec.runPolicy")
        policy = expect_mapping(run_policy.get("schedulingPolicy") or {}, "spec.runPolicy.schedulingPolicy")
        needed = self.min_available(document, plan)
        set_if_present(policy, "minAvailable", sum(needed.values()))
        field = "spec.runPolicy.schedulingPolicy.minResources"
        yield from fit_total(policy.get("minResources"), field, self.entries(document), needed)

    def end_status(self, document: Mapping[str, Any]) -> Status | None:
        """Return the status by the job's conditions."""
        true = true_conditions(document)
        return "finished" if "Succeeded" in true else "failed" if "Failed" in true else None
