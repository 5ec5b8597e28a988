"""Plans as PyTorchJobs of Kubeflow's training operator, for training without PS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from sizewright.errors import InputError
from sizewright.executors.kubernetes.container_spec import ContainerSpec, Counter, YamlMap, expect_mapping
from sizewright.executors.kubernetes.kubeflow import KubeflowExecutor
from sizewright.executors.kubernetes.pod_command import ContainerCommand, Discovery
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
    scales: ClassVar[frozenset[Role]] = frozenset()  # every replica has WORLD_SIZE, but for elastic jobs
    max_name_length = 63 - len("-worker-000")  # of its services
    first_worker = _MASTER

    def replica_specs(self, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> dict[str, Any]:
        """Return the entries of the Master and of the other workers, without their sizes."""
        (group,) = groups["worker"]
        master, others = (self.replica_spec(plan, "worker", group) for _ in range(2))
        return {_MASTER: master | {"replicas": 1}, self.roles["worker"]: others}

    def container_command(self, plan: Plan, role: Role, group: Group) -> ContainerCommand:
        """Return what the containers start, as the only process on their node."""
        start = super().container_command(plan, role, group)
        if plan.job.command is None or plan.job.command.rendezvous != "torchrun":
            return start
        names = {variable["name"] for variable in start.env}
        of_node = [{"name": name, "value": value} for name, value in _ONE_PROCESS.items() if name not in names]
        return start._replace(env=[*start.env, *of_node])

    def container_specs(self, document: YamlMap, role: Role) -> list[ContainerSpec]:
        """Return the place of the workers' sizes; the Master counts as one of them.

        Raises InputError if there are several Masters.
        """
        specs = super().container_specs(document, role)
        for name in self.first_worker_names(document, role):
            count = self.entries(document)[name].get("replicas", 1)
            if count != 1:
                raise InputError(f"{self._field(name)}.replicas is {count!r}: a PyTorchJob has one Master.", "Write 1.")
            specs = [spec._replace(counter=Counter(spec.entry, elsewhere=1)) for spec in specs]
        return specs

    def first_worker_names(self, document: YamlMap, role: Role) -> list[str]:
        """Return the name of the Master's entry, if there is one beside that of the workers."""
        workers = self._entry_names(document, "worker") if role == "worker" else []
        names = [name for name in self.entries(document) if name.lower() == _MASTER.lower()]
        return [name for name in names if workers and name not in workers]

    def worker_limits(self, job_object: Mapping[str, Any]) -> tuple[int, int]:
        """Return the limits of an elastic job, whose torchrun takes in new workers and does without missing ones.

        Raises InputError for a job that is not elastic, that an autoscaler changes, or that has a Master only.
        """
        document = dict(job_object)
        policy = _elastic_policy(document)
        low, high = (policy.get(bound) for bound in ("minReplicas", "maxReplicas"))
        if not isinstance(low, int) or not isinstance(high, int):
            raise InputError(
                "The number of workers of this PyTorchJob cannot change while it runs.",
                "Give it an elasticPolicy with minReplicas and maxReplicas.",
            )
        if policy.get("metrics"):
            raise InputError(
                "A HorizontalPodAutoscaler changes the workers of this PyTorchJob, as its elasticPolicy.metrics says.",
                "Remove the metrics, or the annotation sizewright/scale.",
            )
        if all(name.lower() == _MASTER.lower() for name in self.entries(document)):
            raise InputError("This PyTorchJob has a Master only.", f"Add {self.roles_path}.{self.roles['worker']}.")
        return max(low, 1), high

    def min_available(self, document: YamlMap, plan: Plan) -> dict[str, int]:
        """Return how many replicas of each entry must start together: all, or the least of an elastic job."""
        counts = {
            name: ContainerSpec(self._field(name), entry, {}).replicas for name, entry in self.entries(document).items()
        }
        least = _elastic_policy(document).get("minReplicas")
        if isinstance(least, int):
            counts |= {name: min(counts[name], least) for name in self._entry_names(document, "worker")}
        return counts

    def adapt(self, document: YamlMap, plan: Plan, changes: Sequence[SizeChange]) -> Iterator[str]:
        """Adapt what repeats sizes, and say so if the Master had another size than the workers.

        Raises InputError if there are more workers than the Master, and no entry for them.
        """
        spec = expect_mapping(document["spec"], "spec")
        workers = plan.target.replicas("worker")
        (entry,) = self._entry_names(document, "worker")
        if entry.lower() == _MASTER.lower() and workers > 1:
            raise InputError(
                f"{self._field(entry)} is one worker, but plan {plan.id} has {workers}.",
                f"Add {self.roles_path}.{self.roles['worker']}.",
            )
        first, *own = changes
        for change in own:
            if change.before.cpu is not None and change.before[1:] != first.before[1:]:
                yield f"{change.spec.field} is a worker, and gets the size of the others."
        elastic = _elastic_policy(document)
        for settings, key in ((spec, "nprocPerNode"), (elastic, "nProcPerNode")):
            processes = settings.get(key)
            if processes is not None and str(processes) == str(first.before.processes) and first.after.processes:
                settings[key] = type(processes)(first.after.processes)
        for bound, limit in (("minReplicas", min), ("maxReplicas", max)):
            if isinstance(elastic.get(bound), int):
                elastic[bound] = limit(elastic[bound], workers)
        yield from super().adapt(document, plan, changes)


def _elastic_policy(document: YamlMap) -> YamlMap:
    spec = expect_mapping(document["spec"], "spec")
    return expect_mapping(spec.get("elasticPolicy") or {}, "spec.elasticPolicy")
