"""Scripts for `sbatch`: a heterogeneous job with a component for each group of replicas."""

from __future__ import annotations

import re
from typing import NamedTuple

from sizewright.errors import InputError
from sizewright.executors.slots import BATCH_SIZE_ENV, Sizes
from sizewright.executors.slurm_sizes import (
    gpu_option,
    mib_per_core,
    read_count,
    read_gpus,
    read_memory,
    whole_cores,
)
from sizewright.spec import Group
from sizewright.spec._text_files import check_rendered

_MAGIC = re.compile(r"#SBATCH|#SLURM")
_COMPONENT = re.compile(r"hetjob|packjob", re.IGNORECASE)
_COMES_FIRST = re.compile(r"#SBATCH\s*(hetjob|packjob)(\s|$)", re.IGNORECASE)
_MISTAKEN = re.compile(r"[ \t]+#SBATCH\b|#[ \t]*sbatch[ \t]+-")
"""Lines that look like directives and that sbatch takes for comments."""
_BLANKS = " \t\v\f\r"
_SHORT = {
    "-n": "--ntasks", "-c": "--cpus-per-task", "-J": "--job-name", "-N": "--nodes", "-G": "--gpus", "-o": "--output",
    "-q": "--qos", "-a": "--array",
}  # fmt: skip
_OF_NODES = ("--mem", "--nodes", "--ntasks-per-node", "--mem-per-gpu", "--gpus", "--gpus-per-node", "--ntasks-per-core",
    "--gres", "--gpus-per-socket",
)  # fmt: skip
"""Sizes that say nothing of one replica."""
_LONG = ("--ntasks", "--cpus-per-task", "--cpus-per-gpu", "--mem-per-cpu", "--gpus-per-task", "--ntasks-per-socket",
    "--ntasks-per-gpu", *_OF_NODES,
)  # fmt: skip
_BATCH_SIZE = re.compile(rf"(\s*export\s+{BATCH_SIZE_ENV}=['\"]?)([^'\"\s;#]*)(.*)")


class _Word(NamedTuple):
    """One argument of a directive: without its quotes, and where it stands in the line."""

    text: str
    start: int
    stop: int


class _Option(NamedTuple):
    """One option of a directive: its line, its value (None: it has none), and the part of the line that a new value
    replaces, with `before` in front of it."""

    line: int
    value: str | None
    at: slice
    before: str = ""


