"""Plans as TrainJobs of Kubeflow Trainer, with a runtime of the job's own where it has PS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from sizewright.errors import ForbiddenError, InputError
from sizewright.executors.kubernetes.cluster_executor import _DELETE_TIMEOUT_S, ClusterExecutor, _await_none
from sizewright.executors.kubernetes.container_spec import (
    ContainerSpec,
    Counter,
    YamlMap,
    expect_mapping,
)
from sizewright.executors.kubernetes.jobset import JobSetExecutor
from sizewright.executors.kubernetes.manifest_executor import without_lists
from sizewright.executors.kubernetes.objects import true_conditions
from sizewright.executors.kubernetes.pod_command import Discovery, runs_job_command
from sizewright.executors.kubernetes.pod_template import metadata, pod_template
from sizewright.executors.kubernetes.repeated_sizes import SizeChange
from sizewright.executors.kubernetes.training_runtime import (
    JOBS_PATH,
    KEY,
    KIND,
    NODE,
    STEP,
    TRAINER,
    as_jobset,
    is_ours,
    is_sized_by_job,
    is_trainer,
    owned_by,
    reference,
    runtime_in,
    runtime_name,
    training_runtime,
)
from sizewright.executors.kubernetes.yaml_text import YamlText
from sizewright.spec import Group, Handle, Job, Plan, Role
from sizewright.spec.outcome import Status
from sizewright.spec.units import is_count
from sizewright.trainer_status import SAMPLES

_RUNTIME = "torch-distributed"
"""The runtime that every installation of Kubeflow Trainer has, and which a TrainJob's own image and command replace."""


