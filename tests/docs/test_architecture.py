"""The architecture picture is drawn from its page, and the page agrees with the imports of the code."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_code"))

from architecture import PICTURE, picture, stated_imports  # noqa: E402


def imported() -> dict[str, set[str]]:
    """Return the imports between subpackages; the names of the public package are not subpackages."""
    rooms: dict[str, set[str]] = {}
    for path in (ROOT / "sizewright").rglob("*.py"):
        room = path.relative_to(ROOT / "sizewright").parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        imports = rooms.setdefault(room, set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "sizewright":
                imports |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sizewright."):
                imports.add(str(node.module).split(".")[1])
    return {
        room: {reachable for reachable in imports if reachable != room and reachable in rooms}
        for room, imports in rooms.items()
    }


def reachable(room: str, rooms: dict[str, set[str]]) -> set[str]:
    return rooms[room].union(*(reachable(each, rooms) for each in rooms[room]))


def test_page_agrees_with_the_imports_of_the_code() -> None:
    rooms = imported()
    direct = {
        room: {each for each in imports if not any(each in reachable(other, rooms) for other in imports - {each})}
        for room, imports in rooms.items()
    }  # fmt: skip
    assert stated_imports() == direct


def test_stored_picture_is_that_of_the_page() -> None:
    assert PICTURE.read_text(encoding="utf-8") == picture(stated_imports()), "run: python docs/_code/architecture.py"
