"""The plan itself, as YAML or JSON, for whatever reads that."""

from __future__ import annotations

import json
from typing import Any, Literal

import yaml

from sizewright.errors import InputError
from sizewright.executors.manifest import to_yaml
from sizewright.executors.plan_notes import check_no_secrets
from sizewright.executors.render_only import RenderOnly
from sizewright.spec import Plan
from sizewright.spec._base import parse
from sizewright.spec._text_files import read_json, read_yaml


class FileExecutor(RenderOnly):
    """Renders plans of every kind; `sizewright schema plan` tells what is in them."""

    name = "file"

    def __init__(self, *, format: Literal["yaml", "json"] = "yaml") -> None:
        super().__init__()
        if format not in ("yaml", "json"):
            raise InputError(f"'{format}' is not a format of plans.", "Use yaml or json.")
        self._format = format

    def render(self, plan: Plan) -> str:
        """All of it, but values of variables. Raises InputError for one in a command's words."""
        check_no_secrets(plan)
        told = plan.model_dump(mode="json", exclude_none=True)
        if self._format == "json":
            return json.dumps(told, indent=2, ensure_ascii=False) + "\n"
        return to_yaml([f"Sizewright plan {plan.id}: {plan.kind} {plan.target.describe()}"], told)

    def parse(self, text: str) -> Plan:
        """The plan again. Raises InputError for what is none."""
        try:
            told: Any = read_json(text) if self._format == "json" else read_yaml(text)
        except (ValueError, yaml.YAMLError, RecursionError) as error:
            raise InputError(
                f"The plan is not {self._format}: {error}.", "Pass one that `sizewright recommend --out` wrote."
            ) from None
        return parse(Plan, told, "The plan")
