"""Ends that leave nothing behind, whatever comes between."""

from __future__ import annotations

import atexit
import contextlib
import signal
import threading
import weakref
from collections.abc import Iterator
from typing import Protocol


class Stoppable(Protocol):
    """What has to be stopped."""

    def stop(self) -> None:
        """End everything; a second time is fine."""


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """No Ctrl-C and no SIGTERM comes in between."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def stop_at_exit(session: Stoppable) -> None:
    """For a program that ends without stopping its session."""
    atexit.register(_stop_if_there, weakref.ref(session))


def _stop_if_there(session: weakref.ref[Stoppable]) -> None:
    if (there := session()) is not None:
        there.stop()
