"""The base class of all records: frozen, strict about keys, with readable errors; and the reader of YAML files."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails
from typing_extensions import Self

from sizewright.errors import InputError, JobError, RecordError
from sizewright.redaction import redacted
from sizewright.spec._faults import Place, by_place, explain_all, explain_first, name_place
from sizewright.spec._text_files import (
    KeyTwiceError,
    TooLargeError,
    check_rendered,
    check_text_rendered,
    read_text,
    read_yaml,
)

_WRITE = {
    "job": "Write one with: sizewright init",
    "cluster": "`sizewright schema cluster` lists its keys.",
    "jobs": "`sizewright schema jobs` lists its keys.",
}


R = TypeVar("R", bound="Record")


class Record(BaseModel):
    """A frozen pydantic record that refuses unknown keys.

    Raises RecordError for invalid values and for attempts to change it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, /, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise _record_error(type(self), error, data) from None

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # as pydantic marks it, for nested records

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Create a record from a mapping. Raises RecordError."""
        try:
            return super().model_validate(obj, **options)
        except ValidationError as error:
            raise _record_error(cls, error, obj) from None

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """Create a record from a JSON text. Raises RecordError."""
        try:
            return super().model_validate_json(json_data, **options)
        except ValidationError as error:
            raise _record_error(cls, error) from None

    def __repr__(self) -> str:
        return redacted(super().__repr__())

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            super().__setattr__(name, value)
        except (ValidationError, ValueError):
            raise self._frozen(name) from None

    def __delattr__(self, name: str) -> None:
        try:
            super().__delattr__(name)
        except (ValidationError, ValueError):
            raise self._frozen(name) from None

    def _frozen(self, name: str) -> RecordError:
        return RecordError(
            f"{type(self).__name__}: records are frozen, so '{name}' cannot be changed.",
            f"Make a changed copy: model_copy(update={{'{name}': ...}}).",
        )


def validate(record: type[R], data: Any) -> R:
    """Create a record from a mapping. Raises pydantic's ValidationError, for callers that word the faults."""
    return BaseModel.model_validate.__func__(record, data)  # type: ignore[attr-defined,no-any-return]


def validate_json(record: type[R], text: str | bytes) -> R:
    """Create a record from a JSON text. Raises pydantic's ValidationError, for callers that word the faults."""
    return BaseModel.model_validate_json.__func__(record, text)  # type: ignore[attr-defined,no-any-return]


def _record_error(record: type[Record], error: ValidationError, data: Any = None) -> RecordError:
    faults = _sentences(record, error, data) if data is not None else explain_first(error)
    return RecordError(f"{record.__name__}: {faults}.", "Correct the value.")


def load_yaml(path: str | Path, kind: str) -> dict[str, Any]:
    """Read a mapping from a YAML or JSON file.

    Raises JobError when the file is missing, malformed or not a mapping.
    """
    try:
        text = read_text(path, f"{kind} file").replace("\r\n", "\n")
    except InputError as error:
        raise JobError(error.message, error.remedy) from None
    except FileNotFoundError:
        raise JobError(f"No {kind} file at {path}.", _WRITE.get(kind, "Check the path.")) from None
    except OSError as error:
        reason = error.strerror or error
        raise JobError(
            f"Cannot read the {kind} file {path}: {reason}.", "Check the path and its permissions."
        ) from None
    data = _read(text, path)
    if not isinstance(data, dict):
        content = "nothing" if data is None else type(data).__name__
        raise JobError(f"{path} must hold keys and values; it holds {content}.", _WRITE.get(kind, "Check the path."))
    return data


def _read(text: str, path: str | Path) -> Any:
    try:
        data = read_yaml(text)
        check_rendered(data, str(path))
        return data
    except InputError as error:
        raise JobError(error.message, error.remedy) from None
    except (yaml.YAMLError, ValueError) as error:
        raise _unreadable(text, path, error) from None


