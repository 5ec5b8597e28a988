"""Tables of the benchmark figures from the kept full runs, with misses in bold, and the description of each script."""

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
    """Return `figures-NAME.md` of each benchmark with a kept full run, and `about-NAME.md` of each script."""
    kept = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in benchmarks.glob("results/*.json")}
    pages = {f"figures-{name}.md": _table(result) for name, result in kept.items()}
    for script in benchmarks.glob("[a-z]*.py"):
        about = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
        pages[f"about-{script.stem}.md"] = about + "\n"
    return pages


def missed(result: dict[str, Any]) -> dict[str, tuple[float, str]]:
    """Return the figures that miss their target, with the target.

    Bounds are numbers or other figures, joined by `and` and `, or`, as in `≤ 0.1 and ≤ prior_regret + 5`. Other words
    of a target are ignored.
    """
    targets = result.get("targets", {})
    return {
        name: (value, targets[name])
        for name, value in result.items()
        if isinstance(value, int | float) and _beyond(value, targets.get(name, ""), result)
    }  # fmt: skip


def _beyond(value: float, target: str, result: dict[str, Any]) -> bool:
    each = [
        [_meets(value, bound, result) for bound in part.split(", or ")]
        for part in _THOUSANDS.sub("", target).split(" and ")
    ]
    return any(False in part and True not in part for part in each)


def _meets(value: float, bound: str, result: dict[str, Any]) -> bool | None:
    """Return whether a value meets a bound, or None if the text is not a bound."""
    if between := _RANGE.match(bound):
        return float(between[1]) <= value <= float(between[2])
    match = _BOUND.match(bound)
    if not match or not isinstance(limit := result.get(match[3], match[3]), int | float | str):
        return None
    value, sign = float(result[match[1]]) if match[1] in result else value, match[2]
    try:
        threshold = float(limit) + float(match[4] or 0)
    except ValueError:
        return None
    return {
        "≤": value <= threshold, "<=": value <= threshold, "≥": value >= threshold, ">=": value >= threshold,
        "<": value < threshold, ">": value > threshold,
    }[sign]  # fmt: skip


def _table(result: dict[str, Any]) -> str:
    beyond, targets = missed(result), result.get("targets", {})
    names = [name for name in result if name not in _NOT_FIGURES]
    rows = [
        f"| `{name}` | {f'**{_number(result[name])}**' if name in beyond else _number(result[name])} "
        f"| {targets.get(name, '')} |" for name in names
    ]  # fmt: skip
    misses = ", ".join(f"`{name}`: {_number(value)} ({target})" for name, (value, target) in beyond.items())
    summary = f"Beyond its target: {misses}." if beyond else "No figure is beyond its target."
    head = ["<details><summary>All figures as kept</summary>", "", "| figure | measured | target |", "|---|---|---|"]
    summary += f" Measured at commit `{result['commit']}`."
    return "\n".join([summary, "", *head, *rows, "", "</details>", ""])


def _number(value: Any) -> str:
    return "unknown" if value is None else f"{value:,.4g}" if isinstance(value, int | float) else str(value)
