"""The figures of the benchmarks, made from what full runs kept: one table each, misses in bold and named above it; and
what each script says it measures."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

_BOUND = re.compile(r"(?:(\w+) )?(≤|<=|≥|>=|<|>) (-?[0-9.]+|[a-z]\w*)(?: \+ ([0-9.]+))?")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3})")
_RANGE = re.compile(r"(-?[0-9.]+) to (-?[0-9.]+)")
_NOT_FIGURES = ("benchmark", "quick", "targets", "commit", "host", "details", "tables")


def figure_tables(benchmarks: Path) -> dict[str, str]:
    """`figures-NAME.md` of each benchmark whose full run is kept, `about-NAME.md` of each script."""
    kept = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in benchmarks.glob("results/*.json")}
    pages = {f"figures-{name}.md": _table(told) for name, told in kept.items()}
    for script in benchmarks.glob("[a-z]*.py"):
        about = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
        pages[f"about-{script.stem}.md"] = about + "\n"
    return pages


def missed(told: dict[str, Any]) -> dict[str, tuple[float, str]]:
    """The figures that are beyond their target, with it. Bounds are numbers or other figures, with `and` and `, or`
    between them, as in `≤ 0.1 and ≤ prior_regret + 5`; what else a target says is not judged."""
    targets = told.get("targets", {})
    return {
        name: (value, targets[name])
        for name, value in told.items()
        if isinstance(value, int | float) and _beyond(value, targets.get(name, ""), told)
    }  # fmt: skip


def _beyond(value: float, target: str, told: dict[str, Any]) -> bool:
    each = [
        [_meets(value, bound, told) for bound in part.split(", or ")]
        for part in _THOUSANDS.sub("", target).split(" and ")
    ]
    return any(False in part and True not in part for part in each)


def _meets(value: float, bound: str, told: dict[str, Any]) -> bool | None:
    """None for what is no bound."""
    if between := _RANGE.match(bound):
        return float(between[1]) <= value <= float(between[2])
    found = _BOUND.match(bound)
    if not found or not isinstance(limit := told.get(found[3], found[3]), int | float | str):
        return None
    value, sign = float(told[found[1]]) if found[1] in told else value, found[2]
    try:
        least = float(limit) + float(found[4] or 0)
    except ValueError:
        return None
    return {"≤": value <= least, "<=": value <= least, "≥": value >= least, ">=": value >= least, "<": value < least,
            ">": value > least}[sign]  # fmt: skip


def _table(told: dict[str, Any]) -> str:
    beyond, targets = missed(told), told.get("targets", {})
    names = [name for name in told if name not in _NOT_FIGURES]
    rows = [
        f"| `{name}` | {f'**{_number(told[name])}**' if name in beyond else _number(told[name])} "
        f"| {targets.get(name, '')} |" for name in names
    ]  # fmt: skip
    misses = ", ".join(f"`{name}`: {_number(value)} ({target})" for name, (value, target) in beyond.items())
    said = f"Beyond its target: {misses}." if beyond else "No figure is beyond its target."
    head = ["<details><summary>All figures as kept</summary>", "", "| figure | measured | target |", "|---|---|---|"]
    said += f" Measured at commit `{told['commit']}`."
    return "\n".join([said, "", *head, *rows, "", "</details>", ""])


def _number(value: Any) -> str:
    return "unknown" if value is None else f"{value:,.4g}" if isinstance(value, int | float) else str(value)
