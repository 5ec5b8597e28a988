"""Short forms of a value, understood in files and told in their JSON Schema."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_before_validator_function


@dataclass(frozen=True)
class Shorthand:
    """An annotation: `expand` turns the short form into the long one; `short` makes its schema from the long one's."""

    expand: Callable[[Any], Any]
    short: Callable[[JsonSchemaValue], JsonSchemaValue]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_before_validator_function(self.expand, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        long = handler(schema)
        return {"anyOf": [self.short(long), long]}


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
