"""The figures of the benchmarks, made from what full runs kept: one table each, misses in bold and named above it; and
what each script says it measures."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

_BOUND = re.compile(r"(≤|<=|≥|>=|<|>)\s*(-?[0-9.]+)")
_RANGE = re.compile(r"(-?[0-9.]+) to (-?[0-9.]+)")
_NOT_FIGURES = ("benchmark", "quick", "targets", "host", "details", "tables")


def figure_tables(benchmarks: Path) -> dict[str, str]:
    """`figures-NAME.md` of each benchmark whose full run is kept, `about-NAME.md` of each script."""
    kept = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in benchmarks.glob("results/*.json")}
    pages = {f"figures-{name}.md": _table(told) for name, told in kept.items()}
    for script in benchmarks.glob("[a-z]*.py"):
        about = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
        pages[f"about-{script.stem}.md"] = about + "\n"
    return pages


def missed(told: dict[str, Any]) -> dict[str, tuple[float, str]]:
    """The figures that are beyond the bound which their target begins with, with it."""
    targets = told.get("targets", {})
    return {
        name: (value, targets[name])
        for name, value in told.items() if isinstance(value, int | float) and _beyond(value, targets.get(name, ""))
    }  # fmt: skip


def _beyond(value: float, target: str) -> bool:
    if between := _RANGE.match(target):
        return not float(between[1]) <= value <= float(between[2])
    found = _BOUND.match(target)
    if not found:
        return False
    sign, bound = found[1], float(found[2])
    met = {"≤": value <= bound, "<=": value <= bound, "≥": value >= bound, ">=": value >= bound,
           "<": value < bound, ">": value > bound}  # fmt: skip
    return not met[sign]


def _table(told: dict[str, Any]) -> str:
    beyond, targets = missed(told), told.get("targets", {})
    names = [name for name in told if name not in _NOT_FIGURES]
    rows = [
        f"| `{name}` | {f'**{_number(told[name])}**' if name in beyond else _number(told[name])} "
        f"| {targets.get(name, '')} |" for name in names
    ]  # fmt: skip
    misses = ", ".join(f"`{name}`: {_number(value)} ({target})" for name, (value, target) in beyond.items())
    said = f"Beyond the bound that its target begins with: {misses}." if beyond else "No figure is beyond its target."
    head = ["<details><summary>All figures as kept</summary>", "", "| figure | measured | target |", "|---|---|---|"]
    return "\n".join([said, "", *head, *rows, "", "</details>", ""])


def _number(value: Any) -> str:
    return "unknown" if value is None else f"{value:,.4g}" if isinstance(value, int | float) else str(value)
