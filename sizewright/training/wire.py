"""The transport between workers and parameter servers: arrays over TCP, after a token handshake."""

from __future__ import annotations

import hmac
import socket
import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.training.hash_index import Keys
from sizewright.training.optimizers import Floats

TOKEN_BYTES = 32
_REQUEST = struct.Struct("<6I")
_REPLY = struct.Struct("<2I")
REPLY_HEAD_BYTES = _REPLY.size
_ACCEPTED = b"\x01"


class Request(NamedTuple):
    """One exchange of a worker with one PS: gradients of an earlier step in, rows of a later one out.

    `push_tag` names the earlier pull whose rows `row_grads` (n, width) belong to; the PS remembers their places.
    """

    push_tag: int
    row_grads: Floats
    dense_grads: Floats
    pull_tag: int
    keys: Keys
    want_dense: bool


class Reply(NamedTuple):
    """Rows (n, width) in the order of the keys asked for, and the PS's shard of the dense weights if wanted."""

    rows: Floats
    dense: Floats


def send_request(sock: socket.socket, request: Request) -> int:
    """Send and return the bytes sent."""
    grads, dense, keys = request.row_grads, request.dense_grads, request.keys
    head = _REQUEST.pack(request.push_tag, len(grads), dense.size, request.pull_tag, len(keys), int(request.want_dense))
    return _send(sock, head, grads, dense, keys)


def receive_request(sock: socket.socket, width: int) -> Request | None:
    """The next request, or None when the worker has gone."""
    head = _receive(sock, _REQUEST.size)
    if head is None:
        return None
    push_tag, rows, dense_size, pull_tag, keys_size, want_dense = _REQUEST.unpack(head)
    grads = np.empty((rows, width), np.float32)
    dense = np.empty(dense_size, np.float32)
    keys = np.empty(keys_size, np.int64)
    for array in (grads, dense, keys):
        if not receive_into(sock, array):
            return None
    return Request(push_tag, grads, dense, pull_tag, keys, bool(want_dense))


def send_reply(sock: socket.socket, reply: Reply) -> None:
    """Send rows and dense weights."""
    _send(sock, _REPLY.pack(len(reply.rows), reply.dense.size), reply.rows, reply.dense)


def receive_reply_head(sock: socket.socket) -> tuple[int, int]:
    """Wait for a reply: rows and dense floats that follow. Raises ConnectionError when the PS has gone."""
    head = _receive(sock, _REPLY.size)
    if head is None:
        raise ConnectionError("the parameter server closed the connection")
    rows, dense = _REPLY.unpack(head)
    return rows, dense


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


def connect(address: tuple[str, int], token: bytes, timeout_s: float = 30.0) -> socket.socket:
    """A connection that has shown its token. Raises ConnectionError when it is refused."""
    sock = socket.create_connection(address, timeout=timeout_s)
    try:
        _tune(sock)
        sock.sendall(token)
        if _receive(sock, len(_ACCEPTED)) != _ACCEPTED:
            raise ConnectionError("the parameter server refused the token")
        sock.settimeout(None)
    except BaseException:
        sock.close()
        raise
    return sock


def admit(sock: socket.socket, token: bytes, timeout_s: float = 30.0) -> bool:
    """Whether a new connection shows the token; it is closed when it does not."""
    try:
        sock.settimeout(timeout_s)
        _tune(sock)
        shown = _receive(sock, TOKEN_BYTES)
        if shown is not None and hmac.compare_digest(shown, token):
            sock.sendall(_ACCEPTED)
            sock.settimeout(None)
            return True
    except OSError:
        pass
    sock.close()
    return False


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _send(sock: socket.socket, head: bytes, *arrays: NDArray[np.generic]) -> int:
    sent = len(head)
    sock.sendall(head)
    for array in arrays:
        if array.nbytes:
            sock.sendall(np.ascontiguousarray(array).data.cast("B"))
            sent += array.nbytes
    return sent


def _receive(sock: socket.socket, size: int) -> bytes | None:
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
