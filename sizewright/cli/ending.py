"""How signals end the command line: once, with one sentence, without a traceback, and with nothing left running."""

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
"""With this exit code a verb says that it was stopped; the process ends with 128 and the number of the signal."""
_PATIENCE_S = 120.0  # a last snapshot may take so long
_AGAIN_S = 0.02
_SENTENCE = b"Stopped.\n"


class Ending:
    """The signals of one command line, from its first moment to its last.

    Before a verb begins and after it has ended nothing is to be cleaned up: a signal ends the process at once. While
    it runs, the first signal raises KeyboardInterrupt, and all later ones are ignored. A thread ends the process hard
    where that has not ended it within `patience_s`.
    """

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        self.received: int | None = None
        self._patience_s = patience_s
        self._cleans_up = self._raised = False

    def begin(self) -> None:
        """Answer for the signals of this process from now on."""
        wakes, woken = socket.socketpair()
        woken.setblocking(False)
        signal.set_wakeup_fd(woken.detach(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(wakes,), daemon=True, name="signals").start()
        for number in ENDING:
            # What starts it in the background or under nohup ignores these; SIGTERM ends it there, too.
            if number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._handle)
        signal.signal(signal.SIGALRM, self._again)

    @contextlib.contextmanager
    def cleaning_up(self) -> Iterator[None]:
        """While a verb runs, which may have something to clean up. What an interrupt brings about ends the process."""
        self._cleans_up = True
        try:
            yield
        except BaseException as error:
            if self.received is None:
                raise
            self._leave(told=getattr(error, "exit_code", None) == INTERRUPTED)
        finally:
            self._cleans_up = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt once, as soon as it does not leave a module half imported or get lost."""
        if self._raised:
            return
        self.received = self.received or number
        if not self._cleans_up:
            _exit(self.received)
        sys.unraisablehook = lambda _: None  # what the interrupt cuts short elsewhere is no news
        threading.excepthook = lambda _: None
        if _must_not_raise(frame):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        else:
            self._raised = True
            raise KeyboardInterrupt

    def _again(self, *_: object) -> None:
        """Send it once more: like the first, it waits where it must."""
        if self._cleans_up and self.received is not None:
            signal.raise_signal(self.received)

    def _leave(self, *, told: bool) -> NoReturn:
        """End the process without the interpreter's own end, in which libraries that were cut short may crash."""
        assert self.received is not None
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()
        with contextlib.suppress(BaseException):
            _end_children()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):
                stream.flush()
        _exit(self.received, b"" if told else _SENTENCE)

    def _watch(self, wakes: socket.socket) -> None:
        """The last resort. It sees signals also while the main thread is stuck outside Python."""
        with contextlib.suppress(OSError):
            while number := wakes.recv(1):
                if number[0] in ENDING:
                    time.sleep(self._patience_s)
                    with contextlib.suppress(BaseException):
                        _end_children()
                    _exit(
                        number[0], f"Stopped; what had not ended within {self._patience_s:g} s was killed.\n".encode()
                    )


def _must_not_raise(frame: FrameType | None) -> bool:
    """Whether an exception would break what is being imported, or be swallowed by a finalizer."""
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


def _exit(number: int, told: bytes = _SENTENCE) -> NoReturn:
    with contextlib.suppress(OSError):
        os.write(2, told)
    os._exit(128 + number)


ending = Ending()
