"""Results: records that print as the terminal shows them, and that convert to what notebooks and scripts use."""

from __future__ import annotations

import html
import importlib
import json

import yaml

from sizewright.spec._base import Record

_PRINTER = "sizewright.cli.plain"
"""Loaded when the first result is printed: it knows the tables of the terminal."""


class Result(Record):
    """An answer of a public function."""

    def __str__(self) -> str:
        return str(importlib.import_module(_PRINTER).text_of(self))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def to_dict(self) -> dict[str, object]:
        """Return plain data, as the JSON object has it."""
        data: dict[str, object] = json.loads(self.model_dump_json())
        return data

    def to_json(self) -> str:
        """Return the published JSON object, indented."""
        return self.model_dump_json(indent=2)

    def to_yaml(self) -> str:
        """Return the same as YAML."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)
