"""Scripts for `sbatch`: a heterogeneous job with a component for each group of replicas."""

from __future__ import annotations

import re
from typing import NamedTuple

from sizewright.errors import InputError
from sizewright.executors.slots import BATCH_SIZE_ENV
from sizewright.executors.slurm_sizes import (
    gpu_option,
    mib_per_core,
    read_count,
    read_gpus,
    read_memory,
    whole_cores,
)
from sizewright.spec import Group

_DIRECTIVE = re.compile(r"#SBATCH[ \t]+(.*)")
# A word may have quoted parts; a comment ends the options.
_WORD = re.compile(r"(?:[^\s\"'#]|\"[^\"]*\"|'[^']*'|(?<=\S)#)+")
_SHORT = {
    "-n": "--ntasks", "-c": "--cpus-per-task", "-J": "--job-name", "-N": "--nodes", "-G": "--gpus", "-o": "--output",
}  # fmt: skip
_OF_NODES = ("--mem", "--nodes", "--ntasks-per-node", "--mem-per-gpu", "--gpus", "--gpus-per-node", "--ntasks-per-core",
    "--gres", "--gpus-per-socket",
)  # fmt: skip
"""Sizes that say nothing of one replica."""
_BATCH_SIZE = re.compile(rf"(\s*export\s+{BATCH_SIZE_ENV}=['\"]?)([^'\"\s;#]*)(.*)")


class _Option(NamedTuple):
    """One option of a directive: its line, and where in it the value stands (None: it has none)."""

    line: int
    value: slice | None


class SlurmScript:
    """A script's text, and the sizes in it; whatever else it holds stays as it is.

    Raises InputError for what is no script.
    """

    def __init__(self, text: str, name: str = "The script") -> None:
        if not text.startswith("#!"):
            raise InputError(f"{name} is not a script: its first line is not such as #!/bin/bash.", "Begin it so.")
        if "\r\n" in text or "\0" in text:
            raise InputError(f"{name} has DOS line breaks or NULs, which sbatch refuses.", "Save it with LF alone.")
        self._lines, self._name = text.split("\n"), name
        self._find()

    @property
    def text(self) -> str:
        """With what was written."""
        return "\n".join(self._lines)

    @property
    def components(self) -> int:
        """How many there are."""
        return len(self._components)

    def write(self, component: int, group: Group) -> None:
        """Sizes of a group, in whole cores; memory that is not known (0) stays as it is.

        Raises InputError for a script that tells sizes by node.
        """
        self._refuse_nodes(component)
        self.set(component, "--ntasks", str(group.replicas))
        self.set(component, "--cpus-per-task", str(whole_cores(group)))
        if group.memory_bytes:
            self._set_memory(component, mib_per_core(group))
        if group.gpu:
            self.set(component, "--gpus-per-task", gpu_option(group.gpu))

    def read(self, component: int) -> Group:
        """The sizes of a component. Raises InputError that names the option of what is no size."""
        self._refuse_nodes(component)
        cores = read_count(
            self.value(component, "--cpus-per-task") or "1", self._field(component, "--cpus-per-task"), 1
        )
        memory = self.value(component, "--mem-per-cpu") or "0"
        gpus = self.value(component, "--gpus-per-task") or "0"
        return Group(
            replicas=read_count(self.value(component, "--ntasks") or "1", self._field(component, "--ntasks"), 1),
            cpu=float(cores),
            memory_bytes=read_memory(memory, self._field(component, "--mem-per-cpu")) * cores,
            gpu=read_gpus(gpus, self._field(component, "--gpus-per-task")),
        )

    def value(self, component: int, option: str) -> str | None:
        """Of an option, as it is written; None where it has none."""
        at = self._components[component].get(option)
        return self._lines[at.line][at.value] if at and at.value else None

    def set(self, component: int, option: str, value: str) -> None:
        """Write an option where it stands, else behind the last of its component. Raises InputError for a value that
        would be more than one line."""
        if len(value.splitlines()) > 1 or "\n" in value:
            raise InputError(f"{self._field(component, option)} cannot have line breaks.", "Take them out of the plan.")
        at = self._components[component].get(option)
        if at is None or at.value is None:
            self._lines.insert(self._ends[component] or 1, f"#SBATCH {option}={value}")
        elif self._lines[at.line][at.value] != value:
            line = self._lines[at.line]
            self._lines[at.line] = line[: at.value.start] + value + line[at.value.stop :]
        self._find()

    @property
    def batch_size(self) -> int | None:
        """That it exports, where it does. Raises InputError for what is no whole number."""
        for line in self._lines:
            if found := _BATCH_SIZE.fullmatch(line):
                return read_count(found[2], f"{self._name}: {BATCH_SIZE_ENV}", 1)
        return None

    def set_batch_size(self, batch_size: int) -> None:
        """Where it exports one."""
        for number, line in enumerate(self._lines):
            if found := _BATCH_SIZE.fullmatch(line):
                self._lines[number] = f"{found[1]}{batch_size}{found[3]}"

    def _find(self) -> None:
        """Where its options are."""
        self._components: list[dict[str, _Option]] = [{}]
        self._ends = [0]
        """Of each component: the line behind its last directive."""
        for number, line in enumerate(self._lines):
            if line.strip() and not line.startswith("#"):
                break  # Slurm reads no further
            if found := _DIRECTIVE.fullmatch(line):
                self._directive(number, found)

    def _directive(self, number: int, found: re.Match[str]) -> None:
        words = _words(found)
        if words and words[0][0] in ("hetjob", "packjob"):
            self._components.append({})
            self._ends.append(number + 1)
            return
        self._ends[-1] = number + 1
        options, i = self._components[-1], 0
        while i < len(words):
            word, at = words[i]
            name, equals, _ = word.partition("=")
            i += 1
            if name[:2] in _SHORT and len(name) > 2:  # -n4
                options[_SHORT[name[:2]]] = _Option(number, slice(at + 2, at + len(word)))
            elif equals:
                options[name] = _Option(number, slice(at + len(name) + 1, at + len(word)))
            elif i < len(words) and not words[i][0].startswith("-"):
                follows, begin = words[i]
                options[_SHORT.get(name, name)] = _Option(number, slice(begin, begin + len(follows)))
                i += 1
            else:
                options[_SHORT.get(name, name)] = _Option(number, None)

    def _set_memory(self, component: int, mib: int) -> None:
        """An amount that says the same in another unit (`1G` for `1024M`) is left."""
        before = self.value(component, "--mem-per-cpu")
        try:
            same = before is not None and read_memory(before, "") == mib << 20
        except InputError:  # it is mended
            same = False
        if not same:
            self.set(component, "--mem-per-cpu", f"{mib}M")

    def _refuse_nodes(self, component: int) -> None:
        for option in _OF_NODES:
            if option in self._components[component]:
                raise InputError(
                    f"{self._field(component, option)} sizes nodes, and plans size replicas.",
                    "Write --ntasks, --cpus-per-task, --mem-per-cpu and --gpus-per-task instead.",
                )

    def _field(self, component: int, option: str) -> str:
        of = f", component {component + 1}" if self.components > 1 else ""
        return f"{self._name}{of}: {option}"


def _words(found: re.Match[str]) -> list[tuple[str, int]]:
    """Words of a directive, each with where it begins in the line, up to a comment."""
    words, at = [], found.start(1)
    for word in re.finditer(rf"#|{_WORD.pattern}", found[1]):
        if word.group().startswith("#"):
            break
        words.append((word.group(), at + word.start()))
    return words
