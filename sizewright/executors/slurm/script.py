"""Scripts for `sbatch`: a heterogeneous job with a component for each group of replicas."""

from __future__ import annotations

import re
from typing import NamedTuple

from sizewright.errors import InputError
from sizewright.executors.kubernetes.container_spec import BATCH_SIZE_ENV, ContainerSizes
from sizewright.executors.slurm.sizes import (
    gpu_option,
    mib_per_core,
    read_count,
    read_gpus,
    read_memory,
    whole_cores,
)
from sizewright.spec import Group
from sizewright.spec._text_files import check_rendered

_DIRECTIVE = re.compile(r"#SBATCH|#SLURM")
_SEPARATOR_WORD = re.compile(r"hetjob|packjob", re.IGNORECASE)
_SEPARATOR = re.compile(r"#SBATCH\s*(hetjob|packjob)(\s|$)", re.IGNORECASE)
_IGNORED_DIRECTIVE = re.compile(r"[ \t]+#SBATCH\b|#[ \t]*sbatch[ \t]+-")
"""Lines that look like directives but are comments to sbatch."""
_BLANKS = " \t\v\f\r"
_SHORT_OPTIONS = {
    "-n": "--ntasks",
    "-c": "--cpus-per-task",
    "-J": "--job-name",
    "-N": "--nodes",
    "-G": "--gpus",
    "-o": "--output",
    "-q": "--qos",
    "-a": "--array",
}
_NODE_SIZE_OPTIONS = (
    "--mem",
    "--nodes",
    "--ntasks-per-node",
    "--mem-per-gpu",
    "--gpus",
    "--gpus-per-node",
    "--ntasks-per-core",
    "--gres",
    "--gpus-per-socket",
)
"""Options that do not size a single replica."""
_SIZE_OPTIONS = (
    "--ntasks",
    "--cpus-per-task",
    "--cpus-per-gpu",
    "--mem-per-cpu",
    "--gpus-per-task",
    "--ntasks-per-socket",
    "--ntasks-per-gpu",
    *_NODE_SIZE_OPTIONS,
)
_BATCH_SIZE_LINE = re.compile(rf"(\s*export\s+{BATCH_SIZE_ENV}=['\"]?)([^'\"\s;#]*)(.*)")


class _Word(NamedTuple):
    """One argument of a directive without its quotes, and its position in the line."""

    text: str
    start: int
    stop: int


class _Option(NamedTuple):
    """One option of a directive."""

    line: int
    value: str | None
    """None for an option without a value."""
    span: slice
    """The part of the line that a new value replaces."""
    prefix: str = ""
    """The text that goes before the new value."""


