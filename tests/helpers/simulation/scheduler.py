"""Scheduler of simulated processes and threads: one runs at a time, and the seed decides which is next."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

import greenlet

_JITTER_S = 0.0002
_YIELDS = 0.05
"""Probability that another thread runs first when a lock is taken."""


class OverError(greenlet.GreenletExit):
    """The simulation has ended."""


class Process:
    """A process, which can be killed or stopped; `on_kill` runs at its end, as the kernel closes its sockets."""

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
        """Number of waits so far, so that an outdated alarm does not wake the task."""
        self.done = False
        self.error: BaseException | None = None
        self.locals: dict[int, dict[str, Any]] = {}


class Scheduler:
    """Runs tasks until no work remains; `now` is the simulated time in seconds."""

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
        """Create a process."""
        self.processes.append(Process(len(self.processes) + 1, name))
        return self.processes[-1]

    def spawn(self, process: Process, target: Callable[[], Any], name: str = "") -> Task:
        """Start a thread of a process."""

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
        """Draw an exponential delay in seconds."""
        return self.rng.expovariate(1.0) * mean_s

    def wait(self, timeout_s: float | None = None) -> None:
        """Let others run until the current task is woken or the timeout has passed."""
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
        """Resume a waiting task soon."""
        self._alarm(task, self.delay())

    def maybe_yield(self) -> None:
        """Occasionally let another task run first."""
        if self.over:
            raise OverError
        if self.current is not None and self.rng.random() < _YIELDS:
            self.wait(self.delay())

    def run(self, until: Callable[[], bool], limit_s: float) -> bool:
        """Run until a condition holds, the simulated time limit passes or no work remains; return the condition."""
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
        """Kill a process as SIGKILL does: none of its threads runs again, not even to clean up."""
        if process.alive:
            process.alive = False
            for each in process.on_kill:
                each()

    def stop(self, process: Process) -> None:
        """Stop a process as SIGSTOP does."""
        process.stopped = True

    def go_on(self, process: Process) -> None:
        """Continue a process as SIGCONT does."""
        process.stopped = False
        parked, process.parked = process.parked, []
        for task in parked:
            self._alarm(task, self.delay())

    def end(self) -> None:
        """Unwind all tasks without running them further."""
        self.over = True
        for task in self.tasks:
            if task.greenlet and not task.done:
                self.current = task
                task.greenlet.throw(OverError)
        self.current = None
        self._alarms.clear()

    def _alarm(self, task: Task, in_s: float) -> None:
        heapq.heappush(self._alarms, (self.now + in_s, next(self._order), task, task.waits))
