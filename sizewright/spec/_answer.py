"""The base class of results: records that print as on the terminal and convert to dicts, JSON, YAML and data frames."""

from __future__ import annotations

import html
import importlib
import json

import yaml

from sizewright.spec._base import Record

_PRINTER = "sizewright.cli.plain"
"""The module that renders results, loaded when the first one is printed."""


class Answer(Record):
    """The result of a public function."""

    def __str__(self) -> str:
        return str(importlib.import_module(_PRINTER).text_of(self))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def to_dict(self) -> dict[str, object]:
        """Return the result as plain data, like the JSON object."""
        data: dict[str, object] = json.loads(self.model_dump_json())
        return data

    def to_json(self) -> str:
        """Return the result as indented JSON."""
        return self.model_dump_json(indent=2)

    def to_yaml(self) -> str:
        """Return the result as YAML."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)
