"""The seam that every executor stands behind: plans in, metrics and an outcome out."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from pydantic import Field, model_validator

from sizewright.spec._base import Record
from sizewright.spec.metrics import Metrics
from sizewright.spec.outcome import Outcome
from sizewright.spec.plan import Plan


class Capabilities(Record):
    """What an executor can do; the method of each one that it cannot raises UnsupportedError."""

    launch: bool = Field(default=False, description="starts jobs")
    adjust: bool = Field(default=False, description="changes a running job")
    live: bool = Field(default=False, description="changes it while it trains on")
    migrate: bool = Field(default=False, description="replaces single replicas while it trains on")
    rebalance: bool = Field(default=False, description="evens out the look-ups of the PS while it trains on")
    observe: bool = Field(default=False, description="reports metrics of a running job, and waits for its end")
    stop: bool = Field(default=False, description="ends a running job")
    render: bool = Field(default=False, description="writes a plan as text for others to carry out")


class Handle(Record):
    """A reference to a running job, plain enough to be written down."""

    executor: str = Field(description="name of the executor that launched it")
    id: str = Field(description="unique to the job within its executor")
    job: str = Field(description="name of the job")


class ChangeCost(Record):
    """Seconds that a change takes, with the interval that holds 90 % of them."""

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
    """Carries out plans and reports what becomes of them.

    What is not among its `capabilities` raises UnsupportedError; a plan of the wrong kind, or a handle that is
    unknown or stopped, raises InputError. `sizewright.testing.ExecutorContract` checks all of it.
    """

    name: str
    capabilities: Capabilities

    def launch(self, plan: Plan) -> Handle:
        """Start the job of a `launch` plan; returns once it trains or, on a platform of queues, once that has taken it.

        The same plan again, while its job runs, gives the same handle.
        """
        ...

    def adjust(self, handle: Handle, plan: Plan) -> None:
        """Bring a running job to an `adjust` plan's target, replace what it is to migrate, then even out the look-ups
        of its PS if it is to rebalance; `keep` leaves it as it is, and so does a plan that was carried out before.

        Raises InputError during the cool-down of the plan applied last, and when the job is not as the plan's
        `current` has it; the job trains on as it was.
        """
        ...

    def observe(self, handle: Handle) -> Metrics:
        """Sums of every replica of a running job."""
        ...

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Whether the job has ended, trained in full or failed; waits at most `timeout_s` seconds for it."""
        ...

    def stop(self, handle: Handle) -> Outcome:
        """End the job, if it still runs, and say what became of it; a second stop returns the same."""
        ...

    def render(self, plan: Plan) -> str:
        """The manifest that this executor's platform understands."""
        ...

    def change_cost(self, plan: Plan) -> ChangeCost:
        """Seconds from the plan to the first step after it: learned from earlier ones; 0 where nothing changes."""
        ...


@runtime_checkable
class ShowsDifference(Protocol):
    """An executor whose platform can be asked what a plan would change there."""

    def find(self, plan: Plan) -> Handle | None:
        """The job that a plan is for, where the platform has it."""
        ...

    def difference(self, plan: Plan) -> str:
        """Lines of a diff from what is there to what is planned; nothing is changed. Raises as applying it would."""
        ...


@runtime_checkable
class RestoresReplicas(Protocol):
    """An executor that puts others in the places of dead replicas by itself."""

    def expect_memory(self, handle: Handle, ps_bytes: int) -> None:
        """What a PS is forecast to need: one that memory ends is to come back with that."""
        ...
