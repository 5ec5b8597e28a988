"""The base of executors whose platform takes manifests.

They write a complete manifest, or change the sizes in a manifest of the user's.
"""

from __future__ import annotations

import copy
import hashlib
import re
import shlex
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ValidationError

from sizewright.errors import InputError
from sizewright.executors._base import RenderOnlyExecutor
from sizewright.executors.kubernetes.container_spec import (
    ContainerSpec,
    Counter,
    YamlMap,
    all_containers,
    expect_mapping,
    one_of,
    quoted_like,
    rounded,
    training_container,
)
from sizewright.executors.kubernetes.manifest import Manifest
from sizewright.executors.kubernetes.manifest_check import check_manifest
from sizewright.executors.kubernetes.pod_command import (
    ContainerCommand,
    Discovery,
    check_rendezvous,
    container_command,
    has_command,
    secrets,
)
from sizewright.executors.kubernetes.pod_template import min_available, only_group
from sizewright.executors.kubernetes.pods import PodLabels
from sizewright.executors.kubernetes.repeated_sizes import COUNTS, SizeChange, repeated
from sizewright.executors.kubernetes.totals import beyond_container
from sizewright.executors.kubernetes.yaml_text import YamlText, read_manifest
from sizewright.executors.plan_annotations import PLAN_ID, check_no_secrets, has_plan, plan_annotations, read_plan
from sizewright.executors.yaml_documents import from_yaml
from sizewright.spec import ROLES, Allocation, Deploy, Group, Job, Plan, Role
from sizewright.spec._base import parse, validate
from sizewright.spec._faults import explain_first
from sizewright.spec._text_files import check_rendered

_TARGET_FIELDS = (*ROLES, "batch_size", "loaders")
_MAX_BUILT = 4
"""Applying a plan needs the manifests of the plan, of its launch, and of the sizes that it was made for."""


