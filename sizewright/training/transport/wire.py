"""Arrays over TCP between replicas of one session, which know each other by a token that is never sent.

A handshake is an HMAC of two nonces, one from each side, in both directions: whoever listens on the line learns nothing
that opens another connection.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import struct
import time
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.training.routing import Address

TOKEN_BYTES = 32
_NONCE_BYTES = _PROOF_BYTES = 32
_HELLO = struct.Struct("<BI")
_ATTEMPTS, _AGAIN_S, _LONGEST_WAIT_S = 3, 0.05, 1.0
"""Under a flood of strangers a listener may turn one of ours away."""


class Caller(IntEnum):
    """Who opens a connection."""

    worker = 1
    peer = 2


class Hello(NamedTuple):
    """What a caller says of itself."""

    caller: Caller
    id: int


def connect(address: Address, token: bytes, hello: Hello, timeout_s: float = 30.0) -> socket.socket:
    """A connection on which both sides have shown that they know the token, which neither sends.

    Raises ConnectionError or OSError when it is refused, or when the other side does not know the token.
    """
    for attempt in range(_ATTEMPTS):
        sock = socket.create_connection(address, timeout=timeout_s)
        try:
            _tune(sock)
            if _introduce(sock, token, hello, time.monotonic() + timeout_s):
                sock.settimeout(None)
                return sock
        except BaseException:
            sock.close()
            raise
        sock.close()
        time.sleep(_AGAIN_S * 2**attempt)
    raise ConnectionError("the other side refused the token")


class Backoff:
    """Attempts at once, then at growing intervals of up to a second, until `patience_s` have passed."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s

    def __iter__(self) -> Iterator[None]:
        deadline, wait_s = time.monotonic() + self._patience_s, _AGAIN_S
        while True:
            yield
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(wait_s, left))
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def _introduce(sock: socket.socket, token: bytes, hello: Hello, deadline: float) -> bool:
    """Whether the other side let us in. Raises ConnectionError where it does not know the token."""
    try:
        challenge = _receive_by(sock, _NONCE_BYTES, deadline)
        if challenge is None:
            return False
        nonces, said = challenge + secrets.token_bytes(_NONCE_BYTES), _HELLO.pack(*hello)
        sock.sendall(nonces[_NONCE_BYTES:] + said + _proof(token, b"caller", nonces, said))
        proof = _receive_by(sock, _PROOF_BYTES, deadline)
    except (ConnectionResetError, BrokenPipeError):
        return False
    if proof is None:
        return False
    if not hmac.compare_digest(proof, _proof(token, b"listener", nonces, said)):
        raise ConnectionError("the other side does not know the token")
    return True


class Stranger:
    """A connection whose other side has not shown yet that it knows the token; nothing waits for it."""

    def __init__(self, sock: socket.socket, token: bytes, deadline: float) -> None:
        self.sock, self.deadline = sock, deadline
        self._token, self._challenge, self._came = token, secrets.token_bytes(_NONCE_BYTES), b""
        sock.setblocking(False)
        _tune(sock)
        sock.send(self._challenge)

    def read(self) -> Hello | None:
        """Who it is, once all of that has come; from then on the connection waits. Raises OSError or ValueError for
        one that is to be closed."""
        wanted = _NONCE_BYTES + _HELLO.size + _PROOF_BYTES - len(self._came)
        with contextlib.suppress(BlockingIOError):
            came = self.sock.recv(wanted)
            if not came:
                raise ConnectionError("it has gone")
            self._came += came
            wanted -= len(came)
        if wanted:
            return None
        nonces, rest = self._challenge + self._came[:_NONCE_BYTES], self._came[_NONCE_BYTES:]
        said, proof = rest[: _HELLO.size], rest[_HELLO.size :]
        if not hmac.compare_digest(proof, _proof(self._token, b"caller", nonces, said)):
            raise ConnectionError("it does not know the token")
        caller, number = _HELLO.unpack(said)
        hello = Hello(Caller(caller), number)
        self.sock.send(_proof(self._token, b"listener", nonces, said))
        self.sock.setblocking(True)
        return hello


def _proof(token: bytes, side: bytes, nonces: bytes, said: bytes) -> bytes:
    """Only who knows the token can make it, and it fits no other connection."""
    return hmac.digest(token, side + nonces + said, "sha256")


def _receive_by(sock: socket.socket, size: int, deadline: float) -> bytes | None:
    """As `receive_bytes`, until a time, however slowly the other side sends. Raises TimeoutError."""
    came = b""
    while len(came) < size:
        sock.settimeout(max(deadline - time.monotonic(), 1e-3))
        if not (part := sock.recv(size - len(came))):
            return None
        came += part
    return came


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
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 25_000)):
        if hasattr(socket, option):  # not on every system
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
