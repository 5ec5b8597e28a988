"""Variables and options that repeat a size in a user's manifest or script (`WORLD_SIZE=4`, `--nproc_per_node=8`).

What they mean is up to the code that reads them, so they are kept and reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from sizewright.executors.slots import Node, Sizes, Slot, whole
from sizewright.spec import Role

_Meaning = Literal["worker", "ps", "cores", "gpus"]
_WORDS: dict[str, _Meaning] = {
    **dict.fromkeys(("worker", "workers", "trainer", "trainers", "world", "nodes", "nnodes", "np", "ntasks"), "worker"),
    **dict.fromkeys(("ps", "pserver", "pservers", "server", "servers"), "ps"),
    **dict.fromkeys(("thread", "threads", "cpu", "cpus", "core", "cores"), "cores"),
    **dict.fromkeys(("gpu", "gpus", "nproc"), "gpus"),
}
_FILLERS = frozenset(
    (
        "num",
        "n",
        "nr",
        "number",
        "of",
        "count",
        "total",
        "size",
        "replicas",
        "per",
        "node",
        "job",
        "paddle",
        "dmlc",
        "tf",
        "intraop",
        "interop",
        "parallelism",
        "blis",
        "torch",
        "omp",
        "mkl",
        "openblas",
        "numexpr",
        "veclib",
    )
)
_SHELL_VARIABLE = re.compile(r"(?<![\w-])([A-Z][A-Z0-9_]*)=['\"]?(\d{1,9})\b")
_YAML_VARIABLE = re.compile(r"^\s*['\"]?([A-Z][A-Z0-9_]*)['\"]?:\s*['\"]?(\d{1,9})\b", re.MULTILINE)
_LAUNCHED = re.compile(r"(\b(?:srun|mpirun|mpiexec)\b[^\n|;&:]*?\s)-n[= ]?(?=\d)")
_OPTION = re.compile(r"(?<!\S)(--?[A-Za-z][\w-]*)[= ](\d{1,9})\b")


class Change(NamedTuple):
    """What became of the sizes of one group of replicas."""

    role: Role
    slot: Slot
    before: Sizes
    after: Sizes


class _Repeat(NamedTuple):
    """A name that is written beside a number; an option's is less certain than a variable's."""

    name: str
    number: int
    option: bool


def repeated(document: Node, changes: Sequence[Change]) -> Iterator[str]:
    """Sentences on what repeats, in a whole object, a size that is now another one."""
    of_container = {id(change.slot.container): change for change in changes}
    for where, container in _containers(document, ""):
        change = of_container.get(id(container))
        yield from _sentences(change.slot.field if change else where, _in_container(container), changes, change)
    for key, value in _texts(document):
        found = [*in_text(value), *(_Repeat(*_number(m), option=False) for m in _YAML_VARIABLE.finditer(value))]
        yield from _sentences(key, found, changes, None)


def repeated_in_script(name: str, text: str, changes: Sequence[Change]) -> Iterator[str]:
    """Sentences on what repeats, in the lines of a script, a size that is now another one."""
    launched = _LAUNCHED.sub(r"\1--ntasks ", text)
    yield from _sentences(name, in_text(launched), changes, changes[0] if len(changes) == 1 else None)


def in_text(text: str) -> list[_Repeat]:
    """Variables and options of a command line."""
    return [
        *(_Repeat(*_number(found), option=False) for found in _SHELL_VARIABLE.finditer(text)),
        *(_Repeat(*_number(found), option=True) for found in _OPTION.finditer(text)),
    ]


def _number(found: re.Match[str]) -> tuple[str, int]:
    return found[1], int(found[2])


def _in_container(container: Node) -> list[_Repeat]:
    words = [str(word) for key in ("command", "args") for word in _listed(container.get(key))]
    found = in_text(" ".join(words))
    for variable in _listed(container.get("env")):
        value = str(variable.get("value", "")) if isinstance(variable, Mapping) else ""
        if value.isascii() and value.isdecimal() and len(value) < 10:
            found.append(_Repeat(str(variable.get("name")), int(value), option=False))
    return found


def _sentences(where: str, found: Sequence[_Repeat], changes: Sequence[Change], own: Change | None) -> Iterator[str]:
    for repeat in found:
        meaning = _meaning(repeat.name)
        if meaning in ("worker", "ps"):
            of_role = [change for change in changes if change.role == meaning]
            before = sum(change.before.replicas or 0 for change in of_role)
            after = sum(change.after.replicas or 0 for change in of_role)
            may_be = _totals(changes, after) if meaning == "worker" else {after}
            stale = repeat.number == before if repeat.option else True
            if of_role and stale and repeat.number not in may_be:
                noun = "workers" if meaning == "worker" else "PS"
                yield f"{where}: {repeat.name} says {repeat.number}; {noun} are now {after}."
        elif meaning == "cores" and own and own.after.cpu:
            now = whole(own.after.cpu)
            stale = own.before.cpu is not None and repeat.number == whole(own.before.cpu)
            if repeat.number != now and (stale or repeat.number > now):
                yield f"{where}: {repeat.name} says {repeat.number}; the cores of each are now {own.after.cpu:g}."
        elif meaning == "gpus" and own and own.before.gpus == repeat.number != own.after.gpus:
            yield f"{where}: {repeat.name} says {repeat.number}; the GPUs of each are now {own.after.gpus}."


def _totals(changes: Sequence[Change], workers: int) -> set[int]:
    """What a number of workers may be counted as: with a chief, with PS, by their GPUs."""
    counts = {role: sum(c.after.replicas or 0 for c in changes if c.role == role) for role in ("chief", "ps")}
    gpus = {change.after.gpus for change in changes if change.role == "worker" and change.after.gpus}
    plain = {workers, workers + counts["chief"], workers + sum(counts.values())}
    return plain | {workers * each for each in gpus}


def _meaning(name: str) -> _Meaning | None:
    words = [word for word in re.split(r"[-_]+", name.lower()) if word]
    told = [_WORDS[word] for word in words if word in _WORDS]
    rest = [word for word in words if word not in _WORDS and word not in _FILLERS]
    return told[0] if len(told) == 1 and not rest else None


def _containers(found: Any, where: str) -> Iterator[tuple[str, Node]]:
    if isinstance(found, Mapping):
        for key, value in found.items():
            inner = f"{where}.{key}" if where else str(key)
            if key in ("containers", "initContainers"):
                for each in _listed(value):
                    if isinstance(each, dict):
                        yield f"{inner}[{each.get('name')}]", each
            else:
                yield from _containers(value, inner)
    elif isinstance(found, list):
        for i, each in enumerate(found):
            yield from _containers(each, f"{where}[{i}]")


def _texts(document: Node) -> Iterator[tuple[str, str]]:
    """Command lines and environments that are one text."""
    spec = document.get("spec")
    for key in ("entrypoint", "runtimeEnvYAML"):
        if isinstance(spec, Mapping) and isinstance(spec.get(key), str):
            yield f"spec.{key}", str(spec[key])


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else []
