"""Plans as YAML documents below a comment header."""

from __future__ import annotations

from typing import Any

import yaml

from sizewright.errors import InputError
from sizewright.spec._text_files import OF_TAGS, KeyTwiceError, NoDuplicates, TooLargeError


class _Loader(NoDuplicates, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """As the API server reads it: YAML 1.1."""


def to_yaml(header: list[str], document: dict[str, Any]) -> str:
    """A YAML document below comment lines; text may run over several lines."""
    lines = [line for text in header for line in text.splitlines() or [""]]
    comment = "".join(f"# {_printable(line)}".rstrip() + "\n" for line in lines)
    body = _dump(document, allow_unicode=True)
    # PyYAML writes these line breaks as they are and then reads them as spaces.
    if any(line_break in body for line_break in "\x85\u2028\u2029"):
        body = _dump(document, allow_unicode=False)
    return comment + body


def from_yaml(text: str, name: str = "The manifest") -> list[Any]:
    """The documents of a text; no kind of object is made but plain ones. Raises InputError for what is not YAML."""
    try:
        return list(yaml.load_all(text, _Loader))
    except TooLargeError as error:
        raise InputError(f"{name}: {error.problem}.", error.remedy) from None
    except KeyTwiceError as error:
        raise InputError(f"{name}: {error}.", "Keep one of them.") from None
    except (ValueError, *OF_TAGS):
        raise InputError(f"{name} is not YAML: a value is not of the kind that its tag says.", "Mend it.") from None
    except (yaml.YAMLError, RecursionError) as error:
        told = " ".join(str(error).split())
        raise InputError(f"{name} is not YAML: {told:.200}.", "Mend it.") from None


def _dump(document: dict[str, Any], *, allow_unicode: bool) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=allow_unicode, width=120)


def _printable(line: str) -> str:
    # YAML readers refuse control characters even in comments.
    return "".join(character if character.isprintable() else " " for character in line)
