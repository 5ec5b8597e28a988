"""The end of every benchmark: a table, a file in `results/` for full runs, and one line of JSON."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

SMOKE = os.environ.get("SMOKE") == "1"
"""Use the smallest sizes, only to check that the script runs."""
QUICK = SMOKE or os.environ.get("QUICK") == "1"
T = TypeVar("T")
_PACKAGES = ("numpy", "scipy", "torch", "ray", "pydantic", "sqlalchemy")


def choose(full: T, quick: T, smoke: T) -> T:
    """Return the size for the form that runs."""
    return smoke if SMOKE else quick if QUICK else full


def finish(
    name: str,
    figures: Mapping[str, float],
    targets: Mapping[str, str],
    details: Mapping[str, object] | None = None,
    *,
    part: bool = False,
    tables: Mapping[str, Mapping[str, float]] | None = None,
    rivals: Mapping[str, Mapping[str, Mapping[str, float]]] | None = None,
    keep: bool = True,
) -> None:
    """Print the figures with their targets, keep the result of a full run, and print the JSON line.

    A `part` replaces only its own figures in the kept result. `tables` are the same figures for each table. `rivals`
    are figures of rivals by size. Without `keep` nothing is kept.
    """
    print(f"\n{'figure':<28}{'value':>12}   target")
    for key, value in figures.items():
        print(f"{key:<28}{value:>12.4g}   {targets.get(key, '')}")
    line: dict[str, object] = {"benchmark": name, "quick": QUICK, **_rounded(figures)}
    if tables is not None:
        line["tables"] = {table: _rounded(row) for table, row in tables.items()}
    if rivals is not None:
        line["rivals"] = {size: {name: _rounded(row) for name, row in rows.items()} for size, rows in rivals.items()}
    if not QUICK and keep:
        path = _result_path(name)
        before = kept(name) if part else {}
        all_details = {**before.pop("details", {}), **(details or {})}
        for last in ("targets", "host", "commit"):
            before.pop(last, None)
        result = before | line | {"targets": dict(targets), "commit": commit(), "host": host(), "details": all_details}
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(line, allow_nan=False))


def kept(name: str) -> dict[str, Any]:
    """Return the kept result of a benchmark, empty if there is none."""
    path = _result_path(name)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _result_path(name: str) -> Path:
    return Path(__file__).parent / "results" / f"{name}.json"


def _rounded(figures: Mapping[str, float]) -> dict[str, float | None]:
    """Round the figures. Unknown and infinite ones become null."""
    return {key: round(value, 5) if math.isfinite(value) else None for key, value in figures.items()}


def commit() -> str:
    """Return the commit of the code that runs, with `-dirty` where files other than kept results differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude,top)benchmarks/results")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("-dirty" if changed else "")


def host() -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {package: _version(package) for package in _PACKAGES},
    }


def _version(package: str) -> str | None:
    """Return the version of a package, None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
