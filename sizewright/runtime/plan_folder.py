"""Write the changes that a control loop proposes as plan files, for others to apply."""

from __future__ import annotations

from pathlib import Path

from sizewright.datasets.files.atomic_write import write_text_atomically
from sizewright.errors import InputError
from sizewright.executors.yaml_documents import to_yaml
from sizewright.recommender.control.decisions import Decision
from sizewright.spec import Job
from sizewright.spec._paths import absolute


class PlanFolder:
    """The plan files in the folder `path`. Raises InputError where it cannot be written."""

    def __init__(self, path: str | Path, job: Job) -> None:
        self._path, self._job = Path(absolute(path)), job
        self._last: Decision | None = None
        try:
            self._path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"Cannot write plans to {path}: {error.strerror}.", "Name another folder.") from None

    def on_decision(self, decision: Decision) -> None:
        """Write the plan of a decision that proposes a change, unless the last plan proposed the same."""
        if decision.kind != "adjust" or (self._last and decision.wants_as(self._last)):
            return
        self._last = decision
        plan = decision.plan(self._job)
        text = to_yaml([decision.reason], plan.model_dump(mode="json", exclude_none=True))
        try:
            write_text_atomically(self._path / f"{plan.id}.yaml", text)
        except OSError as error:
            raise InputError(f"Cannot write plans to {self._path}: {error.strerror}.", "Name another folder.") from None
