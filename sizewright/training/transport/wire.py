"""Arrays over TCP between replicas of one session, authenticated by a token that is never sent.

The handshake exchanges HMACs of two nonces, one from each side, in both directions. An eavesdropper learns nothing that
would open another connection.
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

from sizewright.training.ps.routing import Address

TOKEN_BYTES = 32
_NONCE_BYTES = _PROOF_BYTES = 32
_HELLO = struct.Struct("<BI")
_ATTEMPTS = 3
"""Under a flood of strangers, a listener may drop a legitimate connection."""
_AGAIN_S = 0.05
_LONGEST_WAIT_S = 1.0


class Caller(IntEnum):
    """The kinds of callers that open connections."""

    worker = 1
    peer = 2


class Hello(NamedTuple):
    """The kind and the number of a caller."""

    caller: Caller
    id: int


def connect(address: Address, token: bytes, hello: Hello, timeout_s: float = 30.0) -> socket.socket:
    """Open a connection on which both sides have proved that they know the token.

    Raise ConnectionError or OSError if it is refused, or if the other side does not know the token.
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
    raise ConnectionError("the other side closed the connection during the handshake; its token may differ")


class Backoff:
    """Yields once at once, then at growing intervals of up to a second, until `patience_s` have passed."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s

    def __iter__(self) -> Iterator[None]:
        deadline, wait_s = time.monotonic() + self._patience_s, _AGAIN_S
        while True:
            yield
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return
            time.sleep(min(wait_s, remaining_s))
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def _introduce(sock: socket.socket, token: bytes, hello: Hello, deadline: float) -> bool:
    """Return whether the other side accepts the connection. Raise ConnectionError if it does not know the token."""
    try:
        challenge = _receive_by(sock, _NONCE_BYTES, deadline)
        if challenge is None:
            return False
        nonces = challenge + secrets.token_bytes(_NONCE_BYTES)
        packed_hello = _HELLO.pack(*hello)
        sock.sendall(nonces[_NONCE_BYTES:] + packed_hello + _proof(token, b"caller", nonces, packed_hello))
        proof = _receive_by(sock, _PROOF_BYTES, deadline)
    except (ConnectionResetError, BrokenPipeError):
        return False
    if proof is None:
        return False
    if not hmac.compare_digest(proof, _proof(token, b"listener", nonces, packed_hello)):
        raise ConnectionError("the other side does not know the token")
    return True


class Stranger:
    """A connection whose other side has not proved yet that it knows the token; no thread waits for it."""

    def __init__(self, sock: socket.socket, token: bytes, deadline: float) -> None:
        self.sock = sock
        self.deadline = deadline
        self._token = token
        self._challenge = secrets.token_bytes(_NONCE_BYTES)
        self._received = b""
        sock.setblocking(False)
        _tune(sock)
        sock.send(self._challenge)

    def read(self) -> Hello | None:
        """Return the caller once its whole handshake has arrived, and make the socket blocking; None until then.

        Raise OSError or ValueError if the connection must be closed.
        """
        missing_bytes = _NONCE_BYTES + _HELLO.size + _PROOF_BYTES - len(self._received)
        with contextlib.suppress(BlockingIOError):
            chunk = self.sock.recv(missing_bytes)
            if not chunk:
                raise ConnectionError("the other side closed the connection")
            self._received += chunk
            missing_bytes -= len(chunk)
        if missing_bytes:
            return None
        nonces = self._challenge + self._received[:_NONCE_BYTES]
        rest = self._received[_NONCE_BYTES:]
        packed_hello, proof = rest[: _HELLO.size], rest[_HELLO.size :]
        if not hmac.compare_digest(proof, _proof(self._token, b"caller", nonces, packed_hello)):
            raise ConnectionError("the other side does not know the token")
        caller, number = _HELLO.unpack(packed_hello)
        hello = Hello(Caller(caller), number)
        self.sock.send(_proof(self._token, b"listener", nonces, packed_hello))
        self.sock.setblocking(True)
        return hello


def _proof(token: bytes, side: bytes, nonces: bytes, packed_hello: bytes) -> bytes:
    """Return a proof of knowing the token, which is valid for one connection only."""
    return hmac.digest(token, side + nonces + packed_hello, "sha256")


def _receive_by(sock: socket.socket, size: int, deadline: float) -> bytes | None:
    """Receive `size` bytes as `receive_bytes` does. Raise TimeoutError at the deadline, even if data keeps arriving."""
    received = b""
    while len(received) < size:
        sock.settimeout(max(deadline - time.monotonic(), 1e-3))
        if not (chunk := sock.recv(size - len(received))):
            return None
        received += chunk
    return received


def send_arrays(sock: socket.socket, head: bytes, *arrays: NDArray[np.generic]) -> int:
    """Send a head and contiguous arrays, and return the number of bytes sent."""
    sent = len(head)
    sock.sendall(head)
    for array in arrays:
        if array.nbytes:
            sock.sendall(np.ascontiguousarray(array).data.cast("B"))
            sent += array.nbytes
    return sent


def receive_into(sock: socket.socket, array: NDArray[np.generic]) -> bool:
    """Fill a contiguous array from the socket; return False if the other side has closed the connection."""
    if array.nbytes == 0:
        return True
    view = array.data.cast("B")
    received = 0
    while received < len(view):
        count = sock.recv_into(view[received:])
        if count == 0:
            return False
        received += count
    return True


def receive_bytes(sock: socket.socket, size: int) -> bytes | None:
    """Receive exactly `size` bytes; return None if the other side has closed the connection."""
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
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a machine may vanish without closing connections
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 25_000)):
        if hasattr(socket, option):  # not on every system
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
