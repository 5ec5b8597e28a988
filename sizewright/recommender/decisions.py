"""What a control loop decided and why: a file that only grows, a JSON object a line, from which it goes on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sizewright.datasets.json_lines import JsonLines
from sizewright.datasets.trials import Trial
from sizewright.errors import StoreError
from sizewright.recommender.action import Choice
from sizewright.spec import Allocation, Job, Plan
from sizewright.spec._base import Record


class Forecast(Record):
    """Where the job is going as it is."""

    finish_s: float | None = Field(default=None, description="seconds until all is trained")
    ps_peak_bytes: int | None = Field(default=None, description="of the fullest PS so far")
    ps_peak_at_end_bytes: int | None = Field(
        default=None, description="of the fullest PS at the end, surely not exceeded"
    )
    ps_limit_bytes: int = Field(default=0, description="of the smallest PS; 0 is none")


class Decision(Record):
    """One turn of the loop."""

    number: int = Field(ge=0, description="of the turn, from 0 for each run")
    at: datetime
    job_hash: str
    run: str = Field(default="", description="its executor's handle")
    kind: Literal["keep", "adjust", "blind"] = Field(description="blind: what was observed could not be trusted")
    stage: str = Field(default="", description="what decided: stabilize or scale")
    reason: str
    allocation: Allocation = Field(description="that it trained at")
    target: Allocation | None = Field(default=None, description="that it was to go to")
    migrate: tuple[str, ...] = Field(default=(), description="replicas that were to be put elsewhere")
    rebalance: bool = Field(default=False, description="whether the look-ups of the PS were to be evened out")
    choices: tuple[Choice, ...] = Field(default=(), description="some of the Pareto set that was chosen from")
    plan_id: str = ""
    applied: bool | None = Field(
        default=None, description="whether the executor carried it out; none where nothing was to do"
    )
    error: str = Field(default="", description="why it did not")
    throughput: float | None = Field(default=None, description="samples/s since the look before")
    samples_trained: int = Field(default=0, description="in all")
    samples_left: int | None = Field(default=None, description="still to be trained, where that is known")
    findings: tuple[str, ...] = ()
    forecast: Forecast = Forecast()
    evidence: Trial | None = Field(default=None, description="what was known of this allocation by then")
    timings_s: dict[str, float] = Field(default_factory=dict, description="seconds of each step of the turn")

    def plan(self, job: Job) -> Plan:
        """What it wants of the job: `adjust`, or `keep` with the reason."""
        adjusts = self.kind == "adjust"
        return Plan(
            id=self.plan_id or f"keep-{self.number}", kind="adjust" if adjusts else "keep", job=job, reason=self.reason,
            target=self.target or self.allocation if adjusts else self.allocation, current=self.allocation,
            migrate=self.migrate if adjusts else (), rebalance=self.rebalance and adjusts,
        )  # fmt: skip

    def wants_as(self, other: Decision) -> bool:
        """Whether both want the same change: a dry run wants it anew with every turn."""
        return (self.target, self.migrate, self.rebalance) == (other.target, other.migrate, other.rebalance)


class DecisionLog(JsonLines[Decision]):
    """At `path`. Raises StoreError where it cannot be read or written."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, Decision, "decisions")


class Journal:
    """Numbers the decisions about one run, and keeps them in `log`, if there is one; `forgive` is told where that
    cannot be written."""

    def __init__(self, run: str, log: DecisionLog | None, forgive: Callable[[StoreError], None]) -> None:
        self._run, self._log, self._forgive = run, log, forgive
        self.earlier = [told for told in (log.read() if log else []) if told.run == run]
        """Of loops of before beside this run."""
        self._number = self.earlier[-1].number + 1 if self.earlier else 0

    def add(self, **told: Any) -> Decision:
        """The next decision."""
        decision = Decision(number=self._number, run=self._run, **told)
        self._number += 1
        if self._log:
            try:
                self._log.append(decision)
            except StoreError as error:
                self._forgive(error)
        return decision
