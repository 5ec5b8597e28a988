"""An executor in memory, for tests of what is built on executors."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from sizewright.errors import SizewrightError
from sizewright.executors.change_costs import NO_CHANGE
from sizewright.executors.registry import unsupported
from sizewright.executors.session_executor import SessionExecutor, TrainingSession
from sizewright.spec import Capabilities, ChangeCost, Failure, Handle, Job, Metrics, Outcome, Plan
from sizewright.testing.clock import ManualClock, SleepingClock
from sizewright.testing.fake_session import FakeSession, Throughput, default_throughput

_COST = ChangeCost(seconds=0.5, lower=0.4, upper=0.6)


class Call(NamedTuple):
    """One call of the executor, in the order in which they came; calls that failed are among them."""

    method: str
    handle: Handle | None = None
    plan: Plan | None = None


class FakeExecutor(SessionExecutor):
    """Does all that an executor does, without processes: time is `clock`'s, samples/s are `throughput(allocation)`::

        executor = FakeExecutor()
        handle = executor.launch(plan)
        executor.clock.sleep(60)  # no time of yours
        executor.observe(handle)

    The same calls give the same answers. `calls` records every call; `cost` and `throughput` may be set at any
    time; with fewer `capabilities` the rest raises UnsupportedError, as with a real executor.
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
        self.throughput, self.cost, self.capabilities = throughput, cost, capabilities
        self.calls: list[Call] = []
        self._fails: dict[str, list[SizewrightError]] = {}
        self._numbers = itertools.count(1)

    def fail_next(self, method: str, error: SizewrightError) -> None:
        """The next call of `method` (such as "adjust") raises `error` and changes nothing; calls may be queued.

        Raises ValueError where an executor has no such method.
        """
        if not callable(getattr(self, method, None)):
            raise ValueError(f"an executor has no method {method!r}")
        self._fails.setdefault(method, []).append(error)

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
        """Lose a replica (such as "ps-1") now; another takes its place. With `recovered_s=None` the job has failed.

        The outcome tells of it with its `cause`, `samples_repeated` that were trained twice and `updates_lost` of rows.
        Raises InputError for a job that does not run.
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
        """Each PS gets its one of `shares` of the look-ups until they are rebalanced; the fullest holds up all others.

        Raises InputError for a job that does not run.
        """
        session = self._running(handle).session
        assert isinstance(session, FakeSession)
        session.skew_lookups(shares)

    def launch(self, plan: Plan) -> Handle:
        """Start a job that trains as the clock moves."""
        self._called("launch", plan=plan)
        return super().launch(plan)

    def adjust(self, handle: Handle, plan: Plan) -> None:
        """Change a running job; the clock moves by the seconds of `cost`."""
        self._called("adjust", handle, plan)
        for capability, wanted in (("migrate", plan.migrate), ("rebalance", plan.rebalance)):
            if wanted and not getattr(self.capabilities, capability):
                raise unsupported(self.name, capability)
        super().adjust(handle, plan)

    def observe(self, handle: Handle) -> Metrics:
        """Sums of every replica."""
        self._called("observe", handle)
        return super().observe(handle)

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Let up to `timeout_s` seconds of the clock pass; whether the job has ended."""
        self._called("wait", handle)
        return super().wait(handle, timeout_s)

    def stop(self, handle: Handle) -> Outcome:
        """End the job."""
        self._called("stop", handle)
        return super().stop(handle)

    def render(self, plan: Plan) -> str:
        """The plan as YAML."""
        self._called("render", plan=plan)
        return super().render(plan)

    def change_cost(self, plan: Plan) -> ChangeCost:
        """`cost`, whatever the change; 0 where nothing changes."""
        self._called("change_cost", plan=plan)
        return NO_CHANGE if plan.changes_nothing else self.cost

    def _called(self, method: str, handle: Handle | None = None, plan: Plan | None = None) -> None:
        self.calls.append(Call(method, handle, plan))
        capability = {"wait": "observe", "change_cost": None}.get(method, method)
        if capability and not getattr(self.capabilities, capability):
            raise unsupported(self.name, capability)
        if self._fails.get(method):
            raise self._fails[method].pop(0)

    def _stepped(self, session: TrainingSession) -> bool:
        """Changes take `cost`, and not a step more."""
        return True

    def _open(self, job: Job) -> TrainingSession:
        return FakeSession(
            job,
            self.clock,
            lambda allocation: self.throughput(allocation),  # whatever it is by then
            samples=self._samples,
            change_s=lambda: self.cost.seconds,
            live=self.capabilities.live,
        )

    def _made_with(self) -> str:
        return "FakeExecutor()"

    def _new_id(self, plan: Plan) -> str:
        return f"{plan.job.name}-{next(self._numbers)}"