class SlurmScript:
    """A script's text, and the sizes in it; whatever else it holds stays as it is.

    Directives are found where sbatch finds them: above the first line that is neither blank nor a comment, whatever
    blanks stand before a comment. Raises InputError for what is no script, and for one whose directives sbatch does
    not reach.
    """

    def __init__(self, text: str, name: str = "The script") -> None:
        if not text.startswith("#!"):
            raise InputError(f"{name} is not a script: its first line is not such as #!/bin/bash.", "Begin it so.")
        if "\r\n" in text or "\0" in text:
            raise InputError(f"{name} has DOS line breaks or NULs, which sbatch refuses.", "Save it with LF alone.")
        self._lines, self._name = text.split("\n"), name
        self._find()
        if len(self._components) > 1 and any("--array" in options for options in self._components):
            raise InputError(
                f"{name} has --array and hetjob, and Slurm takes no job arrays of heterogeneous jobs.",
                "Take --array out, and submit the script once for each of its jobs.",
            )
        if self.unread and not any(self._components):
            raise InputError(f"{name}: {self._unread_because()}.", "Move the #SBATCH lines above it.")

    @property
    def text(self) -> str:
        """With what was written."""
        return "\n".join(self._lines)

    @property
    def body(self) -> str:
        """What the script does: the lines from its first command on."""
        return "\n".join(self._lines[self._command or 0 :] if self._command is not None else [])

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

    def sizes(self, component: int) -> Sizes:
        """Whatever it says of a component's sizes."""
        try:
            read = self.read(component)
        except InputError:
            return Sizes(None, None, None, 0)
        return Sizes(read.replicas, read.cpu, read.memory_bytes or None, read.gpu.count if read.gpu else 0)

    def value(self, component: int, option: str) -> str | None:
        """Of an option, without quotes; None where it has none."""
        at = self._components[component].get(option)
        return at.value if at else None

    def set(self, component: int, option: str, value: str) -> None:
        """Write an option where it stands, else behind the last of its component. Raises InputError for a value that
        would be more than one line."""
        if len(value.splitlines()) > 1 or "\n" in value:
            raise InputError(f"{self._field(component, option)} cannot have line breaks.", "Take them out of the plan.")
        at = self._components[component].get(option)
        if at is None or at.value is None:
            self._lines.insert(self._ends[component] or 1, f"#SBATCH {option}={value}")
        elif value not in (at.value, self._lines[at.line][at.at]):
            line = self._lines[at.line]
            self._lines[at.line] = line[: at.at.start] + at.before + value + line[at.at.stop :]
        self._find()

    @property
    def unread(self) -> list[int]:
        """Numbers of the lines that look like directives and that sbatch does not read."""
        below = self._command if self._command is not None else len(self._lines)
        return [
            number + 1
            for number, line in enumerate(self._lines)
            if _MISTAKEN.match(line) or (number > below and _MAGIC.match(line))
        ]

    def remarks(self) -> list[str]:
        """Sentences on directives that sbatch does not read."""
        above = [n for n in self.unread if self._command is None or n <= self._command]
        said = [f"{self._name}: {self._unread_because()}."] if len(above) < len(self.unread) else []
        array = self.value(0, "--array")
        many = [f"{self._name}: --array={array} starts a job of these sizes for each index; the plan counts one."]
        within = [
            f"{self._name}: sbatch takes line {number + 1} for a separator of components, since it holds '{found[0]}'."
            for number, line in enumerate(self._lines[: self._command])
            if _MAGIC.match(line) and (found := _COMPONENT.search(line)) and not _COMES_FIRST.match(line)
        ]
        comments = [f"{self._name}: {_mistaken(above)}."] if above else []
        return [*comments, *said, *(many if array else []), *within]

    def _unread_because(self) -> str:
        below = [n for n in self.unread if self._command is not None and n > self._command]
        if below and self._command is not None:
            first = self._lines[self._command].strip()
            return (
                f"line {self._command + 1} ({first:.40}) is a command, and sbatch reads no #SBATCH line below it "
                f"({_numbered(below)})"
            )
        return _mistaken(self.unread)

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
        """Where its options are, as sbatch looks for them."""
        self._components: list[dict[str, _Option]] = [{}]
        self._ends = [0]
        """Of each component: the line behind its last directive."""
        self._command: int | None = None
        """The first command, below which sbatch reads nothing."""
        for number, line in enumerate(self._lines):
            if _MAGIC.match(line):
                self._directive(number, line)
            elif (text := line.strip(_BLANKS)) and not text.startswith("#"):
                self._command = number
                return

    def _directive(self, number: int, line: str) -> None:
        if found := _COMPONENT.search(line):
            self._components.append({})
            self._ends.append(0)
            line = line[: found.start()] + " " * len(found[0]) + line[found.end() :]
        self._ends[-1] = number + 1
        words, options = self._words(number, line), self._components[-1]
        while words:
            word = words.pop(0)
            if not word.text.startswith("-"):
                raise self._malformed(number, f"'{word.text:.40}' is no option")
            name, equals, value = word.text.partition("=")
            if name[:2] in _SHORT and not name.startswith("--"):  # -n4, -n 4
                name, at = _SHORT[name[:2]], word.start + 2
                if len(word.text) > 2:
                    self._check(number, name, word.text[2:])
                    options[name] = _Option(number, word.text[2:], slice(at, word.stop))
                    continue
            elif equals:
                name = _full(name)
                at = line.index("=", word.start) + 1
                quoted = line[word.start : at] != word.text[: at - word.start]
                begin = word.start if quoted else at
                self._check(number, name, value)
                options[name] = _Option(number, value, slice(begin, word.stop), f"{name}=" if quoted else "")
                continue
            name = _full(name)
            if words and not words[0].text.startswith("-"):
                follows = words.pop(0)
                self._check(number, name, follows.text)
                options[name] = _Option(number, follows.text, slice(follows.start, follows.stop))
            else:
                self._check(number, name, None)
                options[name] = _Option(number, None, slice(word.stop, word.stop))

    def _check(self, number: int, name: str, value: str | None) -> None:
        """Raises InputError for an option that sbatch refuses as it is written."""
        check_rendered(value, f"{self._name}, line {number + 1},")
        if name in _LONG and not value:
            raise self._malformed(number, f"{name} has no value")
        if value and value.startswith("="):
            raise self._malformed(number, f"{name} has the value '{value}'")

    def _malformed(self, number: int, what: str) -> InputError:
        return InputError(
            f"{self._name}: in line {number + 1} {what}, and sbatch refuses it ({self._lines[number].strip():.60}).",
            "Write such as #SBATCH --ntasks=4 or -n 4: no spaces around =, and # before a remark.",
        )

    def _words(self, number: int, line: str) -> list[_Word]:
        """Arguments of a directive: quotes group, a backslash escapes, and # begins a comment, even within a word."""
        words: list[_Word] = []
        at, start, text, quote = len("#SBATCH" if line.startswith("#SB") else "#SLURM"), -1, "", ""
        while at < len(line) and (quote or line[at] != "#"):
            character = line[at]
            if not quote and character in _BLANKS:
                words += [_Word(text, start, at)] if start >= 0 else []
                start, text = -1, ""
                at += 1
                continue
            start = at if start < 0 else start
            if character == "\\" and at + 1 < len(line):
                at += 1
                text += line[at]
            elif character == quote:
                quote = ""
            elif not quote and character in "\"'":
                quote = character
            else:
                text += character
            at += 1
        if quote:
            raise InputError(
                f"{self._name}: line {number + 1} has no second {quote}, which sbatch refuses.", "Close it."
            )
        return [*words, _Word(text, start, at)] if start >= 0 else words

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


def _full(name: str) -> str:
    """The option that sbatch takes an abbreviation for."""
    found = [option for option in (*_LONG, "--array") if option.startswith(name)]
    return found[0] if len(found) == 1 and name not in _LONG and len(name) > len("--a") else name


def _mistaken(lines: list[int]) -> str:
    return f"sbatch takes {_numbered(lines)} for a comment: #SBATCH begins a line, in capital letters"


def _numbered(lines: list[int]) -> str:
    """`line 3`, `lines 3 and 4`, `lines 3, 4 and 5`."""
    *others, last = map(str, lines)
    return f"lines {', '.join(others)} and {last}" if others else f"line {last}"
