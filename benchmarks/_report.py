"""How every benchmark ends: a table, a file in `results/` for full runs, and one line of JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

QUICK = os.environ.get("QUICK") == "1"
_PACKAGES = ("numpy", "scipy", "torch", "ray", "pydantic", "sqlalchemy")


def finish(name: str, figures: Mapping[str, float], targets: Mapping[str, str], details: object = None) -> None:
    """Print figure against target, keep a full run, and end with the JSON line."""
    print(f"\n{'figure':<28}{'value':>12}   target")
    for key, value in figures.items():
        print(f"{key:<28}{value:>12.4g}   {targets.get(key, '')}")
    line = {"benchmark": name, "quick": QUICK, **{key: round(value, 5) for key, value in figures.items()}}
    if not QUICK:
        kept = line | {"targets": dict(targets), "host": _host(), "details": details}
        path = Path(__file__).parent / "results" / f"{name}.json"
        path.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(line))


def _host() -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in _PACKAGES},
    }