class SlurmScript:
    """A script whose sizes can be read and written. Everything else in it stays unchanged.

    Directives are read where sbatch reads them: above the first line that is neither blank nor a comment, which may be
    indented. Raises InputError if the text is not a script, or all its directives are below its first command.
    """

    def __init__(self, text: str, name: str = "The script") -> None:
        if not text.startswith("#!"):
            raise InputError(f"{name} is not a script: its first line must be such as #!/bin/bash.", "Add it.")
        if "\r\n" in text or "\0" in text:
            raise InputError(
                f"{name} has DOS line breaks or NULs, which sbatch refuses.", "Save it with LF line breaks."
            )
        self._lines = text.split("\n")
        self._name = name
        self._parse()
        if len(self._components) > 1 and any("--array" in options for options in self._components):
            raise InputError(
                f"{name} has --array and hetjob, but Slurm has no job arrays of heterogeneous jobs.",
                "Remove --array, and submit the script once for each of its jobs.",
            )
        if self.ignored_directives and not any(self._components):
            raise InputError(f"{name}: {self._ignored_message()}.", "Move the #SBATCH lines above it.")

    @property
    def text(self) -> str:
        """The text with all changes."""
        return "\n".join(self._lines)

    @property
    def body(self) -> str:
        """The lines from the first command on."""
        return "\n".join(self._lines[self._command :]) if self._command is not None else ""

    @property
    def components(self) -> int:
        """The number of components."""
        return len(self._components)

    def write(self, component: int, group: Group) -> None:
        """Write the size of a group into a component, in whole cores. Unknown memory (0) stays unchanged.

        Raises InputError if the script sizes nodes instead of tasks.
        """
        self._check_no_node_sizes(component)
        self.set(component, "--ntasks", str(group.replicas))
        self.set(component, "--cpus-per-task", str(whole_cores(group)))
        if group.memory_bytes:
            self._set_memory(component, mib_per_core(group))
        if group.gpu:
            self.set(component, "--gpus-per-task", gpu_option(group.gpu))

    def read(self, component: int) -> Group:
        """Return the size of a component. Raises InputError with the option whose value is invalid."""
        self._check_no_node_sizes(component)

        def option(name: str, default: str) -> tuple[str, str]:
            return self.value(component, name) or default, self._field(component, name)

        cores = read_count(*option("--cpus-per-task", "1"), minimum=1)
        return Group(
            replicas=read_count(*option("--ntasks", "1"), minimum=1),
            cpu=float(cores),
            memory_bytes=read_memory(*option("--mem-per-cpu", "0")) * cores,
            gpu=read_gpus(*option("--gpus-per-task", "0")),
        )

    def sizes(self, component: int) -> ContainerSizes:
        """Return the sizes that a component states; None for all of them if one is invalid."""
        try:
            group = self.read(component)
        except InputError:
            return ContainerSizes(None, None, None, 0)
        gpus = group.gpu.count if group.gpu else 0
        return ContainerSizes(group.replicas, group.cpu, group.memory_bytes or None, gpus)

    def value(self, component: int, option: str) -> str | None:
        """Return the value of an option without quotes; None if the component does not set it."""
        match = self._components[component].get(option)
        return match.value if match else None

    def set(self, component: int, option: str, value: str) -> None:
        """Change an option, or add it after the last directive of its component.

        Raises InputError if the value has line breaks.
        """
        if len(value.splitlines()) > 1 or "\n" in value:
            raise InputError(f"{self._field(component, option)} cannot have line breaks.", "Remove them from the plan.")
        current = self._components[component].get(option)
        if current is None or current.value is None:
            self._lines.insert(self._ends[component] or 1, f"#SBATCH {option}={value}")
        else:
            line = self._lines[current.line]
            if value not in (current.value, line[current.span]):
                changed = line[: current.span.start] + current.prefix + value + line[current.span.stop :]
                self._lines[current.line] = changed
        self._parse()

    @property
    def ignored_directives(self) -> list[int]:
        """The numbers of the lines that look like directives but that sbatch does not read."""
        command = self._command if self._command is not None else len(self._lines)
        return [
            number + 1
            for number, line in enumerate(self._lines)
            if _IGNORED_DIRECTIVE.match(line) or (number > command and _DIRECTIVE.match(line))
        ]

    def remarks(self) -> list[str]:
        """Return sentences on directives that a person should check."""
        ignored = self.ignored_directives
        above = [number for number in ignored if self._command is None or number <= self._command]
        remarks = []
        if above:
            remarks.append(f"{self._name}: {_comment_message(above)}.")
        if len(above) < len(ignored):
            remarks.append(f"{self._name}: {self._ignored_message()}.")
        if array := self.value(0, "--array"):
            remarks.append(f"{self._name}: --array={array} starts a job of these sizes per index; the plan counts one.")
        for number, line in enumerate(self._lines[: self._command]):
            word = _SEPARATOR_WORD.search(line)
            if word and _DIRECTIVE.match(line) and not _SEPARATOR.match(line):
                remarks.append(
                    f"{self._name}: sbatch takes line {number + 1} for a separator of components, "
                    f"since it has '{word[0]}'."
                )
        return remarks

    def _ignored_message(self) -> str:
        ignored = self.ignored_directives
        below = [number for number in ignored if self._command is not None and number > self._command]
        if below and self._command is not None:
            command = self._lines[self._command].strip()
            return (
                f"line {self._command + 1} ({command:.40}) is a command, and sbatch reads no #SBATCH line below it "
                f"({_line_numbers(below)})"
            )
        return _comment_message(ignored)

    @property
    def batch_size(self) -> int | None:
        """The batch size that the script exports, if it does. Raises InputError if it is not a whole number."""
        for line in self._lines:
            if match := _BATCH_SIZE_LINE.fullmatch(line):
                return read_count(match[2], f"{self._name}: {BATCH_SIZE_ENV}", 1)
        return None

    def set_batch_size(self, batch_size: int) -> None:
        """Change the batch size that the script exports."""
        for number, line in enumerate(self._lines):
            if match := _BATCH_SIZE_LINE.fullmatch(line):
                self._lines[number] = f"{match[1]}{batch_size}{match[3]}"

    def _parse(self) -> None:
        """Find the components and their options as sbatch does."""
        self._components: list[dict[str, _Option]] = [{}]
        self._ends = [0]
        """The line after the last directive of each component."""
        self._command: int | None = None
        """The line of the first command, below which sbatch reads no directives."""
        for number, line in enumerate(self._lines):
            if _DIRECTIVE.match(line):
                self._parse_directive(number, line)
            elif (text := line.strip(_BLANKS)) and not text.startswith("#"):
                self._command = number
                return

    def _parse_directive(self, number: int, line: str) -> None:
        if separator := _SEPARATOR_WORD.search(line):
            self._components.append({})
            self._ends.append(0)
            line = line[: separator.start()] + " " * len(separator[0]) + line[separator.end() :]
        self._ends[-1] = number + 1
        options = self._components[-1]
        words = self._split_words(number, line)
        while words:
            word = words.pop(0)
            if not word.text.startswith("-"):
                raise self._invalid_directive(number, f"'{word.text:.40}' is not an option")
            name, equals, value = word.text.partition("=")
            if name[:2] in _SHORT_OPTIONS and not name.startswith("--"):
                name = _SHORT_OPTIONS[name[:2]]
                if len(word.text) > 2:  # -n4
                    self._check_option(number, name, word.text[2:])
                    options[name] = _Option(number, word.text[2:], slice(word.start + 2, word.stop))
                    continue
            elif equals:  # --ntasks=4
                name = _expand_abbreviation(name)
                value_start = line.index("=", word.start) + 1
                is_quoted = line[word.start : value_start] != word.text[: value_start - word.start]
                self._check_option(number, name, value)
                if is_quoted:  # '--ntasks=4'
                    options[name] = _Option(number, value, slice(word.start, word.stop), f"{name}=")
                else:
                    options[name] = _Option(number, value, slice(value_start, word.stop))
                continue
            name = _expand_abbreviation(name)
            if words and not words[0].text.startswith("-"):  # -n 4, --ntasks 4
                argument = words.pop(0)
                self._check_option(number, name, argument.text)
                options[name] = _Option(number, argument.text, slice(argument.start, argument.stop))
            else:
                self._check_option(number, name, None)
                options[name] = _Option(number, None, slice(word.stop, word.stop))

    def _check_option(self, number: int, name: str, value: str | None) -> None:
        """Raise InputError if sbatch refuses the option as it is written."""
        check_rendered(value, f"{self._name}, line {number + 1},")
        if name in _SIZE_OPTIONS and not value:
            raise self._invalid_directive(number, f"{name} has no value")
        if value and value.startswith("="):
            raise self._invalid_directive(number, f"{name} has the value '{value}'")

    def _invalid_directive(self, number: int, problem: str) -> InputError:
        return InputError(
            f"{self._name}: in line {number + 1} {problem}, and sbatch refuses it ({self._lines[number].strip():.60}).",
            "Write it as #SBATCH --ntasks=4 or -n 4: no spaces around =, and # before a comment.",
        )

    def _split_words(self, number: int, line: str) -> list[_Word]:
        """Return the arguments of a directive.

        Quotes group characters, a backslash escapes one, and # begins a comment, even within a word.
        """
        words: list[_Word] = []
        position = len("#SBATCH" if line.startswith("#SB") else "#SLURM")
        start = -1
        text = quote = ""
        while position < len(line) and (quote or line[position] != "#"):
            character = line[position]
            if not quote and character in _BLANKS:
                words += [_Word(text, start, position)] if start >= 0 else []
                start = -1
                text = ""
                position += 1
                continue
            start = position if start < 0 else start
            if character == "\\" and position + 1 < len(line):
                position += 1
                text += line[position]
            elif character == quote:
                quote = ""
            elif not quote and character in "\"'":
                quote = character
            else:
                text += character
            position += 1
        if quote:
            raise InputError(
                f"{self._name}: line {number + 1} has no second {quote}, which sbatch refuses.", "Close the quote."
            )
        return [*words, _Word(text, start, position)] if start >= 0 else words

    def _set_memory(self, component: int, mib: int) -> None:
        """Set the memory per core, unless the script states the same in another unit (`1G` for `1024M`)."""
        current = self.value(component, "--mem-per-cpu")
        try:
            is_same = current is not None and read_memory(current, "") == mib << 20
        except InputError:  # an invalid amount is replaced
            is_same = False
        if not is_same:
            self.set(component, "--mem-per-cpu", f"{mib}M")

    def _check_no_node_sizes(self, component: int) -> None:
        for option in _NODE_SIZE_OPTIONS:
            if option in self._components[component]:
                raise InputError(
                    f"{self._field(component, option)} sizes nodes, but plans size replicas.",
                    "Write --ntasks, --cpus-per-task, --mem-per-cpu and --gpus-per-task instead.",
                )

    def _field(self, component: int, option: str) -> str:
        suffix = f", component {component + 1}" if self.components > 1 else ""
        return f"{self._name}{suffix}: {option}"


def _expand_abbreviation(name: str) -> str:
    """Return the option that sbatch takes an abbreviation for."""
    matches = [option for option in (*_SIZE_OPTIONS, "--array") if option.startswith(name)]
    is_abbreviation = len(matches) == 1 and name not in _SIZE_OPTIONS and len(name) > len("--a")
    return matches[0] if is_abbreviation else name


def _comment_message(lines: list[int]) -> str:
    return f"sbatch takes {_line_numbers(lines)} for a comment: a directive begins its line with #SBATCH in capitals"


def _line_numbers(lines: list[int]) -> str:
    """Return `line 3`, `lines 3 and 4`, or `lines 3, 4 and 5`."""
    *others, last = map(str, lines)
    return f"lines {', '.join(others)} and {last}" if others else f"line {last}"
