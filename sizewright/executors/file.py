"""Render the plan itself, as YAML or JSON, for other programs."""

from __future__ import annotations

import json
from typing import Any, Literal

import yaml

from sizewright.errors import InputError
from sizewright.executors._base import RenderOnlyExecutor
from sizewright.executors.plan_annotations import check_no_secrets
from sizewright.executors.yaml_documents import to_yaml
from sizewright.spec import Plan
from sizewright.spec._base import parse
from sizewright.spec._text_files import read_json, read_yaml


class FileExecutor(RenderOnlyExecutor):
    """Render plans of every kind; `sizewright schema plan` documents the format."""

    name = "file"

    def __init__(self, *, format: Literal["yaml", "json"] = "yaml") -> None:
        super().__init__()
        if format not in ("yaml", "json"):
            raise InputError(f"'{format}' is not a format of plans.", "Use yaml or json.")
        self._format = format

    def render(self, plan: Plan) -> str:
        """Return the whole plan without secret values. Raises InputError for a secret in a command's words."""
        check_no_secrets(plan)
        fields = plan.model_dump(mode="json", exclude_none=True)
        if self._format == "json":
            return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"
        return to_yaml([f"Sizewright plan {plan.id}: {plan.kind} {plan.target.describe()}"], fields)

    def parse(self, text: str) -> Plan:
        """Read a rendered plan. Raises InputError for a text that is not a plan."""
        try:
            fields: Any = read_json(text) if self._format == "json" else read_yaml(text)
        except (ValueError, yaml.YAMLError) as error:
            raise InputError(
                f"The plan is not {self._format}: {error}.", "Pass one that `sizewright recommend --out` wrote."
            ) from None
        return parse(Plan, fields, "The plan")
