"""Reusable daemon threads, which end with the program even while they wait."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

_Task = tuple["Future[None]", Callable[..., None], tuple[Any, ...]]


class ThreadCache:
    """A thread pool without a maximum size.

    It reuses threads, because each new one would leave a malloc arena full of freed arrays behind. It does not use
    `ThreadPoolExecutor`, whose threads keep a program from ending.
    """

    def __init__(self) -> None:
        self._idle: list[queue.SimpleQueue[_Task]] = []
        self._lock = threading.Lock()

    def submit(self, work: Callable[..., None], *args: Any) -> Future[None]:
        """Start a task at once in an idle or a new thread."""
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
