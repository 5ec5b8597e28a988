"""YAML texts of others, changed in place: comments, order and quotes stay as they are."""

from __future__ import annotations

import io
import re
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

        self._yaml = YAML()  # of its kinds of loaders the one that runs nothing and keeps comments
        self._yaml.preserve_quotes = True
        self._yaml.width = 1 << 20
        try:
            self.documents: list[Any] = list(self._yaml.load_all(text))
        except DuplicateKeyError:
            from_yaml(text, name)  # raises with the key and its lines
            raise InputError(f"{name} has a key twice.", "Keep one of them.") from None
        except YAMLError as error:
            told = " ".join(str(error).split())
            raise InputError(f"{name} is not YAML: {told:.200}.", "Mend it, or leave the base manifest out.") from None
        offset = _list_offset(text)
        self._yaml.indent(mapping=2, sequence=offset + 2, offset=offset)
        self._yaml.explicit_start = text.lstrip().startswith("---")

    @classmethod
    def load(cls, path: str | Path) -> YamlText:
        """Raises InputError for a file that cannot be read or is not YAML."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot be read: {error}.", "Pass the path of a manifest.") from None
        return cls(text, str(path))

    @property
    def text(self) -> str:
        """All documents as one text."""
        out = io.StringIO()
        self._yaml.dump_all(self.documents, out)
        return out.getvalue()


def _list_offset(text: str) -> int:
    """By how many spaces lists are indented below their key."""
    found = _LIST.search(text)
    return max(0, len(found[2]) - len(found[1])) if found else 0
