"""Print data on stdout as a table, JSON or YAML, and everything else on stderr."""

from __future__ import annotations

import codecs
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TextIO

from sizewright.redaction import redacted_data, steers

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import BaseModel
    from rich.console import Console

    from sizewright.datasets.clicks.logs import ReadReport


_DEFAULT_WIDTH = 80
_HEIGHT = 25
_UNLIMITED = 1_000_000
"""Width without a terminal: nothing wraps in files and pipes."""


class Format(str, Enum):
    """The format of a result."""

    table = "table"
    json = "json"
    yaml = "yaml"


class RecommendationFormat(str, Enum):
    """The format of a recommendation."""

    table = "table"
    json = "json"
    yaml = "yaml"
    vpa = "vpa"


def show(record: BaseModel, form: Format, as_table: Callable[[Console], None]) -> None:
    """Print a record to stdout in the requested format."""
    show_data(json.loads(record.model_dump_json()), form, as_table)


def show_data(data: Any, form: Format, as_table: Callable[[Console], None]) -> None:
    """Print plain data to stdout in the requested format."""
    if form is Format.table:
        as_table(stdout())
    elif form is Format.json:
        sys.stdout.write(json.dumps(redacted_data(data), indent=2) + "\n")
    else:
        import yaml

        utf = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
        safe = redacted_data(data)
        text = yaml.safe_dump(safe, sort_keys=False, allow_unicode=utf)
        sys.stdout.write(yaml.safe_dump(safe, sort_keys=False) if steers(text) else text)


def show_manifest(manifest: str, form: Format) -> None:
    """Print a manifest as it is, or without secrets as JSON or YAML."""
    data = manifest_data(manifest)
    without = redacted_data(data)
    if form is Format.table or (form is Format.yaml and without == data and not manifest.startswith("#!")):
        sys.stdout.write(manifest)
        return
    show_data(data, form, lambda _: None)
    if without != data:
        text = "The manifest contains secrets, which are printed as ***. Pass --out FILE to write it with them."
        stderr().print(text, style="yellow", soft_wrap=True)


def stdout() -> Console:
    """Return a console for tables; its width is unlimited if stdout is not a terminal."""
    return _console(sys.stdout)


def stderr() -> Console:
    """Return a console for progress and messages."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    """Return a console with colours on a terminal.

    NO_COLOR removes colours. FORCE_COLOR adds them to files and pipes, but no animation.
    """
    from sizewright.cli.safe_console import SafeConsole

    terminal = stream.isatty()
    width = _terminal_width(stream) if terminal else _UNLIMITED
    dumb = os.environ.get("TERM", "") in ("dumb", "unknown")
    colours: Literal["auto", "standard"] | None = None
    if os.environ.get("NO_COLOR"):
        colours = None
    elif terminal and not dumb:
        colours = "auto"
    elif os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        colours = "standard"
    return SafeConsole(
        file=stream,
        force_terminal=terminal,
        force_interactive=terminal and not dumb,
        color_system=colours,
        width=width,
        height=None if width is None else _HEIGHT,
        highlight=False,
        markup=False,
    )


def _terminal_width(stream: TextIO) -> int | None:
    """Return the width of a terminal, or None if rich finds it out.

    Rich assumes a width of its own for a dumb terminal and for COLUMNS=0.
    """
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        return int(columns)
    if os.environ.get("TERM", "") not in ("dumb", "unknown") and not columns:
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or _DEFAULT_WIDTH
    except OSError:
        return _DEFAULT_WIDTH


_PLAIN = str.maketrans("×→–−—•·─━╸╺µ’“”▁▂▃▄▅▆▇█", 'x>---**-==-u\'""__--==##') | str.maketrans(
    {"…": "...", "±": "+-", "≤": "<=", "≥": ">=", "σ": "sd"}
)


def register_plain() -> str:
    """Register an error handler that replaces what a stream cannot encode with ASCII, and return its name."""
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
    """Yield a temporary file that replaces `path` in the end.

    Raises InputError if that fails; an existing file then stays as it is.
    """
    from sizewright.datasets.files.atomic_write import atomic_file
    from sizewright.errors import InputError
    from sizewright.spec._paths import absolute

    try:
        with atomic_file(absolute(path)) as file:
            yield file
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror}.", "Name another file.") from None


def write_file(path: str, text: str) -> None:
    """Write a text to a file. Raises InputError if that fails."""
    with writing(path) as file:
        file.write_text(text, encoding="utf-8")


def as_named(path: str, manifest: str) -> str:
    """Return a manifest in the format of its file name. Raises InputError if that is not possible.

    Manifests are YAML or shell scripts. A name that is neither JSON nor YAML gets what the executor writes.
    """
    from sizewright.errors import InputError

    suffix = os.path.splitext(path)[1].lower()
    is_script = manifest.startswith("#!")
    if is_script and suffix in (".json", ".yaml", ".yml"):
        raise InputError(
            f"{path} ends in {suffix}, but this manifest is a shell script.", "Choose a name such as job.sh."
        )
    if suffix == ".json":
        is_json = manifest.lstrip().startswith("{")
        return manifest if is_json else json.dumps(manifest_data(manifest), indent=2) + "\n"
    expected = (".sh", ".sbatch", ".slurm", ".bash") if is_script else (".yaml", ".yml")
    if suffix not in expected:
        stderr().print(f"{path} is written as {'a shell script' if is_script else 'YAML'}.", soft_wrap=True)
    return manifest


def manifest_data(manifest: str) -> Any:
    """Return a manifest as plain data: its document, a kubectl List of several, or the lines of a script."""
    import yaml

    if manifest.startswith("#!"):
        return {"script": manifest}
    documents = [document for document in yaml.safe_load_all(manifest) if document is not None]
    data = documents[0] if len(documents) == 1 else {"apiVersion": "v1", "kind": "List", "items": documents}
    return json.loads(json.dumps(data, default=str))  # dates of YAML become strings


def describe_log(report: ReadReport) -> str:
    """Return how many rows of a log were checked, and how many of them are broken."""
    from sizewright.formatting import format_count

    first = f"; the first: {report.faults[0].problem} (line {report.faults[0].line})" if report.faults else ""
    return f"Checked {format_count(report.rows, 'row')} of the log: {report.broken:,} broken{first}."
