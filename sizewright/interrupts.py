"""Signals that end a program, held back while something must not be cut short."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name))


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals that end the program take effect when this has ended, so that nothing stays half made or half removed.

    In threads other than the main one this does nothing: no signal is handled there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    before = {number: signal.getsignal(number) for number in ENDING}
    before = {number: handler for number, handler in before.items() if handler not in (None, signal.SIG_IGN)}
    try:
        for number in before:
            signal.signal(number, lambda received, _: held.append(received))
        yield
    finally:
        cut_short: BaseException | None = None
        for number, handler in before.items():
            try:
                signal.signal(number, handler)
            except BaseException as error:  # of a handler that was put back already
                cut_short = error
                signal.signal(number, handler)
        for number in dict.fromkeys(held):
            signal.raise_signal(number)
        if cut_short is not None:
            raise cut_short
