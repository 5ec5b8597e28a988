"""Draw the picture of the architecture from the table of its page: python docs/_code/architecture.py

The SVG is the same on every machine, so that a test can compare the kept picture with the page.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
PAGE, PICTURE = DOCS / "architecture.md", DOCS / "architecture.svg"
WIDE, HIGH, BOX_WIDE, BOX_HIGH = 190, 74, 150, 38
COLUMNS = {
    "progress": 1, "container": 1,
    "reporting": 2, "plots": 2, "runtime": 2, "executors": 2, "training": 2, "interrupts": 2,
    "spec": 3.85,
    "retraining": 4, "profiler": 4, "skypilot": 4,
    "settings": 3.9,
    "lazy_exports": 4.75, "errors": 4.75, "redaction": 4.75,
    "testing": 5.75, "cluster": 5.75, "plugins": 5.75,
}  # fmt: skip
"""Columns of the subpackages, from the left, chosen so that arrows cross few boxes; all others are in column 3."""
_ROW = re.compile(r"^\| `(\w+)` \| .* \| (.*)\|$", re.MULTILINE)
Point = tuple[float, float]


def stated_imports() -> dict[str, set[str]]:
    """Return what each subpackage imports, according to the page."""
    return {name: set(re.findall(r"`(\w+)`", below)) for name, below in _ROW.findall(PAGE.read_text(encoding="utf-8"))}


def picture(rests_on: dict[str, set[str]]) -> str:
    """Return an SVG with each subpackage above all that it imports."""
    levels = {name: _level(name, rests_on) for name in rests_on}
    top = max(levels.values())
    at = {name: ((COLUMNS.get(name, 3) - 0.5) * WIDE, 30 + (top - levels[name]) * HIGH) for name in rests_on}
    widest = max(x for x, _ in at.values()) + WIDE / 2
    arrows = [_arrow(at, name, below) for name in rests_on for below in sorted(rests_on[name])]
    boxes = [_box(name, *at[name]) for name in rests_on]
    said = "; ".join(f"{name} imports {', '.join(sorted(below))}" for name, below in rests_on.items() if below)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {widest:g} {30 + top * HIGH + 40:g}" role="img">',
        f"<title>Subpackages of Sizewright</title><desc>{said}</desc>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L10 5L0 10z" fill="#7a8794"/></marker></defs>',
        *arrows, *boxes, "</svg>", "",
    ])  # fmt: skip


def _level(name: str, rests_on: dict[str, set[str]]) -> int:
    return max((_level(below, rests_on) + 1 for below in rests_on[name]), default=0)


def _arrow(at: dict[str, Point], name: str, imported: str) -> str:
    path = ROUTES.get((name, imported), _from_box_to_box)(at[name], at[imported])
    return f'<path d="{path}" fill="none" stroke="#7a8794" stroke-width="1.4" marker-end="url(#tip)"/>'


def _from_box_to_box(start: Point, end: Point) -> str:
    (x, y), (u, v) = (start[0], start[1] + BOX_HIGH / 2), (end[0], end[1] - BOX_HIGH / 2)
    middle = (y + v) / 2
    return f"M{x:g} {y:g}C{x:g} {middle:g} {u:g} {middle:g} {u:g} {v:g}"


def _over_the_next_row(start: Point, end: Point) -> str:
    """Return a path that runs to the right between two rows of boxes before it goes down."""
    (x, y), (u, v) = (start[0], start[1] + BOX_HIGH / 2), (end[0], end[1] - BOX_HIGH / 2)
    gap, turn = start[1] + HIGH / 2, x + 1.6 * WIDE
    down = f"C{turn + 160:g} {gap:g} {u:g} {v - HIGH:g} {u:g} {v:g}"
    return f"M{x:g} {y:g}C{x:g} {gap:g} {x:g} {gap:g} {turn:g} {gap:g}{down}"


ROUTES = {("executors", "plugins"): _over_the_next_row}
"""Paths of the arrows that would otherwise run behind a box."""


def _box(name: str, x: float, y: float) -> str:
    corner = f'x="{x - BOX_WIDE / 2:g}" y="{y - BOX_HIGH / 2:g}" width="{BOX_WIDE}" height="{BOX_HIGH}" rx="7"'
    text = f'<text x="{x:g}" y="{y + 5:g}" text-anchor="middle" font-family="sans-serif" font-size="15">{name}</text>'
    return f'<rect {corner} fill="#eef3f8" stroke="#3b7dc4"/>{text}'


if __name__ == "__main__":
    PICTURE.write_text(picture(stated_imports()), encoding="utf-8")
