"""Jobs on this machine; plans are YAML files that are read back and run."""

from __future__ import annotations

from pathlib import Path

from sizewright.executors.session_executor import SessionExecutor
from sizewright.spec import Plan


class LocalExecutor(SessionExecutor):
    """Jobs of one process share a Ray of their own, which ends with the last of them; commands need none."""

    name = "local"


def load_plan(path: str | Path) -> Plan:
    """Read back a plan that `LocalExecutor` rendered. Raises JobError for every user mistake."""
    return Plan.load(path)