class TrainJobExecutor(ClusterExecutor):
    """Render plans as TrainJobs (`trainer.kubeflow.org/v1alpha1`), whose workers are the nodes of a runtime.

    Without PS this is a runtime of the cluster. With PS it is a TrainingRuntime of the job's own, which is rendered
    above the TrainJob, applied before it and deleted after it. In a document of this executor the runtime stands under
    the key `runtime`.

    Nothing of a TrainJob's trainer can be changed; only its pods can be resized.
    """

    name = "trainjob"
    api_version = "trainer.kubeflow.org/v1alpha1"
    kind = "TrainJob"
    roles_path = "spec"
    roles: ClassVar[Mapping[Role, str]] = {"worker": "trainer", "ps": "ps"}
    aliases: ClassVar[Mapping[Role, Sequence[str]]] = {"ps": JobSetExecutor.aliases["ps"]}
    discovery = Discovery("TrainJob", host="{job}-{role}-0-{index}.{job}", names={"worker": NODE})
    labels = JobSetExecutor.labels  # a runtime runs its nodes as a JobSet
    containers = (NODE,)
    max_name_length = 63 - len("-node-0-000-xxxxx")  # of its pods
    resizes_pods = True

    def minimal_manifest(self, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> dict[str, Any]:
        """Return a manifest whose replicas find each other by the host names of the runtime's headless service.

        Raises InputError for a priority class of a job without PS, which only a runtime can set.
        """
        deploy = plan.job.deploy
        has_ps = "ps" in groups
        if deploy.priority_class and not has_ps:
            raise InputError(
                f"deploy.priority_class is {deploy.priority_class}, but a TrainJob takes it from its runtime.",
                "Set it in a runtime of your own and name that in a base manifest, or use executor jobset.",
            )
        if "worker" not in groups:
            raise InputError(
                f"A TrainJob needs at least one worker; plan {plan.id} has none.", "Add a worker to its target."
            )
        start = self.container_command(plan, "worker", groups["worker"][0])
        pod = pod_template(plan, NODE, "", start)
        (container,) = pod["spec"]["containers"]
        command = container["command"]
        if deploy.folder:  # a trainer has no workingDir
            command = ["sh", "-c", 'cd "$0" && exec "$@"', deploy.folder, *command]
        document = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": metadata(plan),
            "spec": {
                "runtimeRef": reference(plan.job.name) if has_ps else {"name": _RUNTIME},
                "trainer": {
                    "numNodes": 0,
                    **_ranks_per_node(plan, groups["worker"][0]),
                    "image": container["image"],
                    "command": command,
                    "env": container["env"],
                },
            },
        }
        if has_ps:
            document[KEY] = training_runtime(plan, start, self.container_command(plan, "ps", groups["ps"][0]))
        return document

    def objects_of(self, document: YamlMap) -> list[dict[str, Any]]:
        """Return the runtime, if the document has one, and the TrainJob, which Trainer refuses before its runtime."""
        job_object = {key: value for key, value in document.items() if key != KEY}
        return [*([dict(document[KEY])] if KEY in document else []), job_object]

    def select_document(self, documents: list[Any], name: str, job: str = "") -> YamlMap:
        """Return the TrainJob, with its TrainingRuntime if that is among the documents."""
        job_object = super().select_document(documents, name, job)
        runtime = runtime_in(list(without_lists(documents)), runtime_name(job_object))
        return job_object if runtime is None else {**job_object, KEY: runtime}

    def entries(self, document: YamlMap) -> dict[str, YamlMap]:
        """Return the trainer and the other jobs of the runtime, by name. Raises InputError without a trainer."""
        spec = expect_mapping(document.get("spec"), "spec")
        if "trainer" not in spec:
            raise InputError(
                "The TrainJob has no spec.trainer: its runtime has the sizes.",
                "Write spec.trainer with numNodes and resourcesPerNode, which replace those of the runtime.",
            )
        trainer = expect_mapping(spec["trainer"], "spec.trainer")
        others = {name: job for name, job in self._jobs(document).items() if not is_trainer(job)}
        return {"trainer": trainer} | {name: job for name, job in others.items() if name != "trainer"}

    def container_specs(self, document: YamlMap, role: Role) -> list[ContainerSpec]:
        """Return the place of a role's sizes: workers in the TrainJob, PS in its runtime; empty for other roles."""
        if role == "ps" and KEY in document:
            names = self._entry_names(document, role)  # at most one, while a JobSet has more, such as ps-2
            specs = self._jobset.container_specs(as_jobset(document), role)
            return [spec._replace(field=self._field(name)) for name, spec in zip(names, specs, strict=False)]
        if role != "worker":
            return []
        trainer = self.entries(document)["trainer"]
        counter = Counter(trainer, ("numNodes",))
        return [ContainerSpec("spec.trainer", trainer, trainer, counter, resources="resourcesPerNode")]

    def counter(self, entry: YamlMap, field: str) -> Counter:
        """Return where a job of the runtime states its number of replicas."""
        return self._jobset.counter(entry, field)

    def role_names(self, document: YamlMap) -> dict[Role, str]:
        """Return the names of the Jobs of each role, by which its pods are labelled."""
        workers = [name for name, job in self._jobs(document).items() if is_trainer(job)] or [NODE]
        ps = self._entry_names(document, "ps")
        return {"worker": workers[0], **({"ps": ps[0]} if ps else {})}

    def adapt(self, document: YamlMap, plan: Plan, changes: Sequence[SizeChange]) -> Iterator[str]:
        """Adapt the number of processes on a node, where it was that of its GPUs or cores.

        Yield a sentence if Trainer would ignore the sizes of the workers.
        """
        for change in (each for each in changes if each.role == "worker"):
            trainer = change.spec.entry
            if ranks := _ranks_per_node(plan, plan.target.worker[0]):
                trainer["numProcPerNode"] = ranks["numProcPerNode"]
            elif trainer.get("numProcPerNode") == (before := change.before.processes) and before is not None:
                trainer["numProcPerNode"] = change.after.processes or before
        if KEY in document and not is_sized_by_job(document[KEY], self._jobs(document).values()):
            yield (
                f"The {KIND} has no mlPolicy or no job with the label {STEP}: {TRAINER}: Trainer ignores numNodes and "
                "resourcesPerNode of the TrainJob."
            )

    def end_status(self, document: Mapping[str, Any]) -> Status | None:
        """Return the status by the TrainJob's conditions."""
        true = true_conditions(document)
        return "finished" if "Complete" in true else "failed" if "Failed" in true else None

    def reported_samples(self, job_object: Mapping[str, Any], job: Job) -> int | None:
        """Return the samples that a job's pods pushed to its status (KEP-2779).

        These are the metric `samples`, which `log_samples` pushes. Other code may push a percentage only, which counts
        if the job's number of samples is known.
        """
        status = (job_object.get("status") or {}).get("trainerStatus") or {}
        for metric in status.get("metrics") or []:
            if metric["name"] == SAMPLES and is_count(metric["value"]):
                return int(metric["value"])
        percentage = status.get("progressPercentage")
        return None if percentage is None or job.samples is None else job.samples * percentage // 100

    def as_created(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a TrainJob of the cluster as it can be created again, with its runtime."""
        created = super().as_created(document)
        return {**created, KEY: super().as_created(document[KEY])} if KEY in document else created

    @cached_property
    def _jobset(self) -> JobSetExecutor:
        """Reads the runtime's template, which is a JobSet."""
        return JobSetExecutor(roles={role: name for role, name in self._role_names.items() if role == "ps"})

    def _jobs(self, document: YamlMap) -> dict[str, YamlMap]:
        """Return the jobs of the runtime's template by name; empty for a runtime of the cluster."""
        return self._jobset.entries(as_jobset(document)) if KEY in document else {}

    def _field(self, name: str) -> str:
        return f"spec.{name}" if name == "trainer" else f"{JOBS_PATH}[{name}]"

    def _separate(self, base: YamlText, document: YamlMap, role: Role, i: int) -> None:
        if role == "ps":
            self._jobset._separate(base, as_jobset(document), role, i)
        else:
            super()._separate(base, document, role, i)

    def _wrong_number_of_entries(self, document: YamlMap, plan: Plan, role: Role, name: str) -> InputError:
        """Return the error for a base without the PS of a plan."""
        if KEY in document:
            return super()._wrong_number_of_entries(document, plan, role, name)
        return InputError(
            f"{name} has no {KIND} that its TrainJob names, but plan {plan.id} has {role}, whose size stands there.",
            f"Add the {KIND} as a document of its own and name it in spec.runtimeRef, with its kind; or render without "
            "the base.",
        )

    def _to_apply(self, document: YamlMap, plan: Plan) -> dict[str, Any]:
        """Return the document to apply, with the runtime under the job's name: no other job may share it."""
        job_object = super()._to_apply(document, plan)
        if KEY not in job_object:
            return job_object
        spec = {**job_object["spec"], "runtimeRef": reference(job_object["metadata"]["name"])}
        return {**job_object, "spec": spec, KEY: owned_by(job_object[KEY], job_object)}

    def _apply(self, document: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        """Apply the runtime and the TrainJob. A new runtime does not stay if the cluster refuses the TrainJob.

        Raises InputError if somebody else's runtime has the name.
        """
        *runtimes, job_object = self.objects_of(document)
        if not runtimes:
            return super()._apply(job_object, dry_run=dry_run)
        (runtime,) = runtimes
        current = self._own_runtime(runtime) if dry_run else self._await_runtime(runtime)
        applied_runtime = self.api.apply(runtime, dry_run=dry_run)
        is_missing = dry_run and current is None
        spec = job_object["spec"]
        if is_missing:  # Trainer refuses a TrainJob whose runtime does not exist, also in a dry run
            job_object = {**job_object, "spec": {**spec, "runtimeRef": {"name": _RUNTIME}}}
        try:
            applied = self.api.apply(job_object, dry_run=dry_run)
        except InputError:
            if current is None and not dry_run:
                self._delete_runtime(applied_runtime)
            raise
        if is_missing:
            applied = {**applied, "spec": {**applied["spec"], "runtimeRef": spec["runtimeRef"]}}
        return {**applied, KEY: applied_runtime}

    def _own_runtime(self, runtime: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return a runtime as the cluster has it; None if it has none. Raises InputError if it is somebody else's."""
        namespace, name = (runtime["metadata"][key] for key in ("namespace", "name"))
        current = self.api.get(self.api_version, KIND, namespace, name)
        if current and not is_ours(current):
            raise InputError(
                f"{KIND} {namespace}/{name} exists, and Sizewright did not make it.",
                "Give the job another name, or delete the runtime if no job uses it.",
            )
        return current

    def _await_runtime(self, runtime: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the job's runtime on the cluster; wait for one that is being deleted, such as by a restart."""

        def being_deleted() -> bool:
            current = self._own_runtime(runtime)
            return current is not None and bool(current["metadata"].get("deletionTimestamp"))

        _await_none(being_deleted, f"{KIND} {runtime['metadata']['name']} still exists", _DELETE_TIMEOUT_S)
        return self._own_runtime(runtime)

    def _get(self, handle: Handle) -> dict[str, Any] | None:
        """Return the TrainJob, with the runtime that Sizewright made for it."""
        job_object = super()._get(handle)
        if job_object is None or runtime_name(job_object) != job_object["metadata"]["name"]:
            return job_object
        meta = job_object["metadata"]
        try:
            runtime = self.api.get(self.api_version, KIND, meta["namespace"], meta["name"])
        except ForbiddenError:  # whoever may not read it did not make it
            return job_object
        return {**job_object, KEY: runtime} if runtime and is_ours(runtime) else job_object

    def _delete(self, handle: Handle, job_object: Mapping[str, Any], version: str = "") -> None:
        super()._delete(handle, job_object, version)
        if KEY in job_object:
            self._delete_runtime(job_object[KEY])

    def _delete_runtime(self, runtime: Mapping[str, Any]) -> None:
        meta = runtime["metadata"]
        self.api.delete(self.api_version, KIND, meta["namespace"], meta["name"], str(meta.get("uid") or ""))


def _ranks_per_node(plan: Plan, group: Group) -> dict[str, int]:
    """Return the field for the ranks of a node; none where each node has one, which is the runtime's default."""
    command = plan.job.command
    ranks = command.processes_of(group.gpu.count if group.gpu else 0) if command and runs_job_command(plan.job) else 1
    return {"numProcPerNode": ranks} if ranks > 1 else {}
