"""Data on stdout as a table, JSON or YAML; everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

    from sizewright.datasets.click_logs import ReadReport


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
        sys.stdout.write(json.dumps(data, indent=2) + "\n")
    else:
        import yaml

        sys.stdout.write(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))


def stdout() -> Console:
    """A console for tables; as wide as they need when stdout is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120, highlight=False, markup=False)


def stderr() -> Console:
    """A console for progress and messages."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False)


def write_file(path: str, text: str) -> None:
    """Write a result where the user asked. Raises InputError when that cannot be done."""
    from pathlib import Path

    from sizewright.errors import InputError

    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror}.", "Name another file.") from None


def describe_log(report: ReadReport) -> str:
    """How many rows were looked at, and how many of them are broken."""
    first = f"; the first: {report.faults[0].problem} (line {report.faults[0].line})" if report.faults else ""
    return f"Looked at {report.rows:,} rows of the log: {report.broken:,} are broken{first}."
