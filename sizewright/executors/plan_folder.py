"""Changes that a loop wants and cannot make itself, as plan files for others to carry out."""

from __future__ import annotations

from pathlib import Path

from sizewright.datasets.whole_files import write_whole
from sizewright.errors import InputError
from sizewright.executors.manifest import to_yaml
from sizewright.recommender.decisions import Decision
from sizewright.spec import Job
from sizewright.spec._paths import absolute


class PlanFolder:
    """At `path`. Raises InputError where it cannot be written."""

    def __init__(self, path: str | Path, job: Job) -> None:
        self._path, self._job = Path(absolute(path)), job
        self._last: Decision | None = None
        try:
            self._path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"Cannot write plans to {path}: {error.strerror}.", "Name another folder.") from None

    def decided(self, decision: Decision) -> None:
        """Writes the plan of one that wants a change, unless it is the one that was wanted last."""
        if decision.kind != "adjust" or (self._last and decision.wants_as(self._last)):
            return
        self._last = decision
        plan = decision.plan(self._job)
        text = to_yaml([decision.reason], plan.model_dump(mode="json", exclude_none=True))
        try:
            write_whole(self._path / f"{plan.id}.yaml", text)
        except OSError as error:
            raise InputError(f"Cannot write plans to {self._path}: {error.strerror}.", "Name another folder.") from None
