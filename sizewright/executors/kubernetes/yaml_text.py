"""Changes to users' YAML texts that keep comments, order, quotes and layout."""

from __future__ import annotations

import copy
import difflib
import io
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from sizewright.errors import InputError
from sizewright.executors.yaml_documents import from_yaml
from sizewright.spec._text_files import (
    TAG_ERRORS,
    TooLargeError,
    check_size,
    check_text_rendered,
    read_json,
    read_text,
)

_LIST = re.compile(r"^( *)[^\s#-][^#\n]*:[ \t]*(?:#.*)?\n(?:[ \t]*(?:#.*)?\n)*( *)- ", re.MULTILINE)
_START = re.compile(r"^(?=---(?:\s|\Z))", re.MULTILINE)
"""A line that begins with three dashes begins a document."""
_ABOVE = re.compile(r"(?:\s*(?:#.*)?|%.*|(?:---|\.\.\.)\s*(?:\s#.*)?)\n?")
_BELOW = re.compile(r"(?:(?:\.\.\.)?[ \t]*|#.*)\n?")
"""Lines around a document that are not part of it. An indented comment may be a line of a block scalar."""
_MAX_VALUES = 100_000
"""Limit of a text whose comments and layout are kept, which takes ruamel.yaml a few seconds."""


class YamlText:
    """The documents of a YAML file.

    `documents` may be changed; `text` is then the file with these changes. Raises InputError if the text is not YAML.
    """

    def __init__(self, text: str, name: str = "The manifest") -> None:
        from ruamel.yaml.constructor import DuplicateKeyError
        from ruamel.yaml.error import YAMLError

        self._has_crlf = "\r\n" in text
        unix_text = text.replace("\r\n", "\n")
        try:
            parts = [part for part in _START.split(unix_text) if part]
            check_size(*parts, max_values=_MAX_VALUES)
            self._parts = [_parse_part(part) for part in parts]
        except TooLargeError as error:
            raise InputError(f"{name}: {error.problem}.", error.remedy) from None
        except DuplicateKeyError:
            from_yaml(text, name)  # raises an error with the key and its lines
            raise InputError(f"{name} has a key twice.", "Keep one of them.") from None
        except (ValueError, *TAG_ERRORS):
            from_yaml(text, name)  # raises an error with the value
            raise InputError(f"{name} is not YAML: a value does not have the type of its tag.", "Correct it.") from None
        except (YAMLError, RecursionError):
            check_text_rendered(unix_text, name)
            raise InputError(
                f"{name} is not YAML: {_syntax_error(unix_text):.200}.", "Correct it, or render without the base."
            ) from None
        self.documents: list[Any] = [document for part in self._parts for document in part.documents]

    @classmethod
    def load(cls, path: str | Path) -> YamlText:
        """Read a file. Raises InputError if it cannot be read or is not YAML."""
        return cls(read_manifest(path), str(path))

    @property
    def text(self) -> str:
        """All documents as one text. Unchanged lines equal those of the file, byte for byte."""
        text = "".join(part.text for part in self._parts)
        return text.replace("\n", "\r\n") if self._has_crlf else text

    def separate(self, document: Any, *path: str | int) -> None:
        """Copy every value along a path that an alias or a merge shares with another place in the file."""
        shared = _shared_ids(self.documents)
        value = document
        for key in path:
            if (isinstance(key, str) and key not in value) or value[key] is None:
                return
            if id(value[key]) in shared:
                value[key] = _without_anchors(copy.deepcopy(value[key]))
            value = value[key]


def read_manifest(path: str | Path) -> str:
    """Return the text of a manifest file. Raises InputError if it cannot be read."""
    try:
        return read_text(path, "manifest")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}.", "Pass the path of a manifest.") from None


class _Part(Protocol):
    """One document of a file, with the comments around it."""

    documents: list[Any]

    @property
    def text(self) -> str:
        """The text with the changes to `documents`."""


def _parse_part(text: str) -> _Part:
    if text.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            return _JsonPart(text)
    return _YamlPart(text)


class _JsonPart:
    """A document in JSON, which stays JSON and keeps its indentation."""

    def __init__(self, text: str) -> None:
        self._original = text
        self.documents: list[Any] = [read_json(text)]
        self._original_documents = copy.deepcopy(self.documents)

    @property
    def text(self) -> str:
        """The text with the changes to `documents`."""
        if self.documents == self._original_documents:
            return self._original
        indent = re.search(r"^([ \t]+)\S", self._original, re.MULTILINE)
        end = self._original[len(self._original.rstrip()) :]
        return json.dumps(self.documents[0], indent=indent[1] if indent else None, ensure_ascii=False) + end


