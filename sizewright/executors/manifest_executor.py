"""The base of executors whose platform takes manifests: written whole, or sizes changed in a manifest of the user's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ValidationError

from sizewright.errors import InputError
from sizewright.executors.kubernetes import only_group
from sizewright.executors.manifest import from_yaml, to_yaml
from sizewright.executors.manifest_check import check_manifest
from sizewright.executors.plan_notes import PLAN_ID, check_no_secrets, notes, read_notes
from sizewright.executors.render_only import RenderOnly
from sizewright.executors.slots import Node, Slot, main_container, node, rounded
from sizewright.executors.yaml_text import YamlText
from sizewright.spec import ROLES, Allocation, Group, Plan, Role
from sizewright.spec._faults import explain_first

_PARTS = (*ROLES, "batch_size")


class ManifestExecutor(RenderOnly):
    """One custom resource holds a job. A platform gives what names it, where its `roles` are, and `minimal`; what else
    of its manifest depends on the sizes goes into `fit`.

    With `base`, a file, only the sizes of that manifest are changed.
    """

    api_version: ClassVar[str]
    kind: ClassVar[str]
    roles_at: ClassVar[str]
    """Path to the roles: a mapping, or a list of entries whose `named_by` is their name."""
    named_by: ClassVar[str] = ""
    roles: ClassVar[Mapping[Role, str]]
    """Its words for roles; of lists, the second group of a role is called such as `ps-2`."""
    containers: ClassVar[tuple[str, ...]] = ("main",)
    """Names of the container that trains, where a pod has several."""
    cpu_step_m: ClassVar[int] = 1
    longest_name: ClassVar[int] = 63

    def __init__(self, *, base: str | Path | None = None) -> None:
        super().__init__()
        self._base = base

    def render(self, plan: Plan) -> str:
        """The manifest. Raises InputError for a plan that it cannot express, or a base that is not of its kind."""
        check_no_secrets(plan)
        groups = self.groups(plan)
        if self._base:
            base = YamlText.load(self._base)
            document = self.mine(base.documents, str(self._base))
            self._size(document, plan, groups, str(self._base))
            if PLAN_ID in (annotations := (document.get("metadata") or {}).get("annotations") or {}):
                annotations.update(notes(plan))  # it was rendered of an earlier plan
            return base.text
        document = self.minimal(plan, groups)
        self._size(document, plan, groups, "The manifest")
        return to_yaml(self.header(plan, groups), document)

    def parse(self, text: str) -> Plan:
        """The plan of a manifest that was rendered from it; where its sizes were changed since, with these.

        Raises InputError for what is no such manifest.
        """
        document = self.mine(from_yaml(text), "The manifest")
        plan = read_notes(document)
        told: dict[str, Any] = {}
        for role in ROLES:
            before = tuple(group for group in getattr(plan.target, role) if group.replicas)
            slots = self.slots(document, role)
            now = tuple(slot.read() for slot in slots)
            if role == "worker" and slots:
                told["batch_size"] = slots[0].read_batch_size(plan.target.batch_size)
            if now != tuple(rounded(group, self.cpu_step_m) for group in before):
                told[role] = now
        try:
            target = Allocation.model_validate({name: getattr(plan.target, name) for name in _PARTS} | told)
        except ValidationError as error:
            raise InputError(f"The manifest's {explain_first(error)}.", "Mend it there.") from None
        return plan.model_copy(update={"target": target})

    def asks_for(self, plan: Plan) -> dict[Role, tuple[Group, ...]]:
        """The sizes of all replicas of its manifest, those of roles and GPUs that only a base has among them."""
        document = self.mine(from_yaml(self.render(plan.model_copy(update={"kind": "launch"}))), "The manifest")
        read = {role: tuple(slot.read() for slot in self.slots(document, role)) for role in ROLES}
        return {role: groups for role, groups in read.items() if groups}

    def as_rendered(self, plan: Plan) -> Plan:
        """The plan as its manifest really asks for it: rounded, with what a base adds, and the base's priority."""
        document = from_yaml(self.render(plan.model_copy(update={"kind": "launch"})))
        named = list(_priorities(document))
        target = Allocation(**self.asks_for(plan), batch_size=plan.target.batch_size)
        deploy = plan.job.deploy.model_copy(update={"priority_class": named[0]} if named else {})
        return plan.model_copy(update={"target": target, "job": plan.job.model_copy(update={"deploy": deploy})})

    def groups(self, plan: Plan) -> dict[Role, tuple[Group, ...]]:
        """Those that have replicas. Raises InputError for a plan that the manifest cannot express."""
        if plan.kind == "keep":
            raise InputError(f"Plan {plan.id} keeps the job as it is.", "There is nothing to render.")
        if len(plan.job.name) > self.longest_name:
            raise InputError(
                f"The name '{plan.job.name}' is too long for {self.kind}s.",
                f"Use at most {self.longest_name} characters.",
            )
        found: dict[Role, tuple[Group, ...]] = {}
        for role in ROLES:
            groups = tuple(group for group in getattr(plan.target, role) if group.replicas)
            if groups and role not in self.roles:
                raise InputError(f"A {self.kind} has no {role}, and plan {plan.id} does.", "Leave it out.")
            if groups and not self.named_by:
                only_group(plan.target, role)
            if groups:
                found[role] = groups
        return found

    def minimal(self, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> dict[str, Any]:
        """A complete manifest with a place for the size of each group."""
        raise NotImplementedError

    def fit(self, document: Node, plan: Plan) -> None:
        """Whatever else follows from the sizes."""

    def header(self, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> list[str]:
        """Comment lines above a manifest."""
        lines = [
            f"Sizewright plan {plan.id}: {plan.kind} {plan.target.describe()}",
            f"Why: {plan.reason}",
            "Apply it with: sizewright apply, or kubectl apply --server-side --field-manager=sizewright -f FILE",
        ]
        for role, of_role in groups.items():
            lines += self._open_points(role, of_role)
        return lines

    def slots(self, document: Node, role: Role) -> list[Slot]:
        """Where the sizes of a role are, in order; none where the manifest does not have it."""
        return [self._slot(field, entry) for field, entry in self._entries(document, role)]

    def _slot(self, field: str, entry: Node) -> Slot:
        return Slot(field, entry, main_container(entry.get("template"), self.containers, field))

    def _entries(self, document: Node, role: Role) -> Iterator[tuple[str, Node]]:
        word, found = self.roles.get(role, ""), self._at(document)
        if not self.named_by:
            if word in node(found, self.roles_at):
                yield f"{self.roles_at}.{word}", node(found[word], f"{self.roles_at}.{word}")
            return
        if not isinstance(found, list):
            raise InputError(f"{self.roles_at} is {found!r:.60}, and a list was expected.", "Mend the manifest there.")
        named = {str(node(each, self.roles_at).get(self.named_by)): each for each in found}
        for name in group_names(word, len(named)):
            if name in named:
                yield f"{self.roles_at}[{name}]", named[name]

    def _at(self, document: Node) -> Any:
        found: Any = document
        for step in self.roles_at.split("."):
            if step not in node(found, self.roles_at):
                raise InputError(f"The {self.kind} has no {self.roles_at}.", "Mend it, or leave the base manifest out.")
            found = found[step]
        return found

    def mine(self, documents: list[Any], name: str) -> Node:
        """The one of its kind among the documents of a file. Raises InputError."""
        return find(documents, self.api_version, self.kind, name)

    def _size(self, document: Node, plan: Plan, groups: Mapping[Role, tuple[Group, ...]], name: str) -> None:
        for role, of_role in groups.items():
            slots = self.slots(document, role)
            if len(slots) != len(of_role):
                raise InputError(
                    f"{name} has {len(slots) or 'no'} {self.roles[role]} in {self.roles_at}, and plan {plan.id} has "
                    f"{len(of_role)} {'sizes' if len(of_role) > 1 else 'size'} of {role}.",
                    f"Add what is missing, named {', '.join(group_names(self.roles[role], len(of_role)))}.",
                )
            for slot, group in zip(slots, of_role, strict=True):
                slot.write(group, self.cpu_step_m)
                slot.write_batch_size(plan.target.batch_size, plan.job.training.batch_size)
        for role, of_role in groups.items():
            for slot, group in zip(self.slots(document, role), of_role, strict=True):
                if not slot.has(group, self.cpu_step_m):
                    raise InputError(
                        f"{name}: {slot.field} cannot have a size of its own: it shares what it is made of.",
                        "Write it out there instead of the YAML alias or merge.",
                    )
        if "ps" not in groups and "ps" in self.roles and self.slots(document, "ps"):
            raise InputError(f"{name} has PS, and plan {plan.id} has none.", "Take them out of the manifest.")
        self.fit(document, plan)
        check_manifest(document, (slot for role in groups for slot in self.slots(document, role)), name)

    def _open_points(self, role: Role, groups: tuple[Group, ...]) -> Iterator[str]:
        if any(not group.memory_bytes for group in groups):
            yield f"The memory of {role} is not known, so none is asked for and none is guaranteed."
        for kind in sorted({group.gpu.kind for group in groups if group.gpu} - {"gpu"}):
            yield f"GPUs of {role} are of kind {kind}: add the nodeSelector that finds them."


def _priorities(found: Any) -> Iterator[str]:
    """Names of priority classes anywhere in documents."""
    if isinstance(found, Mapping):
        for key, value in found.items():
            if key in ("priorityClassName", "priorityClass", "priority") and isinstance(value, str):
                yield str(value)
            yield from _priorities(value)
    elif isinstance(found, list):
        for each in found:
            yield from _priorities(each)


def find(documents: list[Any], api_version: str, kind: str, name: str) -> Node:
    """The only document of a kind. Raises InputError that says what is there instead."""
    kinds = [str(each.get("kind")) if isinstance(each, Mapping) else type(each).__name__ for each in documents]
    found = [each for each, of_kind in zip(documents, kinds, strict=True) if of_kind == kind]
    if len(found) != 1:
        raise InputError(
            f"{name} has {len(found) or 'no'} {kind}{'s' if len(found) > 1 else ''}; it holds: "
            f"{', '.join(kinds) or 'nothing'}.",
            f"Pass a manifest with one {kind} of {api_version}.",
        )
    if found[0].get("apiVersion") != api_version:
        raise InputError(
            f"{name} has apiVersion '{found[0].get('apiVersion')}', which is another {kind}.", f"Use {api_version}."
        )
    return node(found[0], name)


def replace(entry: Node, name: str, value: int) -> None:
    """What follows from the sizes, where the manifest has it at all."""
    if name in entry:
        entry[name] = value


def group_names(word: str, count: int) -> list[str]:
    """`ps`, `ps-2`, `ps-3`: of so many groups of a role."""
    return [word, *(f"{word}-{number}" for number in range(2, count + 1))]
