"""A delay line joins pairs of TAP interfaces and forwards each frame after a fixed time.

`tc` has netem for this, which many small kernels lack; a TAP pair behind a process needs nothing but
/dev/net/tun. Bandwidth stays with the kernel. Frames cross unsegmented (up to 64 KB), so that a busy
line costs a few hundred wake-ups a second rather than one for every 1500 bytes.

Run as `python delay_line.py DELAY_S NAMESPACE/NAME=NAMESPACE/NAME...`; it prints "ready" when all interfaces
exist, and ends and removes them when its standard input closes, that is, when its parent ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

_TUNSETIFF = 0x400454CA
_TUNSETOFFLOAD = 0x400454D0
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
_CHECKSUM_TSO4_TSO6 = 0x01 | 0x02 | 0x04
_CLONE_NEWNET = 0x40000000
_FRAME_BYTES = 66_000  # the largest unsegmented frame with its headers


def _open_tap(end: str) -> int:
    """Open the TAP interface `NAMESPACE/NAME`; the file works from any namespace."""
    namespace, name = end.split("/")
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}") as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter network namespace {namespace}")
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR))
    fcntl.ioctl(tap, _TUNSETOFFLOAD, _CHECKSUM_TSO4_TSO6)
    return tap


def _forward(other_end: dict[int, int], delay_s: float) -> None:
    """Forward each frame `delay_s` after it arrived, until standard input closes."""
    on_the_line: deque[tuple[float, int, bytes]] = deque()  # one delay for all: first in, first out
    listening = [0, *other_end]
    while True:
        wait_s = max(0.0, on_the_line[0][0] - time.monotonic()) if on_the_line else None
        ready, _, _ = select.select(listening, [], [], wait_s)
        due = time.monotonic() + delay_s
        for tap in ready:
            if not tap:
                return
            with contextlib.suppress(OSError):  # the interface is down
                on_the_line.append((due, other_end[tap], os.read(tap, _FRAME_BYTES)))
        while on_the_line and on_the_line[0][0] <= time.monotonic():
            _, tap, frame = on_the_line.popleft()
            with contextlib.suppress(OSError):  # an interface that is down loses the frame, as a cut cable does
                os.write(tap, frame)


def main() -> None:
    """Open the interfaces named on the command line and join them in pairs."""
    delay_s, pairs = float(sys.argv[1]), [pair.split("=") for pair in sys.argv[2:]]
    other_end: dict[int, int] = {}
    for one, other in pairs:
        a, b = _open_tap(one), _open_tap(other)
        other_end |= {a: b, b: a}
    with contextlib.suppress(PermissionError):
        os.nice(-20)  # a wire never waits for a core
    print("ready", flush=True)
    _forward(other_end, delay_s)


if __name__ == "__main__":
    main()
