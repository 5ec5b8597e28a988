"""The picture of the architecture is drawn from its page, and the page says what the code imports."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_code"))

from architecture import PICTURE, picture, stated_imports  # noqa: E402


def imported() -> dict[str, set[str]]:
    """Which rooms import which, wherever in a file; what the public face loads is no room."""
    rooms: dict[str, set[str]] = {}
    for path in (ROOT / "sizewright").rglob("*.py"):
        room = path.relative_to(ROOT / "sizewright").parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        found = rooms.setdefault(room, set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "sizewright":
                found |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sizewright."):
                found.add(str(node.module).split(".")[1])
    return {room: {below for below in found if below != room and below in rooms} for room, found in rooms.items()}


def below(room: str, rooms: dict[str, set[str]]) -> set[str]:
    return rooms[room].union(*(below(each, rooms) for each in rooms[room]))


def test_the_page_says_what_the_code_imports() -> None:
    rooms = imported()
    direct = {
        room: {each for each in found if not any(each in below(other, rooms) for other in found - {each})}
        for room, found in rooms.items()
    }  # fmt: skip
    assert stated_imports() == direct


def test_the_kept_picture_is_that_of_the_page() -> None:
    assert PICTURE.read_text(encoding="utf-8") == picture(stated_imports()), "run: python docs/_code/architecture.py"
