"""Run many jobs on one cluster: it is divided among them in rounds, and the control loop of each follows its share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from sizewright.cluster.problem.candidates import JobTable
from sizewright.cluster.shared_cluster import SharedCluster
from sizewright.errors import InputError, SizewrightError
from sizewright.recommender.control.controller import Controller
from sizewright.recommender.control.decisions import Decision
from sizewright.spec import Allocation, Executor, Handle, Metrics, Outcome


class LaunchedJob(NamedTuple):
    """A running job and its control loop; `on_metrics` and `on_end` are called with what is observed of it."""

    executor: Executor
    handle: Handle
    controller: Controller
    on_metrics: Callable[[Metrics | None], None] = lambda _: None
    on_end: Callable[[Outcome], Outcome] = lambda outcome: outcome
    on_decision: Callable[[Decision], None] = lambda _: None


Launch = Callable[[str, Allocation], LaunchedJob]
"""A function that launches the job of a name with an allocation."""


class SharedRun:
    """Jobs that share a cluster: those that wait, those that run, and the outcomes of those that have ended.

    In a round each job that runs offers what it could have, with the samples/s that its own model expects; each job
    that waits offers the candidates with which it was submitted. A job that runs is not stopped for others. Whoever
    gets less gives it back first; what others get on top, and who is launched, waits until that is free.

    `launch` starts a job, and `clock` counts seconds.
    """

    def __init__(self, shared: SharedCluster, launch: Launch, clock: Callable[[], float]) -> None:
        self.running: dict[str, LaunchedJob] = {}
        self.outcomes: dict[str, Outcome] = {}
        self._tables: dict[str, JobTable] = {}
        self._pending: dict[str, Allocation] = {}
        """Shares of the last round that their jobs do not have yet."""
        self._left_out: dict[str, str] = {}
        self._shared, self._launch, self._clock = shared, launch, clock

    @property
    def waiting(self) -> list[str]:
        """The names of the jobs that wait, in order of submission."""
        return [name for name in self._tables if name not in self.running]

    def submit(self, table: JobTable) -> None:
        """Add a job that waits. Raises InputError if there was one with its name."""
        if table.name in self._tables or table.name in self.outcomes:
            raise InputError(f"There is a job named {table.name} already.", "Give each job a name of its own.")
        self._tables[table.name] = table

    def step(self) -> None:
        """Take one turn: note the jobs that have ended, divide if that is due, and let each job follow its share."""
        for name in list(self.running):
            self._end_if_done(name)
        now_s = self._clock()
        if self._tables and self._shared.is_due(now_s, self._tables):
            self._divide(now_s)
        shrinking = [name for name in self.running if not self._grows(name)]
        for name in shrinking:
            self._follow(name)
        for name in [name for name in self.running if name not in shrinking]:
            self._follow(name)
        if not self.running and not self._pending:
            self._give_up_waiting()
        for name in self.waiting:
            if (share := self._pending.get(name)) and self._shared.has_room([*self._held(name), share]):
                self._start(name, share)

    def stop(self) -> None:
        """Stop all jobs that run."""
        for name in list(self.running):
            self._end(name)

    def _divide(self, now_s: float) -> None:
        tables = [self._table(name, now_s) for name in self._tables]
        division = self._shared.divide(tables, now_s)
        self._pending = {name: share for name, share in division.allocations().items() if share is not None}
        self._left_out = {each.job: f"{each.what} was left out: {each.why}" for each in division.tables.left_out}

    def _table(self, name: str, now_s: float) -> JobTable:
        """Return the candidates of a job as they are now."""
        table = self._tables[name]
        if name not in self.running:
            return table
        controller = self.running[name].controller
        metrics = controller.latest
        left = table.samples_left if metrics is None or metrics.samples_left is None else metrics.samples_left
        return replace(
            table,
            candidates=controller.candidates() or table.candidates,
            samples_left=max(float(left), 1.0),
            current=controller.allocation,
            restart_s=controller.change_s(),
            may_wait=False,
        )

    def _grows(self, name: str) -> bool:
        """Return whether a running job gets more of any resource than it has."""
        share = self._pending.get(name)
        if share is None:
            return False
        before, after = (self._shared.needs(each) for each in (self.running[name].controller.allocation, share))
        return bool((after > before).any())

    def _follow(self, name: str) -> None:
        """Grant a running job its share if that is free, and let its control loop take a turn."""
        controller = self.running[name].controller
        share = self._pending.get(name, controller.allocation)
        controller.granted = share if self._shared.has_room([*self._held(name), share]) else controller.allocation
        self.running[name].on_decision(controller.reconcile())
        self.running[name].on_metrics(controller.latest)
        if controller.allocation == share:
            self._pending.pop(name, None)

    def _held(self, name: str) -> list[Allocation]:
        """Return what the other running jobs have."""
        return [job.controller.allocation for other, job in self.running.items() if other != name]

    def _start(self, name: str, share: Allocation) -> None:
        try:
            self.running[name] = self._launch(name, share)
            del self._pending[name]
        except SizewrightError as error:
            self._forget(name, Outcome(status="failed", message=str(error)))

    def _end_if_done(self, name: str) -> None:
        job = self.running[name]
        try:
            ended = job.executor.wait(job.handle, 0.0)
        except SizewrightError:  # its outcome says why
            ended = True
        if ended:
            self._end(name)

    def _end(self, name: str) -> None:
        job = self.running.pop(name)
        self._forget(name, job.on_end(job.executor.stop(job.handle)))

    def _give_up_waiting(self) -> None:
        """End the jobs that the empty cluster has no room for."""
        for name in self.waiting:
            why = self._left_out.get(name, "the cluster has no room for any of its candidates")
            self._forget(name, Outcome(status="failed", message=f"It cannot run on this cluster: {why}."))

    def _forget(self, name: str, outcome: Outcome) -> None:
        self.outcomes[name] = outcome
        del self._tables[name]
        self._pending.pop(name, None)