def _unreadable(text: str, path: str | Path, error: Exception) -> JobError:
    try:
        check_text_rendered(text, str(path))
    except InputError as template:
        return JobError(template.message, template.remedy)
    if isinstance(error, KeyTwiceError):
        return JobError(f"{path}: {error}.", "Keep one of them.")
    if isinstance(error, TooLargeError):
        return JobError(f"{path}: {error.problem}.", error.remedy)
    if isinstance(error, yaml.YAMLError):
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not YAML"
        return JobError(f"{path} is not valid YAML{where}: {problem}.", "Correct that line.")
    return JobError(f"{path} is not valid YAML: {error}.", "Correct that value.")  # such as endlessly nested lists


OPTIONS = "objective and deadline"
"""The `source` of values that are not from a file."""


def parse(record: type[R], data: dict[str, Any], source: str) -> R:
    """Validate `data` as `record`; an empty section counts as absent, and choices may be in any case.

    Raises JobError with the first few faults.
    """
    data = _normalized(record, data)
    try:
        return validate(record, data)
    except ValidationError as error:
        shown = _sentences(record, error, data)
        target = "it" if source.startswith("The ") else "the file"
        remedy = f"Correct {target}; `sizewright schema` lists every key."
        raise JobError(f"{source}: {shown}.", remedy if source != OPTIONS else "Correct it.") from None


def _normalized(annotation: Any, value: Any) -> Any:
    """Drop empty sections, and write each choice as the annotation spells it."""
    if isinstance(value, str):
        choices = _choices(annotation)
        same = [choice for choice in choices if choice.lower() == value.strip().lower()]
        return same[0] if len(same) == 1 and value not in choices else value
    record = _record_in(annotation)
    if record and isinstance(value, list):
        return [_normalized(annotation, item) for item in value]
    if not record or not isinstance(value, dict):
        return value
    kinds = {}
    for name, field in record.model_fields.items():
        kinds[name] = kinds[field.alias or field.validation_alias or name] = field.annotation
    return {
        key: _normalized(kinds.get(key), inner)
        for key, inner in value.items()
        if inner is not None or not _record_in(kinds.get(key))
    }


def _choices(annotation: Any) -> tuple[str, ...]:
    """Return the literal texts of an annotation, or of the fields of its record."""
    if record := _record_in(annotation):
        return tuple(choice for field in record.model_fields.values() for choice in _choices(field.annotation))
    if get_origin(annotation) is Literal:
        return tuple(each for each in get_args(annotation) if isinstance(each, str))
    return tuple(choice for inner in get_args(annotation) for choice in _choices(inner))


def _sentences(record: type[Record], error: ValidationError, data: Any) -> str:
    faults_at = by_place(error, data)
    mistyped_first = sorted(faults_at, key=lambda place: faults_at[place][0]["type"] != "extra_forbidden")
    faults = [_sentence(record, place, faults_at[place]) for place in mistyped_first]
    shown = "; ".join(faults[:4]) + (f"; and {len(faults) - 4} more" if len(faults) > 4 else "")
    return " ".join(shown.split())  # a key may hold line breaks


def _sentence(record: type[Record], place: Place, faults: list[ErrorDetails]) -> str:
    where, path = name_place(place), [str(part) for part in place]
    if faults[0]["type"] == "extra_forbidden":
        known = _keys_at(record, path[:-1])
        close = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.5)
        hint = f" (did you mean '{close[0]}'?)" if close else f"; known: {', '.join(known)}"
        return f"unknown key '{where}'{hint}"
    text = explain_all(faults)
    if not where:
        return text
    return f"'{where}' {text}" if text.startswith(("must ", "is missing")) else f"'{where}': {text}"


def _keys_at(record: type[Record], path: list[str]) -> list[str]:
    current: Any = record
    for part in path:
        field = getattr(current, "model_fields", {}).get(part)
        if field is None:
            continue  # a list index or a union's branch name
        current = _record_in(field.annotation) or current
    return sorted(str(field.validation_alias or name) for name, field in getattr(current, "model_fields", {}).items())


def _record_in(annotation: Any) -> type[Record] | None:
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        if record := _record_in(inner):
            return record
    return None
