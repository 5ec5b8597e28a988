"""The base of executors whose platform takes manifests: written whole, or sizes changed in a manifest of the user's."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ValidationError

from sizewright.errors import InputError
from sizewright.executors.kubernetes import floors, only_group
from sizewright.executors.manifest import from_yaml, to_yaml
from sizewright.executors.manifest_check import check_manifest
from sizewright.executors.plan_notes import PLAN_ID, check_no_secrets, has_notes, notes, read_notes
from sizewright.executors.pod_command import Finds, Start, check_rendezvous, gives_command, secrets, start
from sizewright.executors.pods import PodLabels
from sizewright.executors.render_only import RenderOnly
from sizewright.executors.repeated_sizes import Change, repeated
from sizewright.executors.slots import Node, Slot, all_containers, node, rounded, training_container
from sizewright.executors.totals import beyond_container
from sizewright.executors.yaml_text import YamlText
from sizewright.spec import ROLES, Allocation, Deploy, Group, Job, Plan, Role
from sizewright.spec._base import checked, parse
from sizewright.spec._faults import explain_first
from sizewright.spec._text_files import check_rendered

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
    """Its words for roles, in any case; of lists, the second group of a role is called such as `ps-2`."""
    aliases: ClassVar[Mapping[Role, Sequence[str]]] = {}
    """Other words by which manifests of users call a role."""
    of_platform: ClassVar[tuple[str, ...]] = ()
    """Entries beside the roles that are the platform's own."""
    labels: ClassVar[PodLabels]
    finds: ClassVar[Finds]
    containers: ClassVar[tuple[str, ...]] = ("main",)
    """Names of the container that trains, where a pod has several."""
    needs_name: ClassVar[str] = ""
    """Why a pod has to have a container of one of these names, where it has to."""
    first_container: ClassVar[bool] = False
    """Whether the platform starts replicas in the first container, whatever it is called."""
    cpu_step_m: ClassVar[int] = 1
    longest_name: ClassVar[int] = 63

    def __init__(self, *, base: str | Path | None = None, roles: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._base = base
        self._mapped: Mapping[str, str] = dict(roles or {})
        if unknown := self._mapped.keys() - self.roles.keys():
            raise InputError(
                f"'{min(unknown)}' is not a role of a {self.kind}.", f"Its roles are: {', '.join(self.roles)}."
            )

    def render(self, plan: Plan) -> str:
        """The manifest. Raises InputError for a plan that it cannot express, or a base that is not of its kind."""
        return self._rendered(plan)[0]

    def remarks(self, plan: Plan) -> list[str]:
        """Sentences on what a person has to look after in the manifest of a plan: what repeats a size there and stays
        as it is, what the plan does not know, what is still missing."""
        return list(dict.fromkeys(self._rendered(plan)[1]))

    def _rendered(self, plan: Plan) -> tuple[str, list[str]]:
        check_no_secrets(plan)
        if not self._base:
            check_rendezvous(plan, self.finds)
        groups = self.groups(plan)
        if self._base:
            base = YamlText.load(self._base)
            document = self.mine(base.documents, str(self._base), plan.job.name)
            remarks = self._size(document, plan, groups, str(self._base), base)
            annotations = document["metadata"].get("annotations")
            if isinstance(annotations, MutableMapping) and PLAN_ID in annotations:
                annotations.update(notes(plan))  # it was rendered of an earlier plan
            return base.text, remarks
        document = self.minimal(plan, groups)
        self._size(document, plan, groups, "The manifest")
        return to_yaml(self.header(plan, groups), document), list(self.open_points(plan))

    def parse(self, text: str) -> Plan:
        """The plan of a manifest that was rendered from it; where its sizes were changed since, with these. Of any
        other manifest, the plan that launches it at the sizes that it has.

        Raises InputError for what is no such manifest.
        """
        document = self.mine(from_yaml(text), "The manifest")
        plan = read_notes(document) if has_notes(document) else self._plan_of(document, text)
        told: dict[str, Any] = {}
        for role in ROLES:
            before = tuple(group for group in getattr(plan.target, role) if group.replicas)
            slots = [slot for slot in self.slots(document, role) if before or slot.asks_for_cores]
            now = tuple(slot.read() for slot in slots)
            if role == "worker" and slots:
                told["batch_size"] = slots[0].read_batch_size(plan.target.batch_size)
            if now != tuple(rounded(group, self.cpu_step_m) for group in before):
                told[role] = now
        try:
            target = checked(Allocation, {name: getattr(plan.target, name) for name in _PARTS} | told)
        except ValidationError as error:
            raise InputError(f"The manifest's {explain_first(error)}.", "Mend it there.") from None
        return plan.model_copy(update={"target": target})

    def adopt(self, path: str | Path) -> Plan:
        """The plan of a manifest's file, which becomes the base where it holds more than that plan.

        Raises InputError for what is no manifest of this kind.
        """
        text = YamlText.load(path).text
        plan = self.parse(text)
        if not self._base and from_yaml(self.render(plan)) != from_yaml(text):
            self._base = path
        return plan

    def _plan_of(self, document: Node, text: str) -> Plan:
        meta = node(document.get("metadata"), "metadata")
        name = str(meta.get("name") or str(meta.get("generateName") or "job").rstrip("-"))
        sizes = self.sizes_of(document)
        if "worker" not in sizes:
            self.slots(document, "worker")  # says what is wrong with it
            raise InputError(
                f"The manifest does not say how many cores its workers ask for in {self.roles_at}.",
                "Write it there, or map their name: --role worker=NAME.",
            )
        told = {"name": name, "deploy": {"namespace": meta.get("namespace") or "default"}}
        plan_id = (
            f"{re.sub('[^a-z0-9-]', '-', name.lower()).strip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        )
        job = parse(Job, told, "The manifest's metadata")
        batch_size = self.slots(document, "worker")[0].read_batch_size(job.training.batch_size)
        job = job.with_batch_size(batch_size)
        target = Allocation(**sizes, batch_size=batch_size)
        return Plan(id=plan_id, kind="launch", job=job, target=target, reason="Its manifest has these sizes.")

    def asks_for(self, plan: Plan) -> dict[Role, tuple[Group, ...]]:
        """The sizes of all replicas of its manifest, those of roles and GPUs that only a base has among them."""
        return self.sizes_of(self.document(plan))

    def document(self, plan: Plan) -> Node:
        """The manifest of the job of a plan, whatever the plan's kind."""
        text = self.render(plan.model_copy(update={"kind": "launch"}))
        return self.mine(from_yaml(text), "The manifest", plan.job.name)

    def sizes_of(self, document: Node) -> dict[Role, tuple[Group, ...]]:
        """Sizes that an object asks for; without roles that do not say how many cores."""
        read = {
            role: tuple(slot.read() for slot in self.slots(document, role) if slot.asks_for_cores) for role in ROLES
        }
        return {role: groups for role, groups in read.items() if groups}

    def unsized(self, plan: Plan) -> list[Role]:
        """Roles with replicas that do not say how many cores they ask for: only a base has such."""
        document = self.document(plan)
        return [r for r in ROLES if any(s.replicas and not s.asks_for_cores for s in self.slots(document, r))]

    def as_rendered(self, plan: Plan) -> Plan:
        """The plan as its manifest really asks for it: rounded, with what a base adds, and the base's priority."""
        document = from_yaml(self.render(plan.model_copy(update={"kind": "launch"})))
        named = list(_priorities(document))
        target = Allocation(**self.asks_for(plan), batch_size=plan.target.batch_size)
        deploy = plan.job.deploy.model_copy(update={"priority_class": named[0]} if named else {})
        return plan.model_copy(update={"target": target, "job": plan.job.model_copy(update={"deploy": deploy})})

    def words_of(self, document: Node) -> dict[Role, str]:
        """What an object calls the roles that it has."""
        found = {role: self._named(document, role) for role in self.roles}
        return {role: names[0] for role, names in found.items() if names}

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

    def fit(self, document: Node, plan: Plan, changes: Sequence[Change]) -> Iterator[str]:
        """Adapt whatever else follows from the sizes, and say what a person has to look after."""
        yield from ()

    def start(self, plan: Plan, role: Role, group: Group) -> Start:
        """What the containers of a role start. Raises InputError for what the platform cannot tell them."""
        return start(plan, role, group, self.finds, self.labels.number)

    def floor(self, document: Node, plan: Plan) -> dict[str, int]:
        """How many replicas of each entry start together or not at all."""
        counts = {name: Slot(self._field(name), e, {}).replicas for name, e in self.entries(document).items()}
        for role in self.roles:
            names = self._named(document, role)
            counts |= zip(names, floors(plan, role, [counts[name] for name in names]), strict=True)
        return counts

    def header(self, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> list[str]:
        """Comment lines above a manifest."""
        lines = [
            f"Sizewright plan {plan.id}: {plan.kind} {plan.target.describe()}",
            f"Why: {plan.reason}",
            "Apply it with: sizewright apply, or kubectl apply --server-side --field-manager=sizewright -f FILE",
        ]
        for role, of_role in groups.items():
            lines += _unknown(role, of_role)
        return [*lines, *self.open_points(plan)]

    def open_points(self, plan: Plan) -> Iterator[str]:
        """What its user still has to fill in: sentences."""
        if names := secrets(plan):
            literals = " ".join(f"--from-literal={name}=..." for name in names)
            yield (
                f"Values of secrets are in no manifest ({', '.join(names)}): create them once with "
                f"kubectl -n {plan.job.deploy.namespace} create secret generic {plan.job.name} {literals}"
            )
        usual = Deploy()
        missing = [
            f"deploy.{name} ({shown})"
            for name, shown, given in (
                ("image", usual.image, plan.job.deploy.image != usual.image),
                ("command", shlex.join(usual.command), gives_command(plan.job)),
            )
            if not given
        ]
        if missing:
            they, are = ("them", "placeholders") if len(missing) > 1 else ("it", "a placeholder")
            yield (
                f"The job file does not say {' and '.join(missing)}: the manifest has {are} there. Set {they} in the "
                "job file, or start from a manifest of yours (--base)."
            )

    def slots(self, document: Node, role: Role) -> list[Slot]:
        """Where the sizes of a role are, in order; none where the manifest does not have it."""
        return [self._slot(document, field, entry) for field, entry in self._entries(document, role)]

    def _slot(self, document: Node, field: str, entry: Node) -> Slot:
        pod = entry.get("template")
        containers = all_containers(pod, field)
        if self.first_container:
            return Slot(field, entry, containers[0])
        if self.needs_name and not any(each.get("name") in self.containers for each in containers):
            names = ", ".join(str(each.get("name")) for each in containers)
            raise InputError(
                f"{field} has no container called {self.containers[0]} (there: {names}): {self.needs_name}.",
                f"Call the container that trains {self.containers[0]}.",
            )
        trained = [self._named(document, role) for role in ("worker", "ps", "chief")]
        others = [self.entries(document)[name] for names in trained for name in names]
        templates = [other["template"] for other in others if other is not entry and other.get("template")]
        return Slot(field, entry, training_container(pod, self.containers, field, templates))

    def _entries(self, document: Node, role: Role) -> Iterator[tuple[str, Node]]:
        entries = self.entries(document)
        for name in self._named(document, role):
            yield self._field(name), entries[name]

    def _field(self, name: str) -> str:
        return f"{self.roles_at}[{name}]" if self.named_by else f"{self.roles_at}.{name}"

    def entries(self, document: Node) -> dict[str, Node]:
        """Everything that has replicas in an object, by its name there."""
        found = self._at(document)
        if not self.named_by:
            return {name: node(each, f"{self.roles_at}.{name}") for name, each in node(found, self.roles_at).items()}
        if not isinstance(found, list):
            raise InputError(f"{self.roles_at} is {found!r:.60}, and a list was expected.", "Mend the manifest there.")
        return {str(node(each, self.roles_at).get(self.named_by)): each for each in found}

    def _named(self, document: Node, role: Role) -> list[str]:
        """Names of the entries of a role's groups, in order."""
        names = list(self.entries(document))
        if role not in self.roles:
            return []
        words = [self._mapped[role]] if role in self._mapped else [self.roles[role], *self.aliases.get(role, ())]
        for word in words:
            wanted = group_names(word, len(names)) if self.named_by else [word]
            if found := [name for each in wanted for name in _called(each, names)]:
                return found
        known = {w.lower() for r in self.roles for w in (self.roles[r], *self.aliases.get(r, ()))}
        alone = self.named_by and len(names) == 1 and not self._mapped and names[0].lower() not in known
        return names if role == "worker" and alone else []

    def _at(self, document: Node) -> Any:
        found: Any = document
        for step in self.roles_at.split("."):
            if step not in node(found, self.roles_at):
                raise InputError(f"The {self.kind} has no {self.roles_at}.", "Mend it, or leave the base manifest out.")
            found = found[step]
        return found

    def mine(self, documents: list[Any], name: str, job: str = "") -> Node:
        """The one of its kind among the documents of a file; of several, the one that is called like the job. Raises
        InputError."""
        return find(documents, self.api_version, self.kind, name, job)

    def _size(
        self,
        document: Node,
        plan: Plan,
        groups: Mapping[Role, tuple[Group, ...]],
        name: str,
        base: YamlText | None = None,
    ) -> list[str]:
        changes: list[Change] = []
        for role, of_role in groups.items():
            slots = self.slots(document, role)
            if len(slots) != len(of_role):
                raise self._misfit(document, plan, role, name)
            for i, group in enumerate(of_role):
                before = slots[i].sizes()
                if base:
                    self._separate(base, document, role, i, slots[i].has(group, self.cpu_step_m))
                slot = self.slots(document, role)[i]
                slot.write(group, self.cpu_step_m)
                slot.write_batch_size(plan.target.batch_size, plan.job.training.batch_size)
                slot.write_counts(plan.target.replicas("worker"), plan.target.replicas("ps"), group.cpu)
                changes.append(Change(role, slot, before, slot.sizes()))
        if "ps" not in groups and "ps" in self.roles and self.slots(document, "ps"):
            raise InputError(f"{name} has PS, and plan {plan.id} has none.", "Take them out of the manifest.")
        remarks = list(self.fit(document, plan, changes))
        check_manifest(document, (slot for role in groups for slot in self.slots(document, role)), name)
        if not base:
            return []
        return [*self._kept(document, plan, groups), *remarks, *repeated(document, changes)]

    def _misfit(self, document: Node, plan: Plan, role: Role, name: str) -> InputError:
        """Of a base whose entries of a role are not as many as the plan's groups."""
        found, wanted = self._named(document, role), len(getattr(plan.target, role))
        word = self._mapped.get(role, self.roles[role])
        names = list(self.entries(document))
        unknown = [name for name in names if not any(name in self._named(document, r) for r in ROLES)]
        add = f"add what is missing, named {', '.join(group_names(word, wanted))}"
        remedy = f"Say which one it is, such as --role {role}={unknown[0]}; or {add}" if unknown else f"A{add[1:]}"
        return InputError(
            f"{name} has {len(found) or 'no'} {word} in {self.roles_at} (there: {', '.join(names) or 'nothing'}), and "
            f"plan {plan.id} has {wanted} {'sizes' if wanted > 1 else 'size'} of {role}.",
            f"{remedy}. One that is called otherwise is mapped by --role {role}=NAME.",
        )

    def _separate(self, base: YamlText, document: Node, role: Role, i: int, same: bool) -> None:
        """A group's sizes are its own, where YAML aliases share them with what is to stay as it is."""
        if same:
            return
        name = self._named(document, role)[i]
        steps: list[str | int] = [*self.roles_at.split(".")]
        steps += [list(self.entries(document)).index(name)] if self.named_by else [name]
        base.separate(document, *steps)
        slot = self.slots(document, role)[i]
        pods = node(slot.counted["template"], slot.field)["spec"]["containers"]
        at = next(n for n, each in enumerate(pods) if each is slot.container)
        to_container = [*steps, "template", "spec", "containers", at]
        for amounts in ("requests", "limits"):
            base.separate(document, *to_container, "resources", amounts)
        for n, variable in enumerate(slot.container.get("env") or []):
            if isinstance(variable, Mapping) and str(variable.get("name")).startswith("SIZEWRIGHT_"):
                base.separate(document, *to_container, "env", n)
        base.separate(document, *steps, "rayStartParams")

    def _kept(self, document: Node, plan: Plan, groups: Mapping[Role, tuple[Group, ...]]) -> Iterator[str]:
        """What of a base the plan does not know, and what is taken for a role though it is called otherwise."""
        named = {role: self._named(document, role) for role in groups}
        for role, names in named.items():
            usual = group_names(self.roles[role], len(names)) if self.named_by else [self.roles[role]]
            for name in names:
                if name.lower() not in map(str.lower, usual) and role not in self._mapped:
                    yield f"{self._field(name)} is taken for {role}; another name is given by --role {role}=NAME."
        for name, entry in self.entries(document).items():
            if not any(name in names for names in named.values()) and name not in self.of_platform:
                count = entry.get("replicas", 1)
                yield f"{self._field(name)} is not in the plan and stays as it is ({count} × its own size)."
        for role, of_role in groups.items():
            for slot, group in zip(self.slots(document, role), of_role, strict=True):
                containers = all_containers(slot.counted["template"], slot.field)
                if len(containers) > 1 and slot.container.get("name") not in self.containers:
                    yield f"{slot.field}: container {slot.container.get('name')} is taken for the one that trains."
                yield from beyond_container(slot)
                if slot.gpu_resource and not group.gpu:
                    count = slot.read().gpu
                    yield (
                        f"{slot.field} keeps {count.count if count else 0} {slot.gpu_resource} a replica: "
                        "the plan has no GPUs."
                    )
                if not group.memory_bytes:
                    yield f"{slot.field}: the memory is not known, so what the manifest says of it stays."


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


def _unknown(role: Role, groups: tuple[Group, ...]) -> Iterator[str]:
    if any(not group.memory_bytes for group in groups):
        yield f"The memory of {role} is not known, so none is asked for and none is guaranteed."
    for kind in sorted({group.gpu.kind for group in groups if group.gpu} - {"gpu"}):
        yield f"GPUs of {role} are of kind {kind}: add the nodeSelector that finds them."


def find(documents: list[Any], api_version: str, kind: str, name: str, job: str = "") -> Node:
    """The only document of a kind, or of several the one that is called `job`; items of a List are documents, too.
    Raises InputError that says what is there instead."""
    documents = list(_unfolded(documents))
    kinds = [
        str(each.get("kind") or "a mapping without kind") if isinstance(each, Mapping)
        else "a list" if isinstance(each, list) else type(each).__name__
        for each in documents
    ]  # fmt: skip
    found = [each for each, of_kind in zip(documents, kinds, strict=True) if of_kind == kind]
    if len(found) > 1 and job:
        names = [str((each.get("metadata") or {}).get("name")) for each in found]
        found = [each for each, called in zip(found, names, strict=True) if called == job]
        if len(found) != 1:
            raise InputError(
                f"{name} has {len(names)} {kind}s ({', '.join(names)}), and {len(found) or 'none'} of them "
                f"{'are' if found else 'is'} called {job} like the job.",
                "Pass a file with the one that is to be sized, or name the job like it.",
            )
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
    check_rendered(found[0], name)
    return node(found[0], name)


def _unfolded(documents: list[Any]) -> Iterator[Any]:
    for each in documents:
        if isinstance(each, Mapping) and str(each.get("kind")).endswith("List") and isinstance(each.get("items"), list):
            yield from _unfolded(each["items"])
        elif each is not None:  # an empty document
            yield each


def _called(word: str, names: Sequence[str]) -> list[str]:
    """The name that is that word, or else is it in other letters."""
    return [word] if word in names else [name for name in names if name.lower() == word.lower()][:1]


def replace(entry: Node, name: str, value: int) -> None:
    """What follows from the sizes, where the manifest has it at all."""
    if name in entry:
        entry[name] = value


def group_names(word: str, count: int) -> list[str]:
    """`ps`, `ps-2`, `ps-3`: of so many groups of a role."""
    return [word, *(f"{word}-{number}" for number in range(2, count + 1))]
