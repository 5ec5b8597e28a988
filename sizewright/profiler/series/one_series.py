"""A lock that allows one series of trials at a time on a host: two would slow each other down."""

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
"""Names the lock. Series with different names run at the same time: for parts of a host that share no cores."""
_NAME = "sizewright-series"
_POLL_S = 0.2


@contextlib.contextmanager
def alone_on_host(waits: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Hold the lock of this host, waiting until no other series runs; `waits` is called once with a message meanwhile.

    The lock is an abstract socket, which the kernel releases when its process ends for any reason. Hosts without such
    sockets (not Linux) have no lock.
    """
    with socket.socket(socket.AF_UNIX) as lock:
        waiting = False
        while not _acquire(lock):
            if not waiting:
                waits(f"Another series of trials runs on this host ({_holder()}). This one starts when that has ended.")
            waiting = True
            time.sleep(_POLL_S)
        yield


def _acquire(lock: socket.socket) -> bool:
    if not sys.platform.startswith("linux"):
        return True
    try:
        lock.bind(_address())
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise
    lock.listen()
    return True


def _holder() -> str:
    """Describe the process that holds the lock, if it can be found out."""
    with contextlib.suppress(OSError, psutil.Error), socket.socket(socket.AF_UNIX) as client:
        client.connect(_address())
        pid, _, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        return f"process {pid} of {psutil.Process(pid).username()}"
    return "of another process"


def _address() -> str:
    return f"\0{os.environ.get(NAME_VARIABLE) or _NAME}"
