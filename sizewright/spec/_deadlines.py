"""Limit the time of calls whose own time-outs begin again with every byte that arrives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")


def within(timeout_s: float, call: Callable[[], T]) -> T:
    """Return the result of a call. Raises the call's error, or TimeoutError if it takes longer than `timeout_s`.

    The call runs in a thread of its own, which nothing waits for after the time-out.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True, name="deadline").start()
    if not wait([future], timeout_s).done:
        raise TimeoutError(f"no complete answer within {timeout_s:g} s")
    return future.result()
