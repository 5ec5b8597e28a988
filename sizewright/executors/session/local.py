"""Run jobs on this machine; plans are YAML files that can be read back and run."""

from __future__ import annotations

from pathlib import Path

from sizewright.executors.session._base import SessionExecutor
from sizewright.spec import Plan


class LocalExecutor(SessionExecutor):
    """Run jobs on this host; those of one process share a private Ray, which ends with the last of them.

    Commands need no Ray.
    """

    name = "local"


def load_plan(path: str | Path) -> Plan:
    """Read back a plan that `LocalExecutor` rendered. Raises JobError for a file that is not a plan."""
    return Plan.load(path)
