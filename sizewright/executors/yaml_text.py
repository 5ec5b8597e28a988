"""YAML texts of others, changed in place: comments, order and quotes stay as they are."""

from __future__ import annotations

import copy
import difflib
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sizewright.errors import InputError
from sizewright.executors.manifest import from_yaml

_LIST = re.compile(r"^( *)[^\s#-][^#\n]*:[ \t]*(?:#.*)?\n(?:[ \t]*(?:#.*)?\n)*( *)- ", re.MULTILINE)


class YamlText:
    """The documents of one file; `documents` may be changed, and `text` is the file with these changes."""

    def __init__(self, text: str, name: str = "The manifest") -> None:
        from ruamel.yaml import YAML
        from ruamel.yaml.constructor import DuplicateKeyError
        from ruamel.yaml.error import YAMLError

        self._crlf, self._given = "\r\n" in text, text.replace("\r\n", "\n")
        self._yaml = YAML()  # of its kinds of loaders the one that runs nothing and keeps comments
        self._yaml.preserve_quotes = True
        self._yaml.width = 1 << 20
        try:
            self.documents: list[Any] = list(self._yaml.load_all(self._given))
        except DuplicateKeyError:
            from_yaml(text, name)  # raises with the key and its lines
            raise InputError(f"{name} has a key twice.", "Keep one of them.") from None
        except YAMLError as error:
            told = " ".join(str(error).split())
            raise InputError(f"{name} is not YAML: {told:.200}.", "Mend it, or leave the base manifest out.") from None
        offset = _list_offset(self._given)
        self._yaml.indent(mapping=2, sequence=offset + 2, offset=offset)
        self._yaml.explicit_start = self._given.lstrip().startswith("---")
        self._unchanged = self._dumped()

    @classmethod
    def load(cls, path: str | Path) -> YamlText:
        """Raises InputError for a file that cannot be read or is not YAML."""
        try:
            text = Path(path).read_bytes().decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot be read: {error}.", "Pass the path of a manifest.") from None
        return cls(text, str(path))

    @property
    def text(self) -> str:
        """All documents as one text: lines without a change are those of the file, byte for byte."""
        changed = self._dumped()
        text = self._merged(changed)
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

    def _dumped(self) -> str:
        out = io.StringIO()
        self._yaml.dump_all(self.documents, out)
        return out.getvalue()

    def _merged(self, changed: str) -> str:
        """The file with the changed lines, where it differs from what is written of it only in its layout."""
        from ruamel.yaml import YAML

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
        except Exception:  # the layout of the file does not allow it
            same = False
        return text if same else changed


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
