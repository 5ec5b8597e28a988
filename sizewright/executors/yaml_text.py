"""YAML texts of others, changed in place: comments, order and quotes stay as they are."""

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
from sizewright.executors.manifest import from_yaml
from sizewright.spec._text_files import (
    OF_TAGS,
    TooLargeError,
    check_expansion,
    check_text_rendered,
    read_json,
    read_text,
)

_LIST = re.compile(r"^( *)[^\s#-][^#\n]*:[ \t]*(?:#.*)?\n(?:[ \t]*(?:#.*)?\n)*( *)- ", re.MULTILINE)
_START = re.compile(r"^(?=---(?:\s|\Z))", re.MULTILINE)
"""Three dashes begin a document wherever they begin a line."""
_ABOVE = re.compile(r"(?:\s*(?:#.*)?|%.*|(?:---|\.\.\.)\s*(?:\s#.*)?)\n?")
_BELOW = re.compile(r"(?:(?:\.\.\.)?[ \t]*|#.*)\n?")
"""Lines around a document that are no part of it. A comment that is indented may be a line of a text."""


class YamlText:
    """The documents of one file; `documents` may be changed, and `text` is the file with these changes."""

    def __init__(self, text: str, name: str = "The manifest") -> None:
        from ruamel.yaml.constructor import DuplicateKeyError
        from ruamel.yaml.error import YAMLError

        self._crlf, given = "\r\n" in text, text.replace("\r\n", "\n")
        try:
            check_expansion(given)
            self._parts = [_part(each) for each in _START.split(given) if each]
        except TooLargeError as error:
            raise InputError(f"{name}: {error.problem}.", error.remedy) from None
        except DuplicateKeyError:
            from_yaml(text, name)  # raises with the key and its lines
            raise InputError(f"{name} has a key twice.", "Keep one of them.") from None
        except (ValueError, *OF_TAGS):
            from_yaml(text, name)  # raises
            raise InputError(f"{name} is not YAML: a value is not of its kind.", "Mend it.") from None
        except (YAMLError, RecursionError):
            check_text_rendered(given, name)
            raise InputError(
                f"{name} is not YAML: {_fault(given):.200}.", "Mend it, or leave the base manifest out."
            ) from None
        self.documents: list[Any] = [each for part in self._parts for each in part.documents]

    @classmethod
    def load(cls, path: str | Path) -> YamlText:
        """Raises InputError for a file that cannot be read or is not YAML."""
        try:
            return cls(read_text(path, "manifest"), str(path))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error}.", "Pass the path of a manifest.") from None

    @property
    def text(self) -> str:
        """All documents as one text: lines without a change are those of the file, byte for byte."""
        text = "".join(part.text for part in self._parts)
        return text.replace("\n", "\r\n") if self._crlf else text

    def separate(self, document: Any, *path: str | int) -> None:
        """Make what is at `path` of a document its own, where an alias or a merge shares it with another place."""
        shared, at = _shared(self.documents), document
        for key in path:
            if not (key in at if isinstance(key, str) else True) or at[key] is None:
                return
            if id(at[key]) in shared:
                at[key] = _without_anchors(copy.deepcopy(at[key]))
            at = at[key]


class _Part(Protocol):
    """One document of a file, with the comments around it."""

    documents: list[Any]

    @property
    def text(self) -> str:
        """With what was changed."""


def _part(text: str) -> _Part:
    if text.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            return _JsonPart(text)
    return _YamlPart(text)


class _JsonPart:
    """A document in JSON, which stays JSON."""

    def __init__(self, text: str) -> None:
        self._given = text
        self.documents: list[Any] = [read_json(text)]
        self._before = copy.deepcopy(self.documents)

    @property
    def text(self) -> str:
        """In the indentation that it has."""
        if self.documents == self._before:
            return self._given
        indent = re.search(r"^([ \t]+)\S", self._given, re.MULTILINE)
        end = self._given[len(self._given.rstrip()) :]
        return json.dumps(self.documents[0], indent=indent[1] if indent else None, ensure_ascii=False) + end


