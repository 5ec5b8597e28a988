"""Threads that end with the program, whatever they wait for, and are kept for later work meanwhile."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

_Task = tuple["Future[None]", Callable[..., None], tuple[Any, ...]]


class KeptThreads:
    """As a thread pool without an upper end: a new thread for each task would leave its malloc arena, full of freed
    arrays, behind; and those of a pool would keep a program from ending."""

    def __init__(self) -> None:
        self._idle: list[queue.SimpleQueue[_Task]] = []
        self._lock = threading.Lock()

    def submit(self, work: Callable[..., None], *args: Any) -> Future[None]:
        """Begin at once in a thread of its own."""
        future: Future[None] = Future()
        with self._lock:
            inbox = self._idle.pop() if self._idle else self._begin()
        inbox.put((future, work, args))
        return future

    def _begin(self) -> queue.SimpleQueue[_Task]:
        inbox: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        threading.Thread(target=self._run, args=(inbox,), daemon=True, name="kept").start()
        return inbox

    def _run(self, inbox: queue.SimpleQueue[_Task]) -> None:
        while True:
            future, work, args = inbox.get()
            try:
                work(*args)
                future.set_result(None)
            except BaseException as error:
                future.set_exception(error)
            del future, work, args  # else they would stay until the next task
            with self._lock:
                self._idle.append(inbox)
