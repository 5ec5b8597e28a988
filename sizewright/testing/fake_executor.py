"""An executor in memory, for tests of code that uses executors."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from sizewright.errors import SizewrightError
from sizewright.executors.change_costs import NO_CHANGE
from sizewright.executors.plan_checks import check_capable
from sizewright.executors.registry import unsupported
from sizewright.executors.session._base import SessionExecutor, TrainingSession
from sizewright.spec import Capabilities, ChangeCost, Failure, Handle, Job, Metrics, Outcome, Plan
from sizewright.testing.clock import ManualClock, SleepingClock
from sizewright.testing.fake_session import FakeSession, Throughput, default_throughput

_COST = ChangeCost(seconds=0.5, lower=0.4, upper=0.6)


class Call(NamedTuple):
    """One call of the executor, including calls that failed."""

    method: str
    handle: Handle | None = None
    plan: Plan | None = None


class FakeExecutor(SessionExecutor):
    """An executor without processes: time is that of `clock`, samples/s are `throughput(allocation)`::

        executor = FakeExecutor()
        handle = executor.launch(plan)
        executor.clock.sleep(60)  # returns at once
        executor.observe(handle)

    The same calls give the same answers. `calls` records every call. `cost` and `throughput` can be set at any time.
    With fewer `capabilities` the other methods raise UnsupportedError, like those of a real executor.
    """

    name = "fake"

    def __init__(
        self,
        *,
        clock: SleepingClock | None = None,
        throughput: Throughput = default_throughput,
        samples: int | None = None,
        cost: ChangeCost = _COST,
        capabilities: Capabilities = SessionExecutor.capabilities,
    ) -> None:
        self.clock: SleepingClock = clock or ManualClock()
        super().__init__(samples=samples, clock=self.clock)
        self.throughput = throughput
        self.cost = cost
        self.capabilities = capabilities
        self.calls: list[Call] = []
        self._errors: dict[str, list[SizewrightError]] = {}
        self._numbers = itertools.count(1)

    def fail_next(self, method: str, error: SizewrightError) -> None:
        """Let the next call of `method` (such as "adjust") raise `error` and change nothing.

        Errors are queued. Raises ValueError for an unknown method.
        """
        if not callable(getattr(self, method, None)):
            raise ValueError(f"an executor has no method {method!r}")
        self._errors.setdefault(method, []).append(error)

    def fail_replica(
        self,
        handle: Handle,
        replica: str,
        *,
        cause: str = "killed",
        recovered_s: float | None = 1.0,
        samples_repeated: int = 0,
        updates_lost: int = 0,
    ) -> None:
        """Lose a replica (such as "ps-1") now, and replace it. With `recovered_s=None` the job fails.

        The outcome records the `cause`, the `samples_repeated` (trained twice) and the `updates_lost` (of rows). Raises
        InputError if the job does not run.
        """
        action = "The job failed." if recovered_s is None else f"{replica} was replaced."
        failure = Failure(
            at_s=0.0,
            replica=replica,
            cause=cause,
            recovered_s=recovered_s,
            samples_repeated=samples_repeated,
            updates_lost=updates_lost,
            action=action,
        )
        session = self._running(handle).session
        assert isinstance(session, FakeSession)
        session.fail(failure)

    def skew_lookups(self, handle: Handle, shares: tuple[float, ...]) -> None:
        """Give each PS one of `shares` of the look-ups until they are rebalanced; the fullest PS limits the job.

        Raises InputError if the job does not run.
        """
        session = self._running(handle).session
        assert isinstance(session, FakeSession)
        session.skew_lookups(shares)

    def launch(self, plan: Plan) -> Handle:
        """Launch a job that trains as the clock moves."""
        self._record("launch", plan=plan)
        return super().launch(plan)

    def adjust(self, handle: Handle, plan: Plan) -> None:
        """Adjust a running job; the clock moves by the seconds of `cost`."""
        self._record("adjust", handle, plan)
        check_capable(self, plan)
        super().adjust(handle, plan)

    def observe(self, handle: Handle) -> Metrics:
        """Return the cumulative metrics of every replica."""
        self._record("observe", handle)
        return super().observe(handle)

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Move the clock by up to `timeout_s` seconds. Return True if the job has ended."""
        self._record("wait", handle)
        return super().wait(handle, timeout_s)

    def stop(self, handle: Handle) -> Outcome:
        """Stop the job and return its outcome."""
        self._record("stop", handle)
        return super().stop(handle)

    def render(self, plan: Plan) -> str:
        """Return the plan as YAML."""
        self._record("render", plan=plan)
        return super().render(plan)

    def change_cost(self, plan: Plan) -> ChangeCost:
        """Return `cost` for any change, and 0 if nothing changes."""
        self._record("change_cost", plan=plan)
        return NO_CHANGE if plan.changes_nothing else self.cost

    def _record(self, method: str, handle: Handle | None = None, plan: Plan | None = None) -> None:
        self.calls.append(Call(method, handle, plan))
        capability = {"wait": "observe", "change_cost": None}.get(method, method)
        if capability and not getattr(self.capabilities, capability):
            raise unsupported(self.name, capability)
        if self._errors.get(method):
            raise self._errors[method].pop(0)

    def _wait_for_step(self, session: TrainingSession) -> bool:
        """Return True: a change takes `cost`, and does not wait for a step."""
        return True

    def _open(self, job: Job) -> TrainingSession:
        return FakeSession(
            job,
            self.clock,
            lambda allocation: self.throughput(allocation),  # `throughput` may be set later
            samples=self._samples,
            change_s=lambda: self.cost.seconds,
            live=self.capabilities.live,
        )

    def _constructor_call(self) -> str:
        return "FakeExecutor()"

    def _new_id(self, plan: Plan) -> str:
        return f"{plan.job.name}-{next(self._numbers)}"