class _YamlPart:
    """A document in YAML.

    The lines above and below it are kept separately, since a dump would lose them.
    """

    def __init__(self, text: str) -> None:
        from ruamel.yaml import YAML

        lines = re.split(r"(?<=\n)", text)
        start = next((n for n, line in enumerate(lines) if not _ABOVE.fullmatch(line)), len(lines))
        end = next((n for n in range(len(lines), start, -1) if not _BELOW.fullmatch(lines[n - 1])), start)
        self._head = "".join(lines[:start])
        body = "".join(lines[start:end])
        self._tail = "".join(lines[end:])
        self._ends_with_newline = body.endswith("\n") or not body
        self._original = body if self._ends_with_newline else f"{body}\n"
        self._yaml = YAML()  # the round-trip loader keeps comments and runs no code
        self._yaml.preserve_quotes = True
        self._yaml.width = 1 << 20
        self.documents: list[Any] = list(self._yaml.load_all(self._original)) if body else []
        offset = _list_offset(self._original)
        self._yaml.indent(mapping=2, sequence=offset + 2, offset=offset)
        self._yaml.explicit_start = self._original.startswith("---")
        self._original_dump = self._dump()

    @property
    def text(self) -> str:
        """The text with the changes to `documents`. Unchanged lines equal those of the file."""
        dump = self._dump()
        body = self._original if dump == self._original_dump else self._merge(dump)
        return f"{self._head}{body if self._ends_with_newline else body.removesuffix(chr(10))}{self._tail}"

    def _dump(self) -> str:
        out = io.StringIO()
        if self.documents:
            self._yaml.dump_all(self.documents, out)
        return out.getvalue()

    def _merge(self, dump: str) -> str:
        """Return the original text with only the changed lines of a dump.

        A dump may differ from the original in its layout. If the layout does not allow merging line by line, return the
        dump itself.
        """
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError

        original, before, after = (text.split("\n") for text in (self._original, self._original_dump, dump))
        if original == before or len(original) != len(before):
            return dump
        merged: list[str] = []
        for kind, i, j, k, m in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            if kind == "equal":
                merged += original[i:j]
            elif kind == "replace" and j - i == m - k:
                for line, original_line in zip(after[k:m], original[i:j], strict=True):
                    merged.append(" " * _indent(original_line) + line.lstrip(" "))
            else:
                merged += _indented_as_siblings(after[k:m], original[:i], before[:i])
        text = "\n".join(merged)
        reader = YAML(typ="safe", pure=True)
        try:
            is_same = list(reader.load_all(text)) == list(reader.load_all(dump))
        except (YAMLError, ValueError, RecursionError):
            is_same = False
        return text if is_same else dump


def _syntax_error(text: str) -> str:
    """Return the parser's message, with line numbers of the whole text."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        list(YAML().load_all(text))
    except (YAMLError, RecursionError) as error:
        return " ".join(str(error).split())
    return "one of its documents cannot be read on its own"


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _indented_as_siblings(lines: Sequence[str], original: Sequence[str], before: Sequence[str]) -> Iterator[str]:
    """Yield new lines, each with the indentation that the original has for the last sibling above it.

    `original` and `before` are the lines above, as the user wrote them and as a dump writes them.
    """
    shift = 0
    for line in lines:
        above = (n for n in reversed(range(len(before))) if before[n].strip() and _indent(before[n]) <= _indent(line))
        parent_or_sibling = next(above, None)
        if parent_or_sibling is not None and _indent(before[parent_or_sibling]) == _indent(line):
            shift = _indent(original[parent_or_sibling]) - _indent(before[parent_or_sibling])
        yield " " * max(0, _indent(line) + shift) + line.lstrip(" ")


def _shared_ids(documents: Sequence[Any]) -> set[int]:
    """Return the ids of the mappings and lists that are in several places."""
    visited: set[int] = set()
    shared: set[int] = set()

    def visit(value: Any) -> None:
        if not isinstance(value, (dict, list)):
            return
        if id(value) in visited:
            shared.add(id(value))
            return
        visited.add(id(value))
        for inner in value.values() if isinstance(value, dict) else value:
            visit(inner)

    for document in documents:
        visit(document)
    return shared


def _without_anchors(value: Any) -> Any:
    from ruamel.yaml.anchor import Anchor

    if hasattr(value, Anchor.attrib):
        delattr(value, Anchor.attrib)
    if isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            _without_anchors(inner)
    return value


def _list_offset(text: str) -> int:
    """Return by how many spaces lists are indented below their key."""
    match = _LIST.search(text)
    return max(0, len(match[2]) - len(match[1])) if match else 0
