"""Compare what an object on the cluster asks for with what the object of a plan would."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from sizewright.errors import InputError
from sizewright.executors.kubernetes.container_spec import YamlMap, one_of, rounded
from sizewright.executors.kubernetes.objects import seconds_of
from sizewright.executors.plan_annotations import APPLIED_AT, PLAN_ID, PLAN_RECORD, has_plan, read_plan
from sizewright.executors.plan_checks import check_cool_down, check_current, check_same
from sizewright.formatting import format_count
from sizewright.spec import ROLES, Allocation, Group, Plan, Role
from sizewright.spec._faults import explain_first

if TYPE_CHECKING:
    from sizewright.executors.kubernetes.manifest_executor import ManifestExecutor

Sizes = dict[Role, tuple[Group, ...]]
RESIZED = "sizewright/resized"
"""Annotation with the sizes of pods that were resized in place, where the object keeps those of its start."""
_SIZES = TypeAdapter(Sizes)
_STARTED = ("image", "command", "args", "workingDir", "numProcPerNode")
_CORES_VARIABLES = ("SIZEWRIGHT_CORES", "OMP_NUM_THREADS")
"""Variables that repeat a container's cores; a running container keeps them."""


class PlannedObject:
    """The object of the job that a plan asks for. It is built once, when it is first needed."""

    def __init__(self, plan: Plan, executor: ManifestExecutor) -> None:
        self.plan = plan
        self._executor = executor

    @cached_property
    def document(self) -> YamlMap:
        """The object. Raises InputError as `render` does."""
        return self._executor.document(self.plan)

    @cached_property
    def sizes(self) -> Sizes:
        """The sizes that the object asks for."""
        return self._executor.sizes_of(self.document)

    @property
    def allocation(self) -> Allocation:
        """The allocation that replicas of these sizes will report."""
        return Allocation(**self.sizes, batch_size=self.plan.target.batch_size)


