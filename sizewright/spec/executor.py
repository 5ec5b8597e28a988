"""The protocol of executors, which take plans and return metrics and an outcome."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from pydantic import Field, model_validator

from sizewright.spec._base import Record
from sizewright.spec.metrics import Metrics
from sizewright.spec.outcome import Outcome
from sizewright.spec.plan import Plan


class Capabilities(Record):
    """The capabilities of an executor; the method of an unsupported one raises UnsupportedError."""

    launch: bool = Field(default=False, description="starts jobs")
    adjust: bool = Field(default=False, description="changes a running job")
    live: bool = Field(default=False, description="changes it while it trains on")
    migrate: bool = Field(default=False, description="replaces single replicas while it trains on")
    rebalance: bool = Field(default=False, description="evens out the look-ups of the PS while it trains on")
    observe: bool = Field(default=False, description="reports metrics of a running job, and waits for its end")
    stop: bool = Field(default=False, description="ends a running job")
    render: bool = Field(default=False, description="writes a plan as text for others to carry out")


class Handle(Record):
    """A serialisable reference to a running job."""

    executor: str = Field(description="name of the executor that launched it")
    id: str = Field(description="unique to the job within its executor")
    job: str = Field(description="name of the job")


class ChangeCost(Record):
    """Seconds that a change takes, with the 90 % interval."""

    seconds: float = Field(ge=0, description="median of the next one")
    lower: float = Field(ge=0, description="seconds")
    upper: float = Field(ge=0, description="seconds")
    changes: int = Field(default=0, ge=0, description="measured changes it rests on; 0 is the executor's prior")

    @model_validator(mode="after")
    def _ordered(self) -> ChangeCost:
        if not self.lower <= self.seconds <= self.upper:
            raise ValueError(f"lower ≤ seconds ≤ upper does not hold for {self.lower}, {self.seconds}, {self.upper}")
        return self


class Executor(Protocol):
    """An executor carries out plans and reports metrics and outcomes.

    A method that is not among its `capabilities` raises UnsupportedError; a plan of the wrong kind, or a handle that is
    unknown or stopped, raises InputError. `sizewright.testing.ExecutorContract` tests this protocol.
    """

    name: str
    capabilities: Capabilities

    def launch(self, plan: Plan) -> Handle:
        """Start the job of a `launch` plan; return when it trains or, on a platform with queues, when it is accepted.

        The same plan, while its job runs, returns the same handle.
        """
        ...

    def adjust(self, handle: Handle, plan: Plan) -> None:
        """Bring a running job to the target of an `adjust` plan.

        Then replace the replicas to migrate, and rebalance the look-ups of the PS if the plan says so. `keep`, and a
        plan that was applied before, change nothing. Raises InputError during the cool-down of the last plan, and when
        the job does not match the plan's `current`; the job then trains on unchanged.
        """
        ...

    def observe(self, handle: Handle) -> Metrics:
        """Return the sums of every replica of a running job."""
        ...

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Wait up to `timeout_s` seconds for the job to end, and return whether it has finished or failed.

        Raises EngineError if the platform does not answer; a run then waits again, and does not stop the job.
        """
        ...

    def stop(self, handle: Handle) -> Outcome:
        """Stop the job if it still runs, and return its outcome; a second stop returns the same."""
        ...

    def render(self, plan: Plan) -> str:
        """Return the manifest of a plan for the platform of this executor."""
        ...

    def change_cost(self, plan: Plan) -> ChangeCost:
        """Return the seconds from a plan to the first step after it, learned from earlier changes; 0 for no change."""
        ...


@runtime_checkable
class ShowsDifference(Protocol):
    """An executor that can show what a plan would change on its platform."""

    def find(self, plan: Plan) -> Handle | None:
        """Return the handle of the plan's job; None if the platform does not have it."""
        ...

    def difference(self, plan: Plan) -> str:
        """Return a diff from the current state to the plan; empty if applying the plan would change nothing.

        Nothing is changed. Raises the errors that applying the plan would raise.
        """
        ...


@runtime_checkable
class RestoresReplicas(Protocol):
    """An executor that replaces dead replicas by itself."""

    def expect_memory(self, handle: Handle, ps_bytes: int) -> None:
        """Set the forecast memory of a PS, with which one that runs out of memory is restarted."""
        ...