class ManifestExecutor(RenderOnlyExecutor):
    """Render plans as manifests of one kind, in which one object is one job.

    A subclass states the object's API version and kind and the path of its roles, and implements `minimal_manifest`. It
    implements `adapt` if anything else in the manifest depends on the sizes.

    With `base`, a file, only the sizes of that manifest are changed. `roles` maps roles to the names that its entries
    have.
    """

    api_version: ClassVar[str]
    kind: ClassVar[str]
    roles_path: ClassVar[str]
    """The path of the role entries: a mapping by name, or a list of entries whose `named_by` is their name."""
    named_by: ClassVar[str] = ""
    entry_path: ClassVar[tuple[str, ...]] = ()
    """The path from a role's entry to the mapping that has its pod template, where that is not the entry itself."""
    roles: ClassVar[Mapping[Role, str]]
    """The platform's names for roles, in any case. In lists, the second group of a role is named such as `ps-2`."""
    aliases: ClassVar[Mapping[Role, Sequence[str]]] = {}
    """Other names for roles in users' manifests."""
    platform_entries: ClassVar[tuple[str, ...]] = ()
    """Names of entries that belong to the platform itself."""
    labels: ClassVar[PodLabels]
    discovery: ClassVar[Discovery]
    containers: ClassVar[tuple[str, ...]] = ("main",)
    """Names of the container that trains, where a pod has several."""
    container_name_reason: ClassVar[str] = ""
    """Why a pod must have a container of one of these names; empty if it need not."""
    first_container_trains: ClassVar[bool] = False
    """True if the platform starts replicas in the first container, whatever its name."""
    cpu_step_m: ClassVar[int] = 1
    max_name_length: ClassVar[int] = 63

    def __init__(self, *, base: str | Path | None = None, roles: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._base = base
        self._built: tuple[tuple[tuple[Plan, str | None], Manifest], ...] = ()
        """The last manifests, each with its plan and the text of its base."""
        self._role_names: Mapping[str, str] = dict(roles or {})
        if unknown := self._role_names.keys() - self.roles.keys():
            raise InputError(
                f"'{min(unknown)}' is not a role of a {self.kind}.", f"Its roles are: {', '.join(self.roles)}."
            )

    def render(self, plan: Plan) -> str:
        """Return the manifest. Raises InputError if it cannot express the plan, or the base is not of its kind."""
        return self.build(plan).text

    def remarks(self, plan: Plan) -> list[str]:
        """Return sentences on what a person has to check in the manifest of a plan.

        These are settings that repeat a size and stay unchanged, entries that the plan does not know, and settings that
        are still missing.
        """
        return list(dict.fromkeys(self.build(plan).remarks))

    def build(self, plan: Plan) -> Manifest:
        """Return the manifest of a plan, which is built again only if the base has changed since.

        Raises InputError as `render` does.
        """
        key = plan, read_manifest(self._base) if self._base else None
        for built_key, manifest in self._built:
            if built_key == key:
                return manifest
        manifest = self._build_new(*key)
        self._built = ((key, manifest), *self._built[: _MAX_BUILT - 1])
        return manifest

    def _build_new(self, plan: Plan, base_text: str | None) -> Manifest:
        check_no_secrets(plan)
        if base_text is None:
            check_rendezvous(plan, self.discovery)
        groups = self.groups(plan)
        if base_text is not None:
            base = YamlText(base_text, str(self._base))
            document = self.select_document(base.documents, str(self._base), plan.job.name)
            changes, remarks = self._write_sizes(document, plan, groups, str(self._base), base)
            remarks = [*self._base_remarks(document, groups), *remarks, *repeated(document, changes)]
            annotations = document["metadata"].get("annotations")
            if isinstance(annotations, MutableMapping) and PLAN_ID in annotations:
                annotations.update(plan_annotations(plan))  # the base was rendered from an earlier plan
            return Manifest(base, remarks=remarks)
        document = self.minimal_manifest(plan, groups)
        self._write_sizes(document, plan, groups, "The manifest")
        return Manifest(self.objects_of(document), self.header(plan, groups), list(self.open_points(plan)))

    def with_sizes(self, document: YamlMap, plan: Plan, *, name: str = "") -> YamlMap:
        """Return a copy of a user's object with the sizes of a plan, and with another name if one is given.

        Variables by which replicas find each other follow both where they are as Sizewright renders them. Raises
        InputError if the object cannot express the plan, or has other settings that repeat a number of replicas, since
        nobody corrects them before the job starts.
        """
        title = f"{self.kind} {document['metadata']['name']}"
        sized, before = copy.deepcopy(dict(document)), self.sizes_of(document)
        try:
            with_variables = copy.deepcopy(sized)
            self._write_variables(with_variables, plan, before, name)
            sized = with_variables
        except InputError:  # containers that Sizewright could not start itself have variables of their own
            pass
        changes, _ = self._write_sizes(sized, plan, self.groups(plan), title)
        counts_change = any(change.before.replicas != change.after.replicas for change in changes)
        stale = [*repeated(sized, changes, COUNTS), *(_host_lists(document, sized) if counts_change else ())]
        if stale:
            raise InputError(
                f"{title} repeats a size. {stale[0]}",
                "Have its code read SIZEWRIGHT_WORKERS, SIZEWRIGHT_PS and SIZEWRIGHT_CORES, which follow the sizes.",
            )
        sized["metadata"]["name"] = name or sized["metadata"]["name"]
        return sized

    def _write_variables(
        self, sized: YamlMap, plan: Plan, before: Mapping[Role, tuple[Group, ...]], new_name: str
    ) -> None:
        """Write the variables of containers anew that are as `container_command` states them for the sizes before."""
        earlier_job = plan.job.model_copy(update={"name": sized["metadata"]["name"]})
        job = earlier_job.model_copy(update={"name": new_name or earlier_job.name})
        after = plan.model_copy(update={"job": job})
        sizes: dict[str, Any] = {str(role): of_role for role, of_role in before.items()}
        target = plan.target.model_copy(update={role: sizes.get(role, ()) for role in ROLES})
        earlier = plan.model_copy(update={"job": earlier_job, "target": target})
        for role, groups in self.groups(after).items():
            if len(before.get(role, ())) != len(groups):
                continue
            places = zip(
                self.sized_places(sized, role, before[role]), self.sized_places(sized, role, groups), strict=True
            )
            for (place, old), (_, new) in places:
                stated, now = (
                    {each["name"]: each.get("value") for each in self.container_command(of, role, group).env}
                    for of, group in ((earlier, old), (after, new))
                )
                for variable in place.environment():
                    value, name = variable.get("value"), variable.get("name")
                    if value is not None and str(value) == stated.get(name) and now.get(name) is not None:
                        variable["value"] = quoted_like(value, now[name])

    def parse(self, text: str) -> Plan:
        """Return the plan from which a manifest was rendered, with the sizes that the manifest has now.

        For any other manifest, return the plan that launches it at its sizes. Raises InputError if the text is not a
        manifest of this kind.
        """
        return self._plan_in(from_yaml(text), text)

    def read(self, document: YamlMap, planned: Allocation) -> Allocation:
        """Return the allocation that an object asks for.

        Sizes that differ from those of `planned` only by rounding, and a batch size that the object does not state, are
        taken from there. Raises InputError if the sizes are invalid.
        """
        changed: dict[str, Any] = {}
        for role in ROLES:
            planned_groups = tuple(group for group in getattr(planned, role) if group.replicas)
            specs = [spec for spec in self.container_specs(document, role) if planned_groups or spec.asks_for_cores]
            groups = tuple(spec.read() for spec in specs)
            if role == "worker" and specs:
                changed["batch_size"] = specs[0].read_batch_size(planned.batch_size)
                if planned.loaders is not None:
                    changed["loaders"] = specs[0].read_loaders(planned.loaders)
            if groups != tuple(rounded(group, self.cpu_step_m) for group in planned_groups):
                changed[role] = groups
        try:
            return validate(Allocation, {name: getattr(planned, name) for name in _TARGET_FIELDS} | changed)
        except ValidationError as error:
            raise InputError(f"The manifest's {explain_first(error)}.", "Correct the manifest.") from None

    def adopt(self, path: str | Path) -> Plan:
        """Return the plan of a manifest file. The file becomes the base if it has more than that plan.

        Raises InputError if the file is not a manifest of this kind.
        """
        text = YamlText.load(path).text
        documents = from_yaml(text)
        plan = self._plan_in(documents, text)
        if not self._base and self.build(plan).documents != documents:
            self._base = path
        return plan

    def _plan_in(self, documents: list[Any], text: str) -> Plan:
        document = self.select_document(documents, "The manifest")
        plan = read_plan(document) if has_plan(document) else self._plan_of(document, text)
        return plan.model_copy(update={"target": self.read(document, plan.target)})

    def _plan_of(self, document: YamlMap, text: str) -> Plan:
        """Return a plan that launches a manifest which carries no plan."""
        meta = expect_mapping(document.get("metadata"), "metadata")
        name = str(meta.get("name") or str(meta.get("generateName") or "job").rstrip("-"))
        sizes = self.sizes_of(document)
        if "worker" not in sizes:
            self.container_specs(document, "worker")  # raises if the workers' entry is invalid
            raise InputError(
                f"The manifest does not say how many cores its workers request in {self.roles_path}.",
                "Add their cpu requests, or map the workers' name: --role worker=NAME.",
            )
        settings = {"name": name, "deploy": {"namespace": meta.get("namespace") or "default"}}
        job = parse(Job, settings, "The manifest's metadata")
        job = job.with_batch_size(self.container_specs(document, "worker")[0].read_batch_size(job.training.batch_size))
        slug = re.sub("[^a-z0-9-]", "-", name.lower()).strip("-")
        plan_id = f"{slug}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        target = Allocation(**sizes, batch_size=job.training.batch_size)
        return Plan(id=plan_id, kind="launch", job=job, target=target, reason="Its manifest has these sizes.")

    def objects_of(self, document: YamlMap) -> list[dict[str, Any]]:
        """Return the objects of which a job's document is made, in the order in which they are applied."""
        return [dict(document)]

    def document(self, plan: Plan) -> YamlMap:
        """Return the object of the plan's job, whatever kind of plan it is."""
        return self._select(self._build_complete(plan), plan)

    def _build_complete(self, plan: Plan) -> Manifest:
        return self.build(plan.model_copy(update={"kind": "launch"}))

    def _select(self, manifest: Manifest, plan: Plan) -> YamlMap:
        return self.select_document(manifest.documents, "The manifest", plan.job.name)

    def sizes_of(self, document: YamlMap) -> dict[Role, tuple[Group, ...]]:
        """Return the sizes that an object asks for, without roles that do not state their cores."""
        sizes = {
            role: tuple(spec.read() for spec in self.container_specs(document, role) if spec.asks_for_cores)
            for role in ROLES
        }
        return {role: groups for role, groups in sizes.items() if groups}

    def unsized(self, plan: Plan) -> list[Role]:
        """Return the roles with replicas that do not state their cores, which only a base can have."""
        document = self.document(plan)
        return [
            role
            for role in ROLES
            if any(spec.replicas and not spec.asks_for_cores for spec in self.container_specs(document, role))
        ]

    def as_rendered(self, plan: Plan) -> Plan:
        """Return the plan as its manifest asks for it: rounded, with the additions and the priority of a base."""
        manifest = self._build_complete(plan)
        priority = next(_priorities(manifest.documents), None)
        of_manifest = self.sizes_of(self._select(manifest, plan))
        sizes = {str(role): of_manifest.get(role, ()) for role in ROLES}
        target = plan.target.model_copy(update=sizes)
        deploy = plan.job.deploy.model_copy(update={"priority_class": priority} if priority is not None else {})
        return plan.model_copy(update={"target": target, "job": plan.job.model_copy(update={"deploy": deploy})})

    def role_names(self, document: YamlMap) -> dict[Role, str]:
        """Return the names that an object gives the roles that it has."""
        names = {role: self._entry_names(document, role) for role in self.roles}
        return {role: of_role[0] for role, of_role in names.items() if of_role}

    def groups(self, plan: Plan) -> dict[Role, tuple[Group, ...]]:
        """Return the plan's groups that have replicas. Raises InputError if the manifest cannot express the plan."""
        if plan.kind == "keep":
            raise InputError(f"Plan {plan.id} keeps the job as it is.", "There is nothing to render.")
        if len(plan.job.name) > self.max_name_length:
            raise InputError(
                f"The name '{plan.job.name}' is too long for {self.kind}s.",
                f"Use at most {self.max_name_length} characters.",
            )
        groups_by_role: dict[Role, tuple[Group, ...]] = {}
        for role in ROLES:
            groups = tuple(group for group in getattr(plan.target, role) if group.replicas)
            if groups and role not in self.roles:
                raise InputError(
                    f"A {self.kind} has no {role}, but plan {plan.id} has.",
                    "Use executor jobset, which has a Job for each role.",
                )
            if groups and not self.named_by:
                only_group(plan.target, role)
            if groups:
                groups_by_role[role] = groups
        return groups_by_role

    def named_groups(self, groups: Mapping[Role, tuple[Group, ...]]) -> list[tuple[Role, str, Group]]:
        """Return each group with its role and the name of its entry, where entries are a list."""
        return [
            (role, name, group)
            for role, role_groups in groups.items()
            for name, group in zip(group_names(self.roles[role], len(role_groups)), role_groups, strict=True)
        ]

    def minimal_manifest(self, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> dict[str, Any]:
        """Return a complete manifest, in which the sizes of the groups are not yet written."""
        raise NotImplementedError

    def adapt(self, document: YamlMap, plan: Plan, changes: Sequence[SizeChange]) -> Iterator[str]:
        """Adapt other settings that depend on the sizes, and yield sentences on what a person has to check."""
        yield from ()

    def container_command(self, plan: Plan, role: Role, group: Group) -> ContainerCommand:
        """Return what the containers of a role start. Raises InputError if the platform cannot start it."""
        return container_command(plan, role, group, self.discovery, self.labels.number)

    def min_available(self, document: YamlMap, plan: Plan) -> dict[str, int]:
        """Return how many replicas of each entry must start together."""
        counts = {
            name: ContainerSpec(self._field(name), entry, {}, self.counter(entry, self._field(name))).replicas
            for name, entry in self.entries(document).items()
        }
        for role in self.roles:
            names = self._entry_names(document, role)
            counts |= zip(names, min_available(plan, role, [counts[name] for name in names]), strict=True)
        return counts

    def header(self, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> list[str]:
        """Return the comment lines above a manifest."""
        lines = [
            f"Sizewright plan {plan.id}: {plan.kind} {plan.target.describe()}",
            f"Why: {plan.reason}",
            self.apply_command(plan),
        ]
        for role, role_groups in groups.items():
            if any(not group.memory_bytes for group in role_groups):
                lines.append(f"The memory of {role} is unknown: none is requested, and none is guaranteed.")
            for kind in sorted({group.gpu.kind for group in role_groups if group.gpu} - {"gpu"}):
                lines.append(f"GPUs of {role} are of kind {kind}: add a nodeSelector for nodes that have them.")
        return [*lines, *self.open_points(plan)]

    def apply_command(self, plan: Plan) -> str:
        """Return the sentence that says how to apply a manifest."""
        return "Apply it with: sizewright apply, or kubectl apply --server-side --field-manager=sizewright -f FILE"

    def open_points(self, plan: Plan) -> Iterator[str]:
        """Yield sentences on what the user still has to do or to set before the manifest can run."""
        if names := secrets(plan):
            literals = " ".join(f"--from-literal={name}=..." for name in names)
            yield (
                f"Values of secrets are in no manifest ({', '.join(names)}): create them once with "
                f"kubectl -n {plan.job.deploy.namespace} create secret generic {plan.job.name} {literals}"
            )
        placeholders = Deploy()
        missing = []
        if plan.job.deploy.image == placeholders.image:
            missing.append(f"deploy.image ({placeholders.image})")
        if not has_command(plan.job):
            missing.append(f"deploy.command ({shlex.join(placeholders.command)})")
        if missing:
            they, have = ("them", "placeholders") if len(missing) > 1 else ("it", "a placeholder")
            yield (
                f"The job file does not set {' and '.join(missing)}: the manifest has {have} instead. Set {they} in "
                "the job file, or start from your own manifest (--base)."
            )

    def container_specs(self, document: YamlMap, role: Role) -> list[ContainerSpec]:
        """Return the places of a role's sizes, in order; empty if the manifest does not have the role."""
        entries = self.entries(document)
        names = self._entry_names(document, role)
        return [self._container_spec(document, self._field(name), entries[name]) for name in names]

    def first_worker_names(self, document: YamlMap, role: Role) -> list[str]:
        """Return the name of an entry that is one more worker, of the size of the others; most kinds have none."""
        return []

    def places(self, document: YamlMap, role: Role) -> list[ContainerSpec]:
        """Return all places of a role's sizes: those of its groups, and that of a worker with an entry of its own."""
        own = [
            self._container_spec(document, self._field(name), self.entries(document)[name])
            for name in self.first_worker_names(document, role)
        ]
        return [*self.container_specs(document, role), *own]

    def sized_places(self, document: YamlMap, role: Role, groups: Sequence[Group]) -> list[tuple[ContainerSpec, Group]]:
        """Return each place of a role's sizes with what stands there: a group, or one replica of the first."""
        places = self.places(document, role)
        return list(zip(places, [*groups, *(one_of(groups[0]) for _ in places[len(groups) :])], strict=True))

    def counter(self, entry: YamlMap, field: str) -> Counter:
        """Return where a role's entry states its number of replicas. Raises InputError if that is unclear."""
        return Counter(entry)

    def inner_entry(self, entry: YamlMap, field: str) -> YamlMap:
        """Return the mapping of a role's entry that has its pod template. Raises InputError if it is missing."""
        for key in self.entry_path:
            entry = expect_mapping(entry.get(key), f"{field}.{key}")
        return entry

    def _container_spec(self, document: YamlMap, field: str, outer: YamlMap) -> ContainerSpec:
        counter, entry = self.counter(outer, field), self.inner_entry(outer, field)
        pod = entry.get("template")
        containers = all_containers(pod, field)
        if self.first_container_trains:
            return ContainerSpec(field, entry, containers[0], counter)
        if self.container_name_reason and not any(each.get("name") in self.containers for each in containers):
            names = ", ".join(str(each.get("name")) for each in containers)
            raise InputError(
                f"{field} has no container named {self.containers[0]}, only {names}: {self.container_name_reason}.",
                f"Name the container that trains {self.containers[0]}.",
            )
        entries = self.entries(document)
        training = [
            self.inner_entry(entries[name], self._field(name))
            for role in ("worker", "ps", "chief")
            for name in self._entry_names(document, role)
        ]
        templates = [each["template"] for each in training if each is not entry and each.get("template")]
        return ContainerSpec(field, entry, training_container(pod, self.containers, field, templates), counter)

    def _field(self, name: str) -> str:
        return f"{self.roles_path}[{name}]" if self.named_by else f"{self.roles_path}.{name}"

    def entries(self, document: YamlMap) -> dict[str, YamlMap]:
        """Return all entries of an object that have replicas, by name."""
        value: Any = document
        for key in self.roles_path.split("."):
            if key not in expect_mapping(value, self.roles_path):
                raise InputError(f"The {self.kind} has no {self.roles_path}.", "Add it, or render without the base.")
            value = value[key]
        if not self.named_by:
            roles = expect_mapping(value, self.roles_path)
            if odd := [name for name in roles if not isinstance(name, str)]:
                raise InputError(f"{self.roles_path} has the key {odd[0]!r}, which is no name.", "Quote it.")
            return {name: expect_mapping(each, f"{self.roles_path}.{name}") for name, each in roles.items()}
        if not isinstance(value, list):
            raise InputError(f"{self.roles_path} must be a list, got {value!r:.60}.", "Correct the manifest.")
        return {str(expect_mapping(each, self.roles_path).get(self.named_by)): each for each in value}

    def _entry_names(self, document: YamlMap, role: Role) -> list[str]:
        """Return the names of the entries that are a role's groups, in order.

        An entry matches by the name that the user mapped, or else by the platform's name or an alias. The only entry of
        a list is the workers', if its name is not that of another role.
        """
        names = list(self.entries(document))
        if role not in self.roles:
            return []
        mapped = self._role_names.get(role)
        for word in [mapped] if mapped is not None else [self.roles[role], *self.aliases.get(role, ())]:
            candidates = group_names(word, len(names)) if self.named_by else [word]
            if matches := [name for candidate in candidates for name in _matching(candidate, names)]:
                return matches
        known = {word.lower() for r in self.roles for word in (self.roles[r], *self.aliases.get(r, ()))}
        is_only = self.named_by and len(names) == 1 and not self._role_names and names[0].lower() not in known
        return names if role == "worker" and is_only else []

    def select_document(self, documents: list[Any], name: str, job: str = "") -> YamlMap:
        """Return the document of this kind; of several, the one with the job's name. Raises InputError."""
        return find_document(documents, self.api_version, self.kind, name, job)

    def _write_sizes(
        self,
        document: YamlMap,
        plan: Plan,
        groups: Mapping[Role, tuple[Group, ...]],
        name: str,
        base: YamlText | None = None,
    ) -> tuple[list[SizeChange], list[str]]:
        """Write the plan's sizes into a manifest; return the changes, and remarks on what depends on the sizes."""
        changes: list[SizeChange] = []
        for role, role_groups in groups.items():
            specs = self.container_specs(document, role)
            if len(specs) != len(role_groups):
                raise self._wrong_number_of_entries(document, plan, role, name)
            for i, (place, group) in enumerate(self.sized_places(document, role, role_groups)):
                before = place.sizes()
                if base and not place.has(group, self.cpu_step_m):
                    self._separate(base, document, role, i)
                spec = self.places(document, role)[i]
                spec.write(group, self.cpu_step_m)
                spec.write_batch_size(plan.target.batch_size, plan.job.batch_size_for(plan.target.replicas("worker")))
                spec.write_loaders(plan.job.loaders_at(plan.target), plan.job.training.loaders)
                spec.write_counts(plan.target.replicas("worker"), plan.target.replicas("ps"), group.cpu)
                change = SizeChange(role, spec, before, spec.sizes())
                changes.append(change if i < len(role_groups) else change.uncounted())
        if "ps" not in groups and "ps" in self.roles and self.container_specs(document, "ps"):
            raise InputError(f"{name} has PS, but plan {plan.id} has none.", "Remove them from the manifest.")
        remarks = list(self.adapt(document, plan, changes))
        check_manifest(document, (spec for role in groups for spec in self.places(document, role)), name)
        return changes, remarks

    def _wrong_number_of_entries(self, document: YamlMap, plan: Plan, role: Role, name: str) -> InputError:
        """Return the error for a base that does not have one entry for each of the plan's groups."""
        entries = self._entry_names(document, role)
        sizes = len(getattr(plan.target, role))
        word = self._role_names.get(role, self.roles[role])
        names = list(self.entries(document))
        unused = [name for name in names if not any(name in self._entry_names(document, other) for other in ROLES)]
        add = f"dd the missing entries, named {', '.join(group_names(word, sizes))}"
        remedy = f"Map the entry, for example --role {role}={unused[0]}, or a{add}" if unused else f"A{add}"
        return InputError(
            f"{name} has {len(entries) or 'no'} {word} in {self.roles_path} (there: {', '.join(names) or 'nothing'}), "
            f"but plan {plan.id} has {sizes} {'sizes' if sizes > 1 else 'size'} of {role}.",
            f"{remedy}. An entry of another name is mapped by --role {role}=NAME.",
        )

    def _separate(self, base: YamlText, document: YamlMap, role: Role, i: int) -> None:
        """Copy what the i-th group of a role shares with other entries through YAML aliases, so that these keep it."""
        name = [*self._entry_names(document, role), *self.first_worker_names(document, role)][i]
        path: list[str | int] = [*self.roles_path.split(".")]
        path.append(list(self.entries(document)).index(name) if self.named_by else name)
        base.separate(document, *path)
        spec = self.places(document, role)[i]
        container_path = path
        if spec.has_pod:
            containers = expect_mapping(spec.entry["template"], spec.field)["spec"]["containers"]
            index = next(n for n, container in enumerate(containers) if container is spec.container)
            container_path = [*path, *self.entry_path, "template", "spec", "containers", index]
        for amounts in ("requests", "limits"):
            base.separate(document, *container_path, spec.resources, amounts)
        for n, variable in enumerate(spec.container.get("env") or []):
            if isinstance(variable, Mapping) and str(variable.get("name")).startswith("SIZEWRIGHT_"):
                base.separate(document, *container_path, "env", n)
        base.separate(document, *path, "rayStartParams")

    def _base_remarks(self, document: YamlMap, groups: Mapping[Role, tuple[Group, ...]]) -> Iterator[str]:
        """Yield sentences on what the plan does not know of a base, and on names that were guessed."""
        role_entries = {role: self._entry_names(document, role) for role in groups}
        for role, names in role_entries.items():
            expected = group_names(self.roles[role], len(names)) if self.named_by else [self.roles[role]]
            for name in names:
                if name.lower() not in map(str.lower, expected) and role not in self._role_names:
                    yield f"{self._field(name)} is taken for {role}; map another entry by --role {role}=NAME."
        sized = {name for names in role_entries.values() for name in names}
        sized |= {name for role in groups for name in self.first_worker_names(document, role)}
        for name, entry in self.entries(document).items():
            if name not in sized and name not in self.platform_entries:
                counter = self.counter(entry, self._field(name))
                count = counter.entry.get(counter.names[0], 1)
                yield f"{self._field(name)} is not in the plan and stays unchanged ({count} × its current size)."
        for role, role_groups in groups.items():
            for spec, group in self.sized_places(document, role, role_groups):
                containers = all_containers(spec.entry["template"], spec.field) if spec.has_pod else []
                if len(containers) > 1 and spec.container.get("name") not in self.containers:
                    yield f"{spec.field}: container {spec.container.get('name')} is taken for the one that trains."
                yield from beyond_container(spec)
                if spec.gpu_resource and not group.gpu:
                    gpu = spec.read().gpu
                    yield (
                        f"{spec.field} keeps {gpu.count if gpu else 0} {spec.gpu_resource} per replica: "
                        "the plan has no GPUs."
                    )
                if not group.memory_bytes:
                    yield f"{spec.field}: the plan has no memory, so that of the manifest stays."


def _host_lists(before: Any, after: Any) -> Iterator[str]:
    """Yield a sentence for each variable that lists hosts and is the same in two objects."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        name = str(before.get("name"))
        lists_hosts = name == "TF_CONFIG" or name.endswith("_HOSTS")
        if lists_hosts and before.get("value") is not None and before.get("value") == after.get("value"):
            yield f"{name} lists other hosts than the job now has."
        for key in before:
            yield from _host_lists(before[key], after.get(key))
    elif isinstance(before, list) and isinstance(after, list):
        for one, other in zip(before, after, strict=False):
            yield from _host_lists(one, other)


def _priorities(value: Any) -> Iterator[str]:
    """Yield the names of priority classes anywhere in documents."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key in ("priorityClassName", "priorityClass", "priority") and isinstance(inner, str):
                yield str(inner)
            yield from _priorities(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _priorities(inner)


def find_document(documents: list[Any], api_version: str, kind: str, name: str, job: str = "") -> YamlMap:
    """Return the only document of a kind, or of several the one named `job`. Items of a List count as documents.

    Raises InputError that names the documents, if there is no such document.
    """
    documents = list(without_lists(documents))
    matches = [each for each in documents if _kind_of(each) == kind]
    if len(matches) > 1 and job:
        names = [str((each.get("metadata") or {}).get("name")) for each in matches]
        matches = [each for each, each_name in zip(matches, names, strict=True) if each_name == job]
        if len(matches) != 1:
            raise InputError(
                f"{name} has {len(names)} {kind}s ({', '.join(names)}), and {len(matches) or 'none'} of them "
                f"{'are' if matches else 'is'} named {job} like the job.",
                "Pass a file with only the one to size, or give the job its name.",
            )
    if len(matches) != 1:
        kinds = ", ".join(map(_kind_of, documents)) or "nothing"
        raise InputError(
            f"{name} has {len(matches) or 'no'} {kind}{'s' if len(matches) > 1 else ''}; it holds: {kinds}.",
            f"Pass a manifest with one {kind} of {api_version}.",
        )
    if matches[0].get("apiVersion") != api_version:
        raise InputError(
            f"{name} has apiVersion '{matches[0].get('apiVersion')}', which is another {kind}.", f"Use {api_version}."
        )
    check_rendered(matches[0], name)
    return expect_mapping(matches[0], name)


def _kind_of(document: Any) -> str:
    if isinstance(document, Mapping):
        return str(document.get("kind") or "a mapping without kind")
    return "a list" if isinstance(document, list) else type(document).__name__


def without_lists(documents: list[Any]) -> Iterator[Any]:
    """Yield the documents, with each List replaced by its items, and without empty documents."""
    for each in documents:
        if isinstance(each, Mapping) and str(each.get("kind")).endswith("List") and isinstance(each.get("items"), list):
            yield from without_lists(each["items"])
        elif each is not None:
            yield each


def _matching(word: str, names: Sequence[str]) -> list[str]:
    """Return the name that equals the word, or else the first that does in another case."""
    return [word] if word in names else [name for name in names if name.lower() == word.lower()][:1]


def set_if_present(entry: YamlMap, name: str, value: int) -> None:
    """Set a field that depends on the sizes, if the manifest has it."""
    if name in entry:
        entry[name] = value


def group_names(word: str, count: int) -> list[str]:
    """Return the names of a role's groups: `ps`, `ps-2`, `ps-3`."""
    return [word, *(f"{word}-{number}" for number in range(2, count + 1))]
