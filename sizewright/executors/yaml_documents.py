"""Write and read YAML documents below a comment header."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from sizewright.errors import InputError
from sizewright.spec._text_files import TAG_ERRORS, BaseLoader, KeyTwiceError, TooLargeError, UniqueKeysMixin

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Loader(UniqueKeysMixin, BaseLoader):  # type: ignore[misc]
    """A loader of YAML 1.1, as the Kubernetes API server reads it."""


def to_yaml(header: list[str], *documents: dict[str, Any]) -> str:
    """Return YAML documents below comment lines; each text of the header may have several lines."""
    lines = [line for text in header for line in text.splitlines() or [""]]
    comment = "".join(f"# {_printable(line)}".rstrip() + "\n" for line in lines)
    body = _dump(documents, allow_unicode=True)
    # PyYAML writes these line breaks as they are and then reads them as spaces.
    if any(line_break in body for line_break in "\x85\u2028\u2029"):
        body = _dump(documents, allow_unicode=False)
    return comment + body


def from_yaml(text: str, name: str = "The manifest") -> list[Any]:
    """Return the documents of a text, with plain objects only. Raises InputError for a text that is not YAML."""
    try:
        return list(yaml.load_all(text, _Loader))
    except TooLargeError as error:
        raise InputError(f"{name}: {error.problem}.", error.remedy) from None
    except KeyTwiceError as error:
        raise InputError(f"{name}: {error}.", "Keep one of them.") from None
    except (ValueError, *TAG_ERRORS):
        raise InputError(f"{name} is not YAML: a value does not match its tag.", "Correct it.") from None
    except yaml.YAMLError as error:
        message = " ".join(str(error).split())
        raise InputError(f"{name} is not YAML: {message:.200}.", "Correct it.") from None


def _dump(documents: Sequence[dict[str, Any]], *, allow_unicode: bool) -> str:
    texts = (
        yaml.dump(each, Dumper=_DUMPER, sort_keys=False, allow_unicode=allow_unicode, width=120) for each in documents
    )
    return "---\n".join(texts)


def _printable(line: str) -> str:
    # YAML readers refuse control characters even in comments.
    return "".join(character if character.isprintable() else " " for character in line)
