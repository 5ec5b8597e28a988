"""Signal handling of the command line: one message, no traceback, and no process left running."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from sizewright.interrupts import ENDING

INTERRUPTED = 130
"""Exit code of a verb that has reported its interruption; the process exits with 128 + the number of the signal."""
_PATIENCE_S = 120.0  # a last snapshot may take this long
_RETRY_S = 0.02
_MESSAGE = b"Stopped.\n"


class Ending:
    """Handles the signals of one command line, from start to exit.

    Before a verb begins and after it has ended there is nothing to clean up, so a signal ends the process at once.
    While it runs, the first signal raises KeyboardInterrupt, and later ones are ignored. A thread kills the process if
    it has not ended within `patience_s`.
    """

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        self.received: int | None = None
        self._patience_s = patience_s
        self._verb_runs = False
        self._raised = False

    def begin(self) -> None:
        """Handle the signals of this process from now on."""
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(reader,), daemon=True, name="signals").start()
        for number in ENDING:
            # A process started in the background or under nohup ignores these; SIGTERM ends it there, too.
            if number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._handle)
        signal.signal(signal.SIGALRM, self._retry)

    @contextlib.contextmanager
    def cleaning_up(self) -> Iterator[None]:
        """Let a verb clean up after a signal; any exception that follows the signal ends the process."""
        self._verb_runs = True
        try:
            yield
        except BaseException as error:
            if self.received is None:
                raise
            _write_error(error)
            self._leave(reported=getattr(error, "exit_code", None) == INTERRUPTED)
        finally:
            self._verb_runs = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt once, as soon as that breaks no import and is not swallowed."""
        if self._raised:
            return
        self.received = self.received or number
        if not self._verb_runs:
            _exit(self.received)
        sys.unraisablehook = lambda _: None  # errors elsewhere that the interrupt causes are not shown
        threading.excepthook = lambda _: None
        if _must_not_raise(frame):
            signal.setitimer(signal.ITIMER_REAL, _RETRY_S)
        else:
            self._raised = True
            raise KeyboardInterrupt

    def _retry(self, *_: object) -> None:
        """Send the signal again, since it could not be raised the first time."""
        if self._verb_runs and self.received is not None:
            signal.raise_signal(self.received)

    def _leave(self, *, reported: bool) -> NoReturn:
        """End the process without interpreter shutdown, in which interrupted libraries may crash."""
        assert self.received is not None
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()
        with contextlib.suppress(BaseException):
            _end_children()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):
                stream.flush()
        _exit(self.received, b"" if reported else _MESSAGE)

    def _watch(self, reader: socket.socket) -> None:
        """Kill the process as a last resort; signals arrive here even if the main thread is stuck outside Python."""
        with contextlib.suppress(OSError):
            while number := reader.recv(1):
                if number[0] in ENDING:
                    time.sleep(self._patience_s)
                    with contextlib.suppress(BaseException):
                        _end_children()
                    message = f"Stopped. Processes that did not end within {self._patience_s:g} s were killed.\n"
                    _exit(number[0], message.encode())


def _write_error(error: BaseException) -> None:
    """Write what an error that follows a signal says to the user, such as where the copy of a job is."""
    from sizewright.errors import SizewrightError

    if isinstance(error, SizewrightError):
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"Error: {error}\n")


def _must_not_raise(frame: FrameType | None) -> bool:
    """Return True if an exception would break an import, or be swallowed by a finalizer."""
    while frame is not None:
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        if file.startswith("<frozen importlib") or name == "__del__" or file == _WEAKREF:
            return True
        frame = frame.f_back
    return False


_WEAKREF = contextlib.__file__.replace("contextlib", "weakref")


def _end_children() -> None:
    import psutil

    children = psutil.Process().children(recursive=True)
    for child in children:
        with contextlib.suppress(psutil.Error):
            child.kill()
    psutil.wait_procs(children, timeout=5)


def _exit(number: int, message: bytes = _MESSAGE) -> NoReturn:
    with contextlib.suppress(OSError):
        os.write(2, message)
    os._exit(128 + number)


ending = Ending()
