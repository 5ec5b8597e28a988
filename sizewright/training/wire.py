"""Arrays over TCP after a token handshake: how replicas of one session know each other."""

from __future__ import annotations

import contextlib
import hmac
import socket
import struct
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.training.routing import Address

TOKEN_BYTES = 32
_ACCEPTED = b"\x01"
_HELLO = struct.Struct("<BI")


class Caller(IntEnum):
    """Who opens a connection."""

    worker = 1
    peer = 2


class Hello(NamedTuple):
    """What a caller says of itself after its token."""

    caller: Caller
    id: int


def connect(address: Address, token: bytes, hello: Hello, timeout_s: float = 30.0) -> socket.socket:
    """A connection that has shown its token. Raises ConnectionError or OSError when it is refused."""
    sock = socket.create_connection(address, timeout=timeout_s)
    try:
        _tune(sock)
        sock.sendall(token + _HELLO.pack(*hello))
        if receive_bytes(sock, len(_ACCEPTED)) != _ACCEPTED:
            raise ConnectionError("the other side refused the token")
        sock.settimeout(None)
    except BaseException:
        sock.close()
        raise
    return sock


def admit(sock: socket.socket, token: bytes, timeout_s: float = 30.0) -> Hello | None:
    """Who a new connection is from; None, and closed, when it does not show the token."""
    try:
        sock.settimeout(timeout_s)
        _tune(sock)
        shown = receive_bytes(sock, TOKEN_BYTES)
        if shown is not None and hmac.compare_digest(shown, token):
            said = receive_bytes(sock, _HELLO.size)
            if said is not None:
                caller, number = _HELLO.unpack(said)
                hello = Hello(Caller(caller), number)
                sock.sendall(_ACCEPTED)
                sock.settimeout(None)
                return hello
    except (OSError, ValueError):
        pass
    sock.close()
    return None


def send_arrays(sock: socket.socket, head: bytes, *arrays: NDArray[np.generic]) -> int:
    """Send a head and contiguous arrays; returns the bytes sent."""
    sent = len(head)
    sock.sendall(head)
    for array in arrays:
        if array.nbytes:
            sock.sendall(np.ascontiguousarray(array).data.cast("B"))
            sent += array.nbytes
    return sent


def receive_into(sock: socket.socket, array: NDArray[np.generic]) -> bool:
    """Fill a contiguous array from the socket; False when the other side has gone."""
    if array.nbytes == 0:
        return True
    view = array.data.cast("B")
    done = 0
    while done < len(view):
        got = sock.recv_into(view[done:])
        if got == 0:
            return False
        done += got
    return True


def receive_bytes(sock: socket.socket, size: int) -> bytes | None:
    """Exactly `size` bytes, or None when the other side has gone."""
    chunks = b""
    while len(chunks) < size:
        try:
            chunk = sock.recv(size - len(chunks))
        except ConnectionError:
            return None
        if not chunk:
            return None
        chunks += chunk
    return chunks


def drop(sock: socket.socket) -> None:
    """Close a connection and wake a thread that waits on it, which closing alone does not."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a machine may vanish without a word
