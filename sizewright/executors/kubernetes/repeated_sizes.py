"""Variables and options that repeat a size in a user's manifest or script (`WORLD_SIZE=4`, `--nproc_per_node=8`).

Only the code that reads them knows what they mean, so they are kept and reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from sizewright.executors.kubernetes.container_spec import ContainerSizes, ContainerSpec, YamlMap, round_up_cores
from sizewright.spec import Role

_Meaning = Literal["worker", "ps", "cores", "gpus"]
_WORDS: dict[str, _Meaning] = {
    **dict.fromkeys(("worker", "workers", "trainer", "trainers", "world", "nodes", "nnodes", "np", "ntasks"), "worker"),
    **dict.fromkeys(("ps", "pserver", "pservers", "server", "servers"), "ps"),
    **dict.fromkeys(("thread", "threads", "cpu", "cpus", "core", "cores"), "cores"),
    **dict.fromkeys(("gpu", "gpus", "nproc"), "gpus"),
}
_FILLERS = frozenset(
    [
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
    ]
)
COUNTS: tuple[_Meaning, ...] = ("worker", "ps", "gpus")
"""The sizes without which replicas do not find each other."""
_SHELL_VARIABLE = re.compile(r"(?<![\w-])([A-Z][A-Z0-9_]*)=['\"]?(\d{1,9})\b")
_YAML_VARIABLE = re.compile(r"^\s*['\"]?([A-Z][A-Z0-9_]*)['\"]?:\s*['\"]?(\d{1,9})\b", re.MULTILINE)
_LAUNCHER_TASKS = re.compile(r"(\b(?:srun|mpirun|mpiexec)\b[^\n|;&:]*?\s)-n[= ]?(?=\d)")
_OPTION = re.compile(r"(?<!\S)(--?[A-Za-z][\w-]*)[= ](\d{1,9})\b")


class SizeChange(NamedTuple):
    """The sizes of one group of replicas before and after a plan was written into a manifest."""

    role: Role
    spec: ContainerSpec
    before: ContainerSizes
    after: ContainerSizes

    def uncounted(self) -> SizeChange:
        """Return the change of a replica that another change counts."""
        return self._replace(before=self.before._replace(replicas=0), after=self.after._replace(replicas=0))


class _Setting(NamedTuple):
    """A variable or an option with a number as its value. An option's meaning is less certain than a variable's."""

    name: str
    number: int
    is_option: bool


def repeated(
    document: YamlMap, changes: Sequence[SizeChange], of: Sequence[_Meaning] = (*COUNTS, "cores")
) -> Iterator[str]:
    """Yield a sentence for each setting of an object that repeats a size which has changed; `of` are such sizes."""
    change_of = {id(change.spec.container): change for change in changes}
    without_pod = [(change.spec.field, change.spec.container) for change in changes if not change.spec.has_pod]
    for field, container in [*without_pod, *_containers(document, "")]:
        change = change_of.get(id(container))
        settings = [each for each in _container_settings(container) if _meaning(each.name) in of]
        yield from _sentences(change.spec.field if change else field, settings, changes, change)
    spec = document.get("spec")
    for key in ("entrypoint", "runtimeEnvYAML"):  # command lines and environments that are one text
        if isinstance(spec, Mapping) and isinstance(spec.get(key), str):
            text = str(spec[key])
            variables = [_Setting(match[1], int(match[2]), False) for match in _YAML_VARIABLE.finditer(text)]
            settings = [each for each in (*_text_settings(text), *variables) if _meaning(each.name) in of]
            yield from _sentences(f"spec.{key}", settings, changes, None)


def repeated_in_script(name: str, text: str, changes: Sequence[SizeChange]) -> Iterator[str]:
    """Yield a sentence for each setting in the lines of a script that repeats a size which has changed."""
    text = _LAUNCHER_TASKS.sub(r"\1--ntasks ", text)
    yield from _sentences(name, _text_settings(text), changes, changes[0] if len(changes) == 1 else None)


def _text_settings(text: str) -> list[_Setting]:
    return [
        *(_Setting(match[1], int(match[2]), is_option=False) for match in _SHELL_VARIABLE.finditer(text)),
        *(_Setting(match[1], int(match[2]), is_option=True) for match in _OPTION.finditer(text)),
    ]


def _container_settings(container: YamlMap) -> list[_Setting]:
    words = [str(word) for key in ("command", "args") for word in _as_list(container.get(key))]
    settings = _text_settings(" ".join(words))
    for variable in _as_list(container.get("env")):
        value = str(variable.get("value", "")) if isinstance(variable, Mapping) else ""
        if value.isascii() and value.isdecimal() and len(value) < 10:
            settings.append(_Setting(str(variable.get("name")), int(value), is_option=False))
    return settings


def _sentences(
    field: str, settings: Sequence[_Setting], changes: Sequence[SizeChange], change: SizeChange | None
) -> Iterator[str]:
    """Yield a sentence for each stale setting; `change` is that of the container which has these settings."""
    for setting in settings:
        meaning = _meaning(setting.name)
        if meaning in ("worker", "ps"):
            role_changes = [each for each in changes if each.role == meaning]
            before = sum(each.before.replicas or 0 for each in role_changes)
            after = sum(each.after.replicas or 0 for each in role_changes)
            valid = _worker_totals(changes, after) if meaning == "worker" else {after}
            is_stale = setting.number == before if setting.is_option else True
            if role_changes and is_stale and setting.number not in valid:
                noun = "workers" if meaning == "worker" else "PS"
                yield f"{field}: {setting.name} says {setting.number}; {noun} are now {after}."
        elif meaning == "cores" and change and change.after.cpu:
            cores = round_up_cores(change.after.cpu)
            is_stale = change.before.cpu is not None and setting.number == round_up_cores(change.before.cpu)
            if setting.number != cores and (is_stale or setting.number > cores):
                yield f"{field}: {setting.name} says {setting.number}; the cores of each are now {change.after.cpu:g}."
        elif meaning == "gpus" and change and change.before.gpus == setting.number != change.after.gpus:
            yield f"{field}: {setting.name} says {setting.number}; the GPUs of each are now {change.after.gpus}."


def _worker_totals(changes: Sequence[SizeChange], workers: int) -> set[int]:
    """Return the numbers that may stand for so many workers: with a chief, with PS, or multiplied by their GPUs."""
    chiefs, ps = (sum(each.after.replicas or 0 for each in changes if each.role == role) for role in ("chief", "ps"))
    gpus = {each.after.gpus for each in changes if each.role == "worker" and each.after.gpus}
    return {workers, workers + chiefs, workers + chiefs + ps} | {workers * count for count in gpus}


def _meaning(name: str) -> _Meaning | None:
    """Return the size that a variable or option of this name states, if exactly one of its words names a size."""
    words = [word for word in re.split(r"[-_]+", name.lower()) if word]
    meanings = [_WORDS[word] for word in words if word in _WORDS]
    unknown = [word for word in words if word not in _WORDS and word not in _FILLERS]
    return meanings[0] if len(meanings) == 1 and not unknown else None


def _containers(value: Any, path: str) -> Iterator[tuple[str, YamlMap]]:
    """Yield all containers anywhere in a document, each with its path."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            inner_path = f"{path}.{key}" if path else str(key)
            if key in ("containers", "initContainers"):
                for container in _as_list(inner):
                    if isinstance(container, dict):
                        yield f"{inner_path}[{container.get('name')}]", container
            else:
                yield from _containers(inner, inner_path)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _containers(inner, f"{path}[{i}]")


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else []
