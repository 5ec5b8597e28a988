"""The exchange between a worker and a parameter server: gradients of one step in, rows of a later one out."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.training.ps.hash_index import Keys
from sizewright.training.ps.optimizers import Floats
from sizewright.training.transport.wire import receive_bytes, receive_into, send_arrays

_REQUEST = struct.Struct("<4I2Q5I")
_REPLY = struct.Struct("<3I")

# Flags of a request.
PUSH = 1  # carries a step's gradients (perhaps none of this server's rows)
WANT_DENSE = 2
AGAIN = 4  # repeated by another routing, so the push is not part of a synchronous round
LEAVE = 8  # the last request of the worker

# States of a reply.
DONE = 0
STALE = 1  # the routing has changed: the worker must repeat the request by the new one, which is applied once

NO_FLOATS: Floats = np.empty(0, np.float32)
NO_KEYS: Keys = np.empty(0, np.int64)
Samples = NDArray[np.int64]
"""Ranges [start, end) of samples as an array (n, 2)."""
NO_SAMPLES: Samples = np.empty((0, 2), np.int64)


class ExchangeRequest(NamedTuple):
    """One request to a server, which was split by the routing of `version`.

    The rows of `row_grads` (n, width) are given by `push_keys`, or, if these are empty, by `push_tag`: the tag of the
    pull of these rows, which the server remembers. The gradients are those of the samples [start, end). `dense_grads`
    cover the server's whole slice of the dense weights, summed over `dense_samples`. All rows of a push that belong to
    a server are in one request, even if it is repeated.
    """

    version: int
    flags: int = 0
    push_tag: int = 0
    start: int = 0
    end: int = 0
    push_keys: Keys = NO_KEYS
    row_grads: Floats = NO_FLOATS.reshape(0, 0)
    dense_samples: Samples = NO_SAMPLES
    dense_grads: Floats = NO_FLOATS
    pull_tag: int = 0
    keys: Keys = NO_KEYS


class Reply(NamedTuple):
    """Rows (n, width) in the order of the requested keys, and the server's slice of the dense weights if requested."""

    state: int
    rows: Floats
    dense: Floats


class ReplyHead(NamedTuple):
    """The state of a reply, and the numbers of rows and of dense weights that follow."""

    state: int
    rows: int
    dense: int


STALE_REPLY = Reply(STALE, NO_FLOATS, NO_FLOATS)


def send_request(sock: socket.socket, request: ExchangeRequest) -> int:
    """Send a request, and return the number of bytes sent."""
    head = _REQUEST.pack(
        request.version,
        request.flags,
        request.push_tag,
        len(request.row_grads),
        request.start,
        request.end,
        len(request.dense_samples),
        len(request.push_keys),
        request.dense_grads.size,
        request.pull_tag,
        len(request.keys),
    )
    arrays = (request.push_keys, request.row_grads, request.dense_samples, request.dense_grads, request.keys)
    return send_arrays(sock, head, *arrays)


def receive_request(sock: socket.socket, width: int) -> ExchangeRequest | None:
    """Receive the next request; return None if the worker has closed the connection."""
    head = receive_bytes(sock, _REQUEST.size)
    if head is None:
        return None
    version, flags, push_tag, rows, start, end, ranges, push_size, dense_size, pull_tag, size = _REQUEST.unpack(head)
    push_keys, keys = np.empty(push_size, np.int64), np.empty(size, np.int64)
    grads, dense = np.empty((rows, width), np.float32), np.empty(dense_size, np.float32)
    samples = np.empty((ranges, 2), np.int64)
    for array in (push_keys, grads, samples, dense, keys):
        if not receive_into(sock, array):
            return None
    return ExchangeRequest(version, flags, push_tag, start, end, push_keys, grads, samples, dense, pull_tag, keys)


def request_bytes(request: ExchangeRequest) -> int:
    """Return the size of a request on the wire in bytes."""
    arrays = (request.push_keys, request.row_grads, request.dense_samples, request.dense_grads, request.keys)
    return _REQUEST.size + sum(array.nbytes for array in arrays)


def reply_bytes(rows: int, dense: int, width: int) -> int:
    """Return the size of a reply on the wire in bytes."""
    return _REPLY.size + 4 * (rows * width + dense)


def send_reply(sock: socket.socket, reply: Reply) -> int:
    """Send a reply, and return the number of bytes sent."""
    head = _REPLY.pack(reply.state, len(reply.rows), reply.dense.size)
    return send_arrays(sock, head, reply.rows, reply.dense)


def receive_reply_head(sock: socket.socket) -> ReplyHead:
    """Wait for the head of a reply. Raise ConnectionError if the server has closed the connection."""
    head = receive_bytes(sock, _REPLY.size)
    if head is None:
        raise ConnectionError("the parameter server closed the connection")
    return ReplyHead(*_REPLY.unpack(head))
