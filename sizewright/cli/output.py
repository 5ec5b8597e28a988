"""Data on stdout as a table, JSON or YAML; everything else on stderr."""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TextIO

from sizewright.redaction import redacted, steers

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import BaseModel
    from rich.console import Console

    from sizewright.datasets.click_logs import ReadReport


_USUAL, _HEIGHT = 80, 25
_WIDE = 1_000_000
"""Columns where there is no terminal: nothing wraps in files and pipes."""


class Format(str, Enum):
    """How to print a result."""

    table = "table"
    json = "json"
    yaml = "yaml"


def show(record: BaseModel, form: Format, as_table: Callable[[Console], None]) -> None:
    """Print a record to stdout in the form asked for."""
    show_data(json.loads(record.model_dump_json()), form, as_table)


def show_data(data: Any, form: Format, as_table: Callable[[Console], None]) -> None:
    """Print plain data to stdout in the form asked for."""
    if form is Format.table:
        as_table(stdout())
    elif form is Format.json:
        sys.stdout.write(redacted(json.dumps(data, indent=2)) + "\n")
    else:
        import yaml

        utf = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
        text = yaml.safe_dump(data, sort_keys=False, allow_unicode=utf)
        sys.stdout.write(redacted(yaml.safe_dump(data, sort_keys=False) if steers(text) else text))


def stdout() -> Console:
    """A console for tables; as wide as they need when stdout is no terminal."""
    return _console(sys.stdout)


def stderr() -> Console:
    """A console for progress and messages."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    """Coloured on a terminal. NO_COLOR takes colours away, FORCE_COLOR gives them to files and pipes, too, where
    nothing moves all the same."""
    from sizewright.cli.safe_console import SafeConsole

    terminal = stream.isatty()
    width = _terminal_width(stream) if terminal else _WIDE
    dumb = os.environ.get("TERM", "") in ("dumb", "unknown")
    plain, forced = os.environ.get("NO_COLOR"), os.environ.get("FORCE_COLOR", "0") not in ("", "0")
    colours: Literal["auto", "standard"] | None = "auto" if terminal and not dumb else "standard" if forced else None
    return SafeConsole(
        file=stream, force_terminal=terminal, force_interactive=terminal and not dumb,
        color_system=None if plain else colours, width=width,
        height=None if width is None else _HEIGHT, highlight=False, markup=False,
    )  # fmt: skip


def _terminal_width(stream: TextIO) -> int | None:
    """Return the width where rich would not ask for it: it takes a dumb terminal, and COLUMNS=0, for one of its own."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        return int(columns)
    if os.environ.get("TERM", "") not in ("dumb", "unknown") and not columns:
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or _USUAL
    except OSError:
        return _USUAL


_PLAIN = str.maketrans("×→–−—•·─━╸╺µ’“”▁▂▃▄▅▆▇█", 'x>---**-==-u\'""__--==##') | str.maketrans(
    {"…": "...", "±": "+-", "≤": "<=", "≥": ">=", "σ": "sd"}
)


def register_plain() -> str:
    """Register, and return the name of, an error handler that writes in ASCII what a stream cannot encode."""
    name = "sizewright-plain"

    def plain(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        text = error.object[error.start : error.end].translate(_PLAIN)
        return text.encode("ascii", "replace").decode(), error.end

    codecs.register_error(name, plain)
    return name


@contextmanager
def writing(path: str) -> Iterator[Path]:
    """A file to write a result into, which then takes its place where the user asked. Raises InputError when that
    cannot be done; what was there stays."""
    from sizewright.datasets.whole_files import whole_file
    from sizewright.errors import InputError
    from sizewright.spec._paths import absolute

    try:
        with whole_file(absolute(path)) as file:
            yield file
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror}.", "Name another file.") from None


def write_file(path: str, text: str) -> None:
    """Write a text where the user asked. Raises InputError when that cannot be done."""
    with writing(path) as file:
        file.write_text(text, encoding="utf-8")


def as_named(path: str, manifest: str) -> str:
    """A manifest in the format that the name of its file says. Raises InputError where it cannot be had so.

    Manifests are YAML, or shell scripts; a name that says neither JSON nor YAML gets what the executor writes.
    """
    from sizewright.errors import InputError

    suffix = os.path.splitext(path)[1].lower()
    is_script = manifest.startswith("#!")
    if is_script and suffix in (".json", ".yaml", ".yml"):
        raise InputError(f"{path} is named {suffix}, and this manifest is a shell script.", "Name it such as job.sh.")
    if suffix == ".json":
        is_json = manifest.lstrip().startswith("{")
        return manifest if is_json else json.dumps(manifest_data(manifest), indent=2) + "\n"
    if suffix not in (".sh", ".sbatch", ".slurm", ".bash") if is_script else suffix not in (".yaml", ".yml"):
        stderr().print(f"{path} is written as {'a shell script' if is_script else 'YAML'}.", soft_wrap=True)
    return manifest


def manifest_data(manifest: str) -> Any:
    """A manifest as plain data: its document, a List of several, as kubectl takes them, or the lines of a script."""
    import yaml

    if manifest.startswith("#!"):
        return {"script": manifest}
    documents = [document for document in yaml.safe_load_all(manifest) if document is not None]
    data = documents[0] if len(documents) == 1 else {"apiVersion": "v1", "kind": "List", "items": documents}
    return json.loads(json.dumps(data, default=str))  # YAML knows dates


def describe_log(report: ReadReport) -> str:
    """How many rows were looked at, and how many of them are broken."""
    from sizewright.spec.units import format_count

    first = f"; the first: {report.faults[0].problem} (line {report.faults[0].line})" if report.faults else ""
    return f"Looked at {format_count(report.rows, 'row')} of the log: {report.broken:,} broken{first}."
