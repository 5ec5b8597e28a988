"""Plans for this machine: the plan itself as a YAML file that is read back and run in Python."""

from __future__ import annotations

from pathlib import Path

from sizewright.executors._base import to_yaml
from sizewright.spec import Plan


class LocalExecutor:
    """Writes plans that `sizewright.training.session.Session` carries out on this machine."""

    name = "local"

    def render(self, plan: Plan) -> str:
        """The plan as YAML, of whatever kind; `load_plan` reads it back."""
        return to_yaml(_header(plan), plan.model_dump(mode="json", exclude_none=True))


def load_plan(path: str | Path) -> Plan:
    """Read back a plan that `LocalExecutor` rendered. Raises JobError for every user mistake."""
    return Plan.load(path)


def _header(plan: Plan) -> list[str]:
    return [
        f"Sizewright plan {plan.id}: {plan.kind} {plan.target.describe()}",
        f"Why: {plan.reason}",
        "",
        "To run it here, in Python (pip install 'sizewright[profile]'):",
        "    from sizewright.executors.local import load_plan",
        "    from sizewright.training.session import Session",
        '    plan = load_plan("this-file.yaml")',
        "    with Session(plan.job) as session:",
        "        session.scale(plan.target)  # trains until this block is left",
        "",
    ]
