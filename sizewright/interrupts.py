"""Delay the signals that end a program while a section must not be interrupted."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name))


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay signals that end the program until the context ends, so that nothing stays half created or half removed.

    Outside the main thread this does nothing, since signals are handled only there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in ENDING}
    before = {number: handler for number, handler in before.items() if handler not in (None, signal.SIG_IGN)}
    try:
        for number in before:
            signal.signal(number, lambda number, _: received.append(number))
        yield
    finally:
        interruption: BaseException | None = None
        for number, handler in before.items():
            try:
                signal.signal(number, handler)
            except BaseException as error:  # raised by a handler that was restored already
                interruption = error
                signal.signal(number, handler)
        for number in dict.fromkeys(received):
            signal.raise_signal(number)
        if interruption is not None:
            raise interruption
