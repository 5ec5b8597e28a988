"""Plans as PyTorchJobs of Kubeflow's training operator, for training without PS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from sizewright.errors import InputError
from sizewright.executors.kubernetes.container_spec import ContainerSpec, Counter, YamlMap, expect_mapping
from sizewright.executors.kubernetes.kubeflow import KubeflowExecutor
from sizewright.executors.kubernetes.manifest_executor import set_if_present
from sizewright.executors.kubernetes.pod_command import ContainerCommand, Discovery
from sizewright.executors.kubernetes.pod_template import only_group
from sizewright.executors.kubernetes.repeated_sizes import SizeChange
from sizewright.spec import Group, Plan, Role

_MASTER = "Master"
_ONE_PROCESS = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}


class PyTorchJobExecutor(KubeflowExecutor):
    """Render plans as PyTorchJobs (`kubeflow.org/v1`), whose Master is the first worker, with rank 0.

    The operator sets `MASTER_ADDR`, `MASTER_PORT`, `RANK` and `WORLD_SIZE`. The number of a pod is not its rank, so a
    command cannot use it. Without a Master, as elastic jobs can be, all workers are of one entry.
    """

    name = "pytorchjob"
    kind = "PyTorchJob"
    roles_path = "spec.pytorchReplicaSpecs"
    roles: ClassVar[Mapping[Role, str]] = {"worker": "Worker"}
    aliases: ClassVar[Mapping[Role, Sequence[str]]] = {"worker": (_MASTER,)}  # where it is the only worker
    platform_entries = (_MASTER, _MASTER.lower())
    discovery = Discovery(
        "PyTorchJob",
        provides=frozenset({"torchrun"}),
        unsupported={
            "tf_config": "a PyTorchJob gives its replicas no TF_CONFIG",
            "hosts": "a PyTorchJob does not tell its replicas their numbers",
        },
    )
    containers = ("pytorch",)
    container_name_reason = "the operator refuses a PyTorchJob without a container of this name"
    labels = KubeflowExecutor.labels._replace(number=None)
    scales: ClassVar[frozenset[Role]] = frozenset()  # every replica has WORLD_SIZE
    other_pods: ClassVar[Mapping[str, Role]] = {_MASTER: "worker"}

    def replica_specs(self, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> dict[str, Any]:
        """Return the entries of the Master and of the other workers, without their sizes."""
        (group,) = groups["worker"]
        return {name: self.replica_spec(plan, "worker", group) for name in (_MASTER, self.roles["worker"])}

    def container_command(self, plan: Plan, role: Role, group: Group) -> ContainerCommand:
        """Return what the containers start, with those of torchrun's variables that the operator does not set."""
        start = super().container_command(plan, role, group)
        if plan.job.command is None:
            return start
        names = {variable["name"] for variable in start.env}
        return start._replace(
            env=[*start.env, *({"name": k, "value": v} for k, v in _ONE_PROCESS.items() if k not in names)]
        )

    def container_specs(self, document: YamlMap, role: Role) -> list[ContainerSpec]:
        """Return the place of the workers' sizes, which the Master shares; empty for other roles."""
        specs = super().container_specs(document, role)
        if not self._master(document):
            return specs
        is_only = len(self.entries(document)) == 1
        return [spec._replace(counter=Counter(spec.entry, elsewhere=0 if is_only else 1)) for spec in specs]

    def min_available(self, document: YamlMap, plan: Plan) -> dict[str, int]:
        """Return how many replicas of each entry must start together: all, since each has their number."""
        return {name: ContainerSpec(name, entry, {}).replicas for name, entry in self.entries(document).items()}

    def adapt(self, document: YamlMap, plan: Plan, changes: Sequence[SizeChange]) -> Iterator[str]:
        """Give the Master the size of a worker, and adapt what repeats sizes.

        Raises InputError if there are more workers than the Master, and no entry for them.
        """
        spec = expect_mapping(document["spec"], "spec")
        group, workers = only_group(plan.target, "worker"), plan.target.replicas("worker")
        for master in self._master(document):
            if group and len(self.entries(document)) > 1:
                master.write(group.model_copy(update={"replicas": 1}), self.cpu_step_m)
                master.write_batch_size(plan.target.batch_size, plan.job.training.batch_size)
                master.write_counts(workers, 0, group.cpu)
            elif workers > 1:
                raise InputError(
                    f"{master.field} is the only entry, and it is one worker; plan {plan.id} has {workers}.",
                    f"Add {self.roles_path}.{self.roles['worker']}.",
                )
        for change in changes:
            if str(spec.get("nprocPerNode")) == str(change.before.processes) and change.after.processes:
                spec["nprocPerNode"] = str(change.after.processes)
        elastic = expect_mapping(spec.get("elasticPolicy") or {}, "spec.elasticPolicy")
        for bound, limit in (("minReplicas", min), ("maxReplicas", max)):
            if isinstance(elastic.get(bound), int):
                set_if_present(elastic, bound, limit(elastic[bound], workers))
        yield from super().adapt(document, plan, changes)

    def _master(self, document: YamlMap) -> list[ContainerSpec]:
        """Return the place of the Master's size; empty if there is none."""
        return [
            self._container_spec(document, self._field(name), entry)
            for name, entry in self.entries(document).items()
            if name.lower() == _MASTER.lower()
        ]
