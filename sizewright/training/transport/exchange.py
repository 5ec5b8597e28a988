"""The exchange between a worker and a parameter server: gradients of one step in, rows of a later one out."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.training.hash_index import Keys
from sizewright.training.optimizers import Floats
from sizewright.training.transport.wire import receive_bytes, receive_into, send_arrays

_REQUEST = struct.Struct("<4I2Q5I")
_REPLY = struct.Struct("<3I")

# Flags of a request.
PUSH = 1  # it carries a step's gradients (perhaps none of this server's rows)
WANT_DENSE = 2
AGAIN = 4  # sent again by another routing: its push is no part of a synchronous round
LEAVE = 8  # the worker's last

# States of a reply.
DONE = 0
STALE = 1  # the routing has changed: the same is to be sent again by the new one, and is applied once

NO_FLOATS: Floats = np.empty(0, np.float32)
NO_KEYS: Keys = np.empty(0, np.int64)
Samples = NDArray[np.int64]
"""Ranges [start, end) of samples, an array (n, 2)."""
NO_SAMPLES: Samples = np.empty((0, 2), np.int64)


class Request(NamedTuple):
    """`version` is that of the routing by which the request was split.

    The rows that `row_grads` (n, width) belong to are named by `push_keys`, or, where these are left out, by
    `push_tag`: the tag of the pull that brought them, whose places the server remembers. The push is of the samples
    [start, end). `dense_grads` are of the server's whole slice of the dense weights, and the sum of those of
    `dense_samples`. All rows of a push that belong to a server are in one request, however often it is sent.
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
    """Rows (n, width) in the order of the keys asked for, and the server's slice of the dense weights if wanted."""

    state: int
    rows: Floats
    dense: Floats


class ReplyHead(NamedTuple):
    """State of a reply, and how many rows and dense floats follow."""

    state: int
    rows: int
    dense: int


STALE_REPLY = Reply(STALE, NO_FLOATS, NO_FLOATS)


def send_request(sock: socket.socket, request: Request) -> int:
    """Send and return the bytes sent."""
    r = request
    head = _REQUEST.pack(
        r.version, r.flags, r.push_tag, len(r.row_grads), r.start, r.end, len(r.dense_samples), len(r.push_keys),
        r.dense_grads.size, r.pull_tag, len(r.keys),
    )  # fmt: skip
    return send_arrays(sock, head, r.push_keys, r.row_grads, r.dense_samples, r.dense_grads, r.keys)


def receive_request(sock: socket.socket, width: int) -> Request | None:
    """The next request, or None when the worker has gone."""
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
    return Request(version, flags, push_tag, start, end, push_keys, grads, samples, dense, pull_tag, keys)


def request_bytes(request: Request) -> int:
    """Bytes that a request takes on the wire."""
    arrays = (request.push_keys, request.row_grads, request.dense_samples, request.dense_grads, request.keys)
    return _REQUEST.size + sum(array.nbytes for array in arrays)


def reply_bytes(rows: int, dense: int, width: int) -> int:
    """Bytes that a reply takes on the wire."""
    return _REPLY.size + 4 * (rows * width + dense)


def send_reply(sock: socket.socket, reply: Reply) -> int:
    """Send rows and dense weights; returns the bytes sent."""
    head = _REPLY.pack(reply.state, len(reply.rows), reply.dense.size)
    return send_arrays(sock, head, reply.rows, reply.dense)


def receive_reply_head(sock: socket.socket) -> ReplyHead:
    """Wait for a reply. Raises ConnectionError when the server has gone."""
    head = receive_bytes(sock, _REPLY.size)
    if head is None:
        raise ConnectionError("the parameter server closed the connection")
    return ReplyHead(*_REPLY.unpack(head))
