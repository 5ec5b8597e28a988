"""Simulated counterparts of `threading` and `time`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from tests.helpers.simulation.scheduler import Scheduler, Task


class SimTime:
    """Stands for the module `time`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.monotonic = self.perf_counter = self.time = lambda: scheduler.now
        self.strftime = time.strftime

    def sleep(self, seconds: float) -> None:
        """Let `seconds` of simulated time pass."""
        self._scheduler.wait(seconds + self._scheduler.delay())


class SimThreading:
    """Stands for the parts of the module `threading` that the engine uses."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def Lock(self) -> SimLock:  # noqa: N802
        return SimLock(self._scheduler)

    def RLock(self) -> SimLock:  # noqa: N802
        return SimLock(self._scheduler, reentrant=True)

    def Condition(self, lock: SimLock | None = None) -> SimCondition:  # noqa: N802
        return SimCondition(self._scheduler, lock or SimLock(self._scheduler, reentrant=True))

    def Event(self) -> SimEvent:  # noqa: N802
        return SimEvent(self._scheduler)

    def Thread(  # noqa: N802
        self, *, target: Callable[..., Any], args: tuple[Any, ...] = (), daemon: bool = True, name: str = ""
    ) -> SimThread:
        return SimThread(self._scheduler, lambda: target(*args), name)

    def local(self) -> Local:
        return Local(self._scheduler)

    def current_thread(self) -> Task | None:
        return self._scheduler.current

    def main_thread(self) -> object:
        return threading.main_thread()


class SimLock:
    """Stands for Lock or RLock."""

    def __init__(self, scheduler: Scheduler, *, reentrant: bool = False) -> None:
        self._scheduler, self._reentrant = scheduler, reentrant
        self._owner: Task | None = None
        self._count = 0
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        task = self._scheduler.current
        assert task is not None
        if self._reentrant and self._owner is task:
            self._count += 1
            return True
        if not blocking:
            if self._owner is not None:
                return False
        else:
            self._scheduler.maybe_yield()
            while self._owner is not None:
                self._waiting.append(task)
                self._scheduler.wait()
        self._owner, self._count = task, 1
        return True

    def release(self) -> None:
        self._count -= 1
        if self._count == 0:
            self._owner = None
            self._wake_one()

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        if not self._scheduler.over:
            self.release()

    def _wake_one(self) -> None:
        if self._waiting:
            at = self._scheduler.rng.randrange(len(self._waiting))
            self._scheduler.wake(self._waiting.pop(at))


class SimCondition:
    """Stands for Condition; spurious wake-ups happen."""

    def __init__(self, scheduler: Scheduler, lock: SimLock) -> None:
        self._scheduler, self._lock = scheduler, lock
        self._waiting: list[Task] = []
        self.acquire, self.release = lock.acquire, lock.release

    def wait(self, timeout: float | None = None) -> bool:
        task = self._scheduler.current
        assert task is not None
        count, self._lock._count = self._lock._count, 1
        self._lock.release()
        self._waiting.append(task)
        before = self._scheduler.now
        self._scheduler.wait(timeout)
        woken = task not in self._waiting
        if not woken:
            self._waiting.remove(task)
        self._lock.acquire()
        self._lock._count = count
        return woken or timeout is None or self._scheduler.now - before < timeout

    def wait_for(self, ready: Callable[[], Any], timeout: float | None = None) -> Any:
        deadline = None if timeout is None else self._scheduler.now + timeout
        while not (result := ready()):
            remaining_s = None if deadline is None else deadline - self._scheduler.now
            if remaining_s is not None and remaining_s <= 0:
                return result
            self.wait(remaining_s)
        return result

    def notify_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self._scheduler.wake(task)

    def notify(self, n: int = 1) -> None:
        self.notify_all()

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__()


class SimEvent:
    """Stands for Event."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._set = scheduler, False
        self._waiting: list[Task] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self._scheduler.wake(task)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            task = self._scheduler.current
            assert task is not None
            self._waiting.append(task)
            self._scheduler.wait(timeout)
            if task in self._waiting:
                self._waiting.remove(task)
        return self._set


class SimThread:
    """Stands for Thread; it belongs to the process that created it."""

    def __init__(self, scheduler: Scheduler, run: Callable[[], Any], name: str) -> None:
        self._scheduler, self._run, self._name = scheduler, run, name
        assert scheduler.current is not None
        self._process = scheduler.current.process
        self._ended = SimEvent(scheduler)
        self._task: Task | None = None

    def start(self) -> None:
        def run() -> None:
            try:
                self._run()
            finally:
                self._ended.set()

        self._task = self._scheduler.spawn(self._process, run, self._name)

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._task

    def __hash__(self) -> int:
        return id(self)


class Local:
    """Stands for local."""

    def __init__(self, scheduler: Scheduler) -> None:
        object.__setattr__(self, "_scheduler", scheduler)

    def _values(self) -> dict[str, Any]:
        task = object.__getattribute__(self, "_scheduler").current
        values: dict[str, Any] = task.locals.setdefault(id(self), {})
        return values

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values()[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._values()[name] = value
