"""Explain validation errors in plain words: the key as written in the file, what is allowed, and the actual value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sizewright.redaction import shortened

Place = tuple[str | int, ...]
_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "string": "text",
    "tuple": "a list",
    "list": "a list",
    "frozen": "a list",
    "set": "a list",
    "model": "a mapping of keys and values",
    "dict": "a mapping of keys and values",
    "mapping": "a mapping of keys and values",
    "datetime": "a date and time such as 2026-01-31T12:00:00Z",
    "date": "a date such as 2026-01-31",
    "none": "left out",
}
_LIMITS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
    "too_short": ("a list of at least", "min_length"),
    "too_long": ("a list of at most", "max_length"),
}


def explain(fault: ErrorDetails) -> str:
    """Return `must be at least 1, got 0`, or the message of the record's own validator."""
    if fault["type"] in ("value_error", "assertion_error"):
        return _lower_first(str(fault["ctx"]["error"]))
    if fault["type"] == "missing":
        return "is missing"
    if fault["type"] == "invalid_key":
        return "keys must be text (in braces a comma ends a value)"
    if fault["type"] not in _LIMITS and not fault["msg"].startswith("Input should be"):
        return _lower_first(fault["msg"])
    hint = ""
    if fault["type"] == "string_type" and isinstance(fault["input"], (int, float)):
        hint = "; put it in quotes"
    got = "" if "env" in fault["loc"] else f", got {_shown(fault['input'])}"  # a variable may be a secret
    return f"must be {_expected(fault)}{got}{hint}"


def explain_first(error: ValidationError, data: Any = None) -> str:
    """Return the first fault with its place."""
    fault = error.errors()[0]
    place = written_place(fault, data) if data is not None else fault["loc"]
    return f"{name_place(place)} {explain(fault)}".strip()


def by_place(error: ValidationError, data: Any) -> dict[Place, list[ErrorDetails]]:
    """Return the faults by place, without those that only follow from a fault in an inner value."""
    faults_at: dict[Place, list[ErrorDetails]] = {}
    for fault in error.errors():
        faults_at.setdefault(written_place(fault, data), []).append(fault)
    outer = {place[:end] for place in faults_at for end in range(len(place))}
    return {place: faults for place, faults in faults_at.items() if place not in outer}


def explain_all(faults: list[ErrorDetails]) -> str:
    """Return one message for the faults of a value that may have several forms."""
    if len(faults) == 1:
        return explain(faults[0])
    choices = list(dict.fromkeys(choice for fault in faults for choice in _choices(fault)))
    if len(choices) == 1:
        return explain(faults[0])
    return f"must be {', '.join(choices[:-1])} or {choices[-1]}, got {_shown(faults[0]['input'])}"


def written_place(fault: ErrorDetails, data: Any) -> Place:
    """Return the keys and list positions that lead to a fault in `data`, without the names of pydantic's branches."""
    place: list[str | int] = []
    for number, part in enumerate(fault["loc"]):
        if isinstance(part, int):
            if isinstance(data, (list, tuple)):
                place.append(part)
                data = data[part] if part < len(data) else None
        elif isinstance(data, Mapping):
            # In files a field may have a short name.
            written = next((key for key in (part, f"{part}_bytes") if key in data), None)
            if written is not None:
                place.append(written)
                data = data[written]
            elif fault["type"] == "missing" and number == len(fault["loc"]) - 1:
                place.append(part)
        elif hasattr(data, "model_fields_set"):
            place.append(part)
            data = getattr(data, part, None)
    return tuple(place)


def name_place(place: Place) -> str:
    """Return a place as text, such as `hosts[0].cpu`."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _choices(fault: ErrorDetails) -> list[str]:
    expected = _expected(fault)
    return re.split(", | or ", expected) if fault["type"] == "literal_error" else [expected]


def _expected(fault: ErrorDetails) -> str:
    kind, context = fault["type"], fault.get("ctx", {})
    if kind in _LIMITS:
        words, name = _LIMITS[kind]
        limit = context[name]
        values = f" value{'' if limit == 1 else 's'}" if name.endswith("length") else ""
        return f"{words} {limit:,}{values}" if isinstance(limit, int) else f"{words} {limit:g}"
    if kind == "literal_error":
        return str(context["expected"])
    if kind == "value_error":
        return str(getattr(context["error"], "expected", context["error"]))
    if kind.partition("_")[0] in _EXPECTED:
        return _EXPECTED[kind.partition("_")[0]]
    return _lower_first(fault["msg"].removeprefix("Input should be "))


def _shown(value: Any) -> str:
    if value is None or value is True or value is False:
        return {None: "nothing", True: "true", False: "false"}[value]
    return shortened(value)


def _lower_first(text: str) -> str:
    return f"{text[:1].lower()}{text[1:]}"
