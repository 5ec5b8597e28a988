"""The decisions of a control loop and their log, from which a later loop of the same run continues."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sizewright.datasets.files.json_lines import JsonLines
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import StoreError
from sizewright.recommender.control.action import Choice
from sizewright.spec import Allocation, Job, Plan
from sizewright.spec._base import Record
from sizewright.spec.reason import Reason


class Forecast(Record):
    """The forecast of a job that keeps its current allocation."""

    finish_s: float | None = Field(default=None, description="seconds until all samples are trained")
    ps_peak_bytes: int | None = Field(default=None, description="peak memory of the fullest PS so far")
    ps_peak_at_end_bytes: int | None = Field(
        default=None, description="upper bound of the peak memory of the fullest PS at the end"
    )
    ps_limit_bytes: int = Field(default=0, description="memory limit of the smallest PS; 0 for no limit")


class Decision(Record):
    """One turn of the loop."""

    number: int = Field(ge=0, description="number of the turn, from 0 for each run")
    at: datetime
    job_hash: str
    run: str = Field(default="", description="the executor's handle of the run")
    kind: Literal["keep", "adjust", "blind"] = Field(description="blind: the observation could not be trusted")
    stage: str = Field(default="", description="the step that decided: stabilize or scale")
    reason: str
    details: tuple[Reason, ...] = Field(default=(), description="the reasons as kinds with their numbers")
    allocation: Allocation = Field(description="the allocation at which the job trained")
    target: Allocation | None = Field(default=None, description="the allocation to change to")
    migrate: tuple[str, ...] = Field(default=(), description="replicas to start elsewhere")
    rebalance: bool = Field(default=False, description="whether to rebalance the look-ups of the PS")
    choices: tuple[Choice, ...] = Field(default=(), description="part of the Pareto front that was chosen from")
    plan_id: str = ""
    applied: bool | None = Field(
        default=None, description="whether the executor applied the change; null without a change"
    )
    error: str = Field(default="", description="why the change was not applied")
    throughput: float | None = Field(default=None, description="samples/s since the last observation")
    samples_trained: int = Field(default=0, description="samples trained in all")
    samples_left: int | None = Field(default=None, description="samples still to be trained, where that is known")
    findings: tuple[str, ...] = ()
    finding_details: tuple[Reason, ...] = Field(default=(), description="the findings as kinds with their numbers")
    forecast: Forecast = Forecast()
    evidence: Trial | None = Field(default=None, description="measurements of the allocation up to this turn")
    timings_s: dict[str, float] = Field(default_factory=dict, description="seconds of each step of the turn")

    def plan(self, job: Job) -> Plan:
        """Return the decision as a plan of `job`: `adjust`, or `keep` with the reason."""
        adjusts = self.kind == "adjust"
        return Plan(
            id=self.plan_id or f"keep-{self.number}",
            kind="adjust" if adjusts else "keep",
            job=job,
            reason=self.reason,
            target=self.target or self.allocation if adjusts else self.allocation,
            current=self.allocation,
            migrate=self.migrate if adjusts else (),
            rebalance=self.rebalance and adjusts,
        )

    def wants_as(self, other: Decision) -> bool:
        """Return whether both decisions want the same change, as the turns of a dry run do."""
        return (self.target, self.migrate, self.rebalance) == (other.target, other.migrate, other.rebalance)


class DecisionLog(JsonLines[Decision]):
    """The decisions in the file at `path`, one JSON object per line; the file only grows.

    Raises StoreError where the file cannot be read or written.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, Decision, "decisions")


class DecisionRecorder:
    """Number the decisions about one run and append them to `log`, if there is one.

    `on_error` receives the error where the log cannot be written.
    """

    def __init__(self, run: str, log: DecisionLog | None, on_error: Callable[[StoreError], None]) -> None:
        self._run, self._log, self._on_error = run, log, on_error
        self.earlier = [decision for decision in (log.read() if log else []) if decision.run == run]
        """Decisions that earlier loops made about this run."""
        self._number = self.earlier[-1].number + 1 if self.earlier else 0

    def add(self, **fields: Any) -> Decision:
        """Return the next decision, from the remaining fields of `Decision`."""
        decision = Decision(number=self._number, run=self._run, **fields)
        self._number += 1
        if self._log:
            try:
                self._log.append(decision)
            except StoreError as error:
                self._on_error(error)
        return decision
