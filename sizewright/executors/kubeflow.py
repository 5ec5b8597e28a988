"""Plans as TFJobs of Kubeflow's training operator, the common way to run PS training there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from sizewright.executors.cluster_executor import ClusterExecutor
from sizewright.executors.kubernetes import metadata, pod_template
from sizewright.executors.manifest_executor import replace
from sizewright.executors.pod_command import Finds
from sizewright.executors.pods import PodLabels
from sizewright.executors.repeated_sizes import Change
from sizewright.executors.slots import Node, node
from sizewright.executors.totals import fit_total
from sizewright.spec import Group, Plan, Role
from sizewright.spec.outcome import Status


class KubeflowExecutor(ClusterExecutor):
    """Renders plans as TFJobs (`kubeflow.org/v1`)."""

    name = "kubeflow"
    api_version, kind, roles_at = "kubeflow.org/v1", "TFJob", "spec.tfReplicaSpecs"
    roles: ClassVar[Mapping[Role, str]] = {"chief": "Chief", "worker": "Worker", "ps": "PS", "evaluator": "Evaluator"}
    aliases: ClassVar[Mapping[Role, Sequence[str]]] = {"chief": ("Master",)}
    finds = Finds(
        "TFJob",
        gives=frozenset({"tf_config"}),
        host="{job}-{role}-{index}",
        refuses={"torchrun": "a TFJob gives its replicas no MASTER_ADDR, RANK and WORLD_SIZE"},
    )
    containers = ("tensorflow",)
    needs_name = "the operator gives TF_CONFIG to the container of this name, and refuses a TFJob without one"
    labels = PodLabels(*(f"training.kubeflow.org/{key}" for key in ("job-name", "replica-type", "replica-index")))
    scales: ClassVar[frozenset[Role]] = frozenset({"worker"})  # where PS are is in every replica's TF_CONFIG
    longest_name = 63 - len("-evaluator-000")  # its services are called such as NAME-worker-12

    def minimal(self, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> dict[str, Any]:
        """Each role with one container; a replica that ends by an error comes back."""
        policy: dict[str, Any] = {"cleanPodPolicy": "Running"}
        if plan.job.deploy.priority_class:
            policy["schedulingPolicy"] = {"priorityClass": plan.job.deploy.priority_class}
        template = {"restartPolicy": "OnFailure"}
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": metadata(plan),
            "spec": {
                "runPolicy": policy,
                "tfReplicaSpecs": {
                    self.roles[role]: {
                        "replicas": 0,
                        **template,
                        "template": pod_template(plan, "tensorflow", "", self.start(plan, role, group)),
                    }
                    for role, (group,) in groups.items()
                },
            },
        }

    def fit(self, document: Node, plan: Plan, changes: Sequence[Change]) -> Iterator[str]:
        """The floor of the gang and the resources of that, where the manifest has them."""
        run_policy = node(document["spec"].get("runPolicy") or {}, "spec.runPolicy")
        policy = node(run_policy.get("schedulingPolicy") or {}, "spec.runPolicy.schedulingPolicy")
        needed = self.floor(document, plan)
        replace(policy, "minAvailable", sum(needed.values()))
        field = "spec.runPolicy.schedulingPolicy.minResources"
        yield from fit_total(policy.get("minResources"), field, self.entries(document), needed)

    def ended(self, document: Mapping[str, Any]) -> Status | None:
        """By its conditions."""
        conditions = (document.get("status") or {}).get("conditions") or []
        true = {each["type"] for each in conditions if each.get("status") == "True"}
        return "finished" if "Succeeded" in true else "failed" if "Failed" in true else None
