"""Jobs on this machine, on a Ray of their own; plans are YAML files that are read back and run."""

from __future__ import annotations

from pathlib import Path

from sizewright.executors.session_executor import SessionExecutor
from sizewright.spec import Plan


class LocalExecutor(SessionExecutor):
    """Each job starts a Ray on this machine, which ends with it."""

    name = "local"


def load_plan(path: str | Path) -> Plan:
    """Read back a plan that `LocalExecutor` rendered. Raises JobError for every user mistake."""
    return Plan.load(path)
