"""Processes and threads of a simulation: one runs at a time, and the seed decides which is next."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

import greenlet

_JITTER_S = 0.0002
_YIELDS = 0.05
"""Share of the locks that are taken at which another thread may go first."""


class OverError(greenlet.GreenletExit):
    """The simulation has ended."""


class Process:
    """What can be killed or stopped as a whole. `on_kill` is called at its end, as the kernel closes its sockets."""

    def __init__(self, number: int, name: str) -> None:
        self.number, self.name = number, name
        self.alive, self.stopped = True, False
        self.parked: list[Task] = []
        self.on_kill: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"{self.name}#{self.number}"


class Task:
    """A thread of a process."""

    def __init__(
        self, number: int, process: Process, name: str, run: Callable[[], Any], hub: greenlet.greenlet
    ) -> None:
        self.number, self.process, self.name = number, process, name
        self.greenlet = greenlet.greenlet(run, parent=hub)
        self.waits = 0
        """Counts the waits, so that an old alarm wakes nobody."""
        self.done = False
        self.error: BaseException | None = None
        self.locals: dict[int, dict[str, Any]] = {}


class Scheduler:
    """Runs tasks until nothing is left to do; `now` is the simulated time in seconds."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now, self.switches, self.digest = 0.0, 0, 0
        self.current: Task | None = None
        self.over = False
        self.processes: list[Process] = []
        self.tasks: list[Task] = []
        self._alarms: list[tuple[float, int, Task, int]] = []
        self._order = itertools.count()
        self._hub = greenlet.getcurrent()

    def process(self, name: str) -> Process:
        """A new process."""
        self.processes.append(Process(len(self.processes) + 1, name))
        return self.processes[-1]

    def spawn(self, process: Process, target: Callable[[], Any], name: str = "") -> Task:
        """A new thread of a process."""

        def run() -> None:
            try:
                target()
            except OverError:
                pass
            except BaseException as error:
                task.error = error
            finally:
                task.done = True

        task = Task(len(self.tasks), process, name, run, self._hub)
        self.tasks.append(task)
        self._alarm(task, self.delay())
        return task

    def delay(self, mean_s: float = _JITTER_S) -> float:
        """A random time."""
        return self.rng.expovariate(1.0) * mean_s

    def wait(self, timeout_s: float | None = None) -> None:
        """Called in a task: let others run until it is woken or the time has passed."""
        if self.over:
            raise OverError
        task = self.current
        assert task is not None
        task.waits += 1
        if timeout_s is not None:
            self._alarm(task, max(0.0, timeout_s))
        self._hub.switch()
        if self.over:
            raise OverError

    def wake(self, task: Task) -> None:
        """A task that waits goes on soon."""
        self._alarm(task, self.delay())

    def maybe_yield(self) -> None:
        """Now and then another goes first."""
        if self.over:
            raise OverError
        if self.current is not None and self.rng.random() < _YIELDS:
            self.wait(self.delay())

    def run(self, until: Callable[[], bool], limit_s: float) -> bool:
        """Run until something holds; returns whether it does before so much simulated time, and while there is work."""
        while self._alarms and not until():
            at, _, task, waits = heapq.heappop(self._alarms)
            if task.waits != waits or task.done or not task.process.alive:
                continue
            if at > limit_s:
                return False
            self.now = max(self.now, at)
            if task.process.stopped:
                task.process.parked.append(task)
                continue
            self.switches += 1
            self.digest = hash((self.digest, task.number, round(self.now * 1e9)))
            self.current = task
            task.greenlet.switch()
            self.current = None
        return until()

    def kill(self, process: Process) -> None:
        """As SIGKILL does: none of its threads runs again, not even to clean up."""
        if process.alive:
            process.alive = False
            for each in process.on_kill:
                each()

    def stop(self, process: Process) -> None:
        """As SIGSTOP does."""
        process.stopped = True

    def go_on(self, process: Process) -> None:
        """As SIGCONT does."""
        process.stopped = False
        parked, process.parked = process.parked, []
        for task in parked:
            self._alarm(task, self.delay())

    def end(self) -> None:
        """Unwind all tasks, which do nothing more."""
        self.over = True
        for task in self.tasks:
            if task.greenlet and not task.done:
                self.current = task
                task.greenlet.throw(OverError)
        self.current = None
        self._alarms.clear()

    def _alarm(self, task: Task, in_s: float) -> None:
        heapq.heappush(self._alarms, (self.now + in_s, next(self._order), task, task.waits))