class _YamlPart:
    """A document in YAML. What stands above and below it is kept apart, as a dump would lose it."""

    def __init__(self, text: str) -> None:
        from ruamel.yaml import YAML

        lines = re.split(r"(?<=\n)", text)
        first = next((n for n, line in enumerate(lines) if not _ABOVE.fullmatch(line)), len(lines))
        end = next((n for n in range(len(lines), first, -1) if not _BELOW.fullmatch(lines[n - 1])), first)
        self._head, body, self._tail = ("".join(part) for part in (lines[:first], lines[first:end], lines[end:]))
        self._ends = body.endswith("\n") or not body
        self._given = body if self._ends else f"{body}\n"
        self._yaml = YAML()  # of its kinds of loaders the one that runs nothing and keeps comments
        self._yaml.preserve_quotes = True
        self._yaml.width = 1 << 20
        self.documents: list[Any] = list(self._yaml.load_all(self._given)) if body else []
        offset = _list_offset(self._given)
        self._yaml.indent(mapping=2, sequence=offset + 2, offset=offset)
        self._yaml.explicit_start = self._given.startswith("---")
        self._unchanged = self._dumped()

    @property
    def text(self) -> str:
        """Lines without a change are those of the file."""
        changed = self._dumped()
        body = self._given if changed == self._unchanged else self._merged(changed)
        return f"{self._head}{body if self._ends else body.removesuffix(chr(10))}{self._tail}"

    def _dumped(self) -> str:
        out = io.StringIO()
        if self.documents:
            self._yaml.dump_all(self.documents, out)
        return out.getvalue()

    def _merged(self, changed: str) -> str:
        """The file with the changed lines, where it differs from what is written of it only in its layout."""
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError

        given, before, after = (text.split("\n") for text in (self._given, self._unchanged, changed))
        if given == before or len(given) != len(before):
            return changed
        merged: list[str] = []
        for kind, i, j, k, m in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            lines = given[i:j] if kind == "equal" else after[k:m]
            if kind == "replace" and j - i == m - k:
                lines = [_indented(new, like) for new, like in zip(lines, given[i:j], strict=True)]
            elif kind != "equal":
                lines = list(_shifted(lines, given[:i], before[:i]))
            merged += lines
        text, reader = "\n".join(merged), YAML(typ="safe", pure=True)
        try:
            same = list(reader.load_all(text)) == list(reader.load_all(changed))
        except (YAMLError, ValueError, RecursionError):  # the layout of the file does not allow it
            same = False
        return text if same else changed


def _fault(text: str) -> str:
    """What is wrong, with its line in the whole text."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        list(YAML().load_all(text))
    except (YAMLError, RecursionError) as error:
        return " ".join(str(error).split())
    return "it has a document that cannot be read alone"


def _indented(line: str, like: str) -> str:
    return " " * _depth(like) + line.lstrip(" ")


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _shifted(lines: Sequence[str], given: Sequence[str], before: Sequence[str]) -> Iterator[str]:
    """New lines, each as deep as the file has the last line above that is its sibling."""
    by = 0
    for line in lines:
        above = (n for n in reversed(range(len(before))) if before[n].strip() and _depth(before[n]) <= _depth(line))
        at = next(above, None)
        if at is not None and _depth(before[at]) == _depth(line):
            by = _depth(given[at]) - _depth(before[at])
        yield " " * max(0, _depth(line) + by) + line.lstrip(" ")


def _shared(documents: Sequence[Any]) -> set[int]:
    """Ids of the mappings and lists that stand in several places."""
    seen: set[int] = set()
    shared: set[int] = set()

    def visit(found: Any) -> None:
        if not isinstance(found, (dict, list)):
            return
        if id(found) in seen:
            shared.add(id(found))
            return
        seen.add(id(found))
        for each in found.values() if isinstance(found, dict) else found:
            visit(each)

    for document in documents:
        visit(document)
    return shared


def _without_anchors(found: Any) -> Any:
    from ruamel.yaml.anchor import Anchor

    for each in _inside(found):
        if hasattr(each, Anchor.attrib):
            delattr(each, Anchor.attrib)
    return found


def _inside(found: Any) -> Iterator[Any]:
    yield found
    if isinstance(found, (dict, list)):
        for each in found.values() if isinstance(found, dict) else found:
            yield from _inside(each)


def _list_offset(text: str) -> int:
    """By how many spaces lists are indented below their key."""
    found = _LIST.search(text)
    return max(0, len(found[2]) - len(found[1])) if found else 0
