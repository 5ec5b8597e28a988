"""Annotations for short forms of values and for the spelling of names, with their JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_after_validator_function, no_info_before_validator_function

from sizewright.redaction import shortened


@dataclass(frozen=True)
class Shorthand:
    """An annotation: `expand` turns the short form into the long one; `short` converts its schema."""

    expand: Callable[[Any], Any]
    short: Callable[[JsonSchemaValue], JsonSchemaValue]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_before_validator_function(self.expand, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        long = handler(schema)
        forms = (self.short(long), long)
        if {"type": "null"} not in long.get("anyOf", []):
            return {"anyOf": list(forms)}
        return {"anyOf": [option for form in forms for option in form.get("anyOf", [form])]}


# `4` stands for `[4, 4]`.
ONE_FOR_BOTH = Shorthand(
    expand=lambda value: value if isinstance(value, (list, tuple)) else (value, value),
    short=lambda pair: pair["prefixItems"][0],
)

# `adagrad` stands for `{name: adagrad}`.
BY_NAME = Shorthand(
    expand=lambda value: {"name": value} if isinstance(value, str) else value,
    short=lambda _: {"type": "string"},
)

# `30m` stands for `{every: 30m}`.
BY_INTERVAL = Shorthand(
    expand=lambda value: {"every": value} if isinstance(value, (int, float, str)) else value,
    short=lambda _: {"anyOf": [{"type": "number"}, {"type": "string"}]},
)


@dataclass(frozen=True)
class Spelling:
    """An annotation for text that matches a pattern, which `words` describe in messages."""

    pattern: str
    words: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema) | {"pattern": self.pattern}

    def _check(self, value: str) -> str:
        if not re.search(self.pattern, value) or value.endswith("\n"):
            raise ValueError(f"must be {self.words}, got {shortened(value)}")
        return value


_LABEL = "small letters, digits and inner hyphens, at most"
JOB_NAME = Spelling(r"^[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?$", f"{_LABEL} 52 characters")
NAMESPACE = Spelling(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", f"{_LABEL} 63 characters")
PLAN_ID = Spelling(r"^[a-z0-9][-a-z0-9]*$", "small letters, digits and hyphens")
PLATFORM_NAME = Spelling(
    r"^[A-Za-z0-9][-A-Za-z0-9_.]*$", "letters, digits, points, hyphens and underscores, a letter or digit first"
)
