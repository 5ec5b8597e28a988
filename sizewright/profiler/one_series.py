"""One series of trials at a time on a host: two would measure each other."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator

import psutil

NAME_VARIABLE = "SIZEWRIGHT_SERIES_LOCK"
"""Series of another name do not wait: for parts of a host that share no cores."""
_NAME = "sizewright-series"
_LOOKS_EVERY_S = 0.2


@contextlib.contextmanager
def alone_on_host(waits: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Wait until no other series runs on this host, and keep others waiting; `waits` is told which one runs.

    The lock is a socket without a file, which the kernel lets go of when its process ends, however it does. Hosts
    without such sockets (not Linux) have no lock.
    """
    with socket.socket(socket.AF_UNIX) as mine:
        told = False
        while not _take(mine):
            if not told:
                waits(f"Another series of trials runs on this host ({_holder()}). This one begins when that has ended.")
            told = True
            time.sleep(_LOOKS_EVERY_S)
        yield


def _take(mine: socket.socket) -> bool:
    if not sys.platform.startswith("linux"):
        return True
    try:
        mine.bind(_address())
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise
    mine.listen()
    return True


def _holder() -> str:
    """The process that has the lock, as far as can be told."""
    with contextlib.suppress(OSError, psutil.Error), socket.socket(socket.AF_UNIX) as asks:
        asks.connect(_address())
        pid, _, _ = struct.unpack("3i", asks.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        return f"process {pid} of {psutil.Process(pid).username()}"
    return "of another process"


def _address() -> str:
    return f"\0{os.environ.get(NAME_VARIABLE) or _NAME}"