class LiveObject:
    """An object on the cluster, read as the manifests of `executor` are.

    `document` has the sizes. `job` has everything else, where a platform keeps sizes in an object of their own.
    """

    def __init__(
        self, document: Mapping[str, Any], executor: ManifestExecutor, job: Mapping[str, Any] | None = None
    ) -> None:
        self._document = dict(document)
        self._executor = executor
        self._job = dict(job or document)
        self._annotations: Mapping[str, str] = document["metadata"].get("annotations") or {}

    @property
    def is_resized(self) -> bool:
        """True if the pods of the object were resized in place."""
        return RESIZED in self._annotations

    @property
    def sizes(self) -> Sizes:
        """The sizes that the object asks for, or that its pods were resized to.

        Raises InputError if its annotation of resized pods cannot be read.
        """
        sizes = self._executor.sizes_of(self._document)
        return self._resized(sizes) if self.is_resized else sizes

    def _resized(self, sizes: Sizes) -> Sizes:
        try:
            resized = _SIZES.validate_json(self._annotations[RESIZED])
            if {role: len(groups) for role, groups in resized.items()} != {role: len(of) for role, of in sizes.items()}:
                raise ValueError("it has other roles than the object")
        except ValueError as error:  # a ValidationError is one, too
            why = explain_first(error) if isinstance(error, ValidationError) else str(error)
            raise InputError(
                f"The annotation {RESIZED} of {self._document['metadata']['name']} cannot be read: {why}.",
                "Remove it, if the pods have the sizes of the object.",
            ) from None
        return {
            role: tuple(
                group.model_copy(update={"replicas": now.replicas})
                for group, now in zip(groups, sizes[role], strict=True)
            )
            for role, groups in resized.items()
        }

    def batch_size(self, default: int) -> int:
        """Return the batch size that the workers read from their environment, or `default` if they read none."""
        workers = self._executor.container_specs(self._job, "worker")
        return workers[0].read_batch_size(default) if workers else default

    def loaders(self, default: int) -> int:
        """Return the loader processes that the workers read from their environment, or `default` if they read none."""
        workers = self._executor.container_specs(self._job, "worker")
        return workers[0].read_loaders(default) if workers else default

    def was_applied_by(self, planned: PlannedObject) -> bool:
        """Return whether this very plan was applied last.

        Raises InputError if a plan with the same id was applied with other sizes.
        """
        if self._annotations.get(PLAN_ID) != planned.plan.id:
            return False
        check_same(planned.plan, self.sizes, planned.sizes)
        return True

    def has(self, planned: PlannedObject) -> bool:
        """Return whether the object asks already for the sizes of the plan's target."""
        target = planned.plan.target
        loaders = planned.plan.job.loaders_at(target)
        if self.batch_size(target.batch_size) != target.batch_size or self.loaders(loaders) != loaders:
            return False
        sizes: dict[Role, list[Group]] = {}
        for role, group in target.groups:
            if group.replicas:
                sizes.setdefault(role, []).append(rounded(group, self._executor.cpu_step_m))
        if self.sizes == {role: tuple(groups) for role, groups in sizes.items()}:
            return True
        return self.sizes == planned.sizes

    def check_current(self, plan: Plan) -> None:
        """Raise InputError if the plan was made for other sizes than the object has."""
        if plan.current is None:
            return
        is_current = self.has(PlannedObject(plan.model_copy(update={"target": plan.current}), self._executor))
        sizes = [
            f"{group.replicas} × {role} of {format_count(group.cpu, 'core')}"
            for role, groups in self.sizes.items()
            for group in groups
        ]
        batch = f"batch {self.batch_size(plan.current.batch_size)}"
        check_current(plan, is_current, f"{', '.join(sizes)}, {batch}")

    def check_cool_down(self, plan: Plan, now_s: float) -> None:
        """Raise InputError during the cool-down of the plan that was applied last."""
        if not has_plan(self._document):
            return
        try:
            cooldown_s = read_plan(self._document).cooldown_s
        except InputError as error:
            name = self._document["metadata"]["name"]
            raise InputError(
                f"Cannot tell whether {name} is in the cool-down of its last plan. {error.message}",
                f"Remove its annotation {PLAN_RECORD} to change it anyway.",
            ) from None
        check_cool_down(plan, (seconds_of(self._annotations.get(APPLIED_AT)) or 0.0) + cooldown_s, now_s)

    def changes_in_place(self, planned: PlannedObject, scales: frozenset[Role], resizes: bool) -> bool:
        """Return whether the job can run on while it changes to the plan's target.

        It can if only the numbers of the roles in `scales` change, and sizes only where the platform `resizes` pods.
        """
        sizes, target_sizes = self.sizes, planned.sizes
        for role in ROLES:
            before, after = sizes.get(role, ()), target_sizes.get(role, ())
            if role not in scales and [group.replicas for group in before] != [group.replicas for group in after]:
                return False
            if not resizes and [one_of(each) for each in before] != [one_of(each) for each in after]:
                return False
        return self._runs_the_same(planned)

    def changes_cores_or_memory_only(self, planned: PlannedObject) -> bool:
        """Return whether the plan changes cores and memory of the replicas, and nothing else.

        Environment variables that repeat a container's cores do not count.
        """
        return same_replicas_and_gpus(_groups(self.sizes), _groups(planned.sizes)) and self._runs_the_same(
            planned, _CORES_VARIABLES
        )

    def _runs_the_same(self, planned: PlannedObject, ignored: Sequence[str] = ()) -> bool:
        """Return whether containers start with the same batch size, command and environment."""
        batch_size = planned.plan.target.batch_size
        if self.batch_size(batch_size) != batch_size:
            return False
        return _commands(self._job, self._executor, ignored) == _commands(planned.document, self._executor, ignored)


def as_annotation(sizes: Sizes) -> str:
    """Return the size of a replica of each group, for the annotation of resized pods."""
    one = {role: tuple(map(one_of, groups)) for role, groups in sizes.items()}
    return _SIZES.dump_json(one, exclude_defaults=True).decode()


def same_replicas_and_gpus(before: Iterable[tuple[Role, Group]], after: Iterable[tuple[Role, Group]]) -> bool:
    """Return whether groups differ in their cores and memory at most."""
    rest = [[(role, group.replicas, group.gpu) for role, group in groups] for groups in (before, after)]
    return rest[0] == rest[1]


def _groups(sizes: Sizes) -> Iterator[tuple[Role, Group]]:
    return ((role, group) for role, groups in sizes.items() for group in groups)


def _commands(document: Mapping[str, Any], executor: ManifestExecutor, ignored: Sequence[str]) -> list[Any]:
    """Return what a job's containers start, and their environments, which only new pods can change."""
    commands = []
    for role in ROLES:
        for spec in executor.places(dict(document), role):
            variables = [
                each for each in spec.container.get("env") or [] if "value" in each and each.get("name") not in ignored
            ]
            commands.append([role, [spec.container.get(key) for key in _STARTED], variables])
    return commands
