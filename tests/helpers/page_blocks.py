"""The code blocks of a documentation page; the kind of a block says how it is tested.

- `console`: lines after `$ ` are run by a shell, the others are what they print; `# exits 3` at the end of a command
  is its exit code, 0 by default; a command that ends in ` &` serves until the page is done.
- `python`: run, all of a page in one namespace.
- a file: the line above says `<!-- file: NAME -->`; it is written there.
- `text`: output, or what is no code; not run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_FENCE = re.compile(r"^( *)```+([^`]*)$")
_FILE = re.compile(r"<!-- file: (\S+) -->")
_EXITS = re.compile(r"#[^#]*\bexits (\d+)")


@dataclass(frozen=True)
class Command:
    """One command of a page, and the output that the page shows for it."""

    line: int
    text: str
    shown: tuple[str, ...] = ()

    @property
    def exits(self) -> int:
        """The exit code that the page states."""
        match = _EXITS.search(self.text)
        return int(match[1]) if match else 0


@dataclass(frozen=True)
class Block:
    """A fenced block: its kind, the line of its first line, and its text."""

    kind: str
    line: int
    text: str
    file: str | None = None

    @property
    def commands(self) -> list[Command]:
        """The commands of a `console` block, in order."""
        parts: list[tuple[int, list[str], list[str]]] = []
        going_on = False
        for number, line in enumerate(self.text.splitlines(), self.line):
            if line.startswith("$ "):
                parts.append((number, [line[2:]], []))
            elif going_on:
                parts[-1][1].append(line)
            elif parts:
                parts[-1][2].append(line)
            going_on = line.endswith("\\") and (going_on or line.startswith("$ "))
        return [Command(number, "\n".join(words), tuple(shown)) for number, words, shown in parts]


@dataclass
class Page:
    """A page with its blocks."""

    path: Path
    blocks: list[Block] = field(default_factory=list)

    def of(self, kind: str) -> Iterator[Block]:
        """Return the blocks of one kind."""
        return (block for block in self.blocks if block.kind == kind and block.file is None)


def read_page(path: Path) -> Page:
    """Return the page at a path; raise ValueError for a block that does not end."""
    page, lines, above = Page(path), path.read_text(encoding="utf-8").splitlines(), ""
    numbered = iter(enumerate(lines, 1))
    for number, line in numbered:
        fence = _FENCE.match(line)
        if not fence:
            above = line.strip() or above
            continue
        body, indent = list[str](), len(fence[1])
        for _, inner in numbered:
            if inner.strip() == "```":
                break
            body.append(inner[indent:])
        else:
            raise ValueError(f"{path}:{number}: the block does not end")
        named = _FILE.fullmatch(above)
        page.blocks.append(Block(fence[2].strip(), number + 1, "\n".join(body) + "\n", named[1] if named else None))
        above = ""
    return page
