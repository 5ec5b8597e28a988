"""The exchange between a worker and a parameter server: gradients of one step in, rows of a later one out."""

from __future__ import annotations

import socket
import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.training.ps.hash_index import Keys
from sizewright.training.ps.optimizers import Floats
from sizewright.training.transport.wire import receive_bytes, receive_into, send_arrays

_REQUEST = struct.Struct("<4I2Q5I")
_REPLY = struct.Struct("<3I")

# Flags of a request.
PUSH = 1  # carries a step's gradients (perhaps none of this server's rows), or dense gradients alone
WANT_DENSE = 2  # the reply has the dense weights, whether or not the request has dense gradients
AGAIN = 4  # repeated by another routing, so the push is not part of a synchronous round
LEAVE = 8  # nobody waits for the worker until its next request

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


class _RequestHead(NamedTuple):
    """The numbers of a request, and the lengths of the arrays that follow."""

    version: int
    flags: int
    push_tag: int
    rows: int
    start: int
    end: int
    dense_samples: int
    push_keys: int
    dense_grads: int
    pull_tag: int
    keys: int


class ReplyHead(NamedTuple):
    """The state of a reply, and the numbers of rows and of dense weights that follow."""

    state: int
    rows: int
    dense: int


STALE_REPLY = Reply(STALE, NO_FLOATS, NO_FLOATS)


def send_request(sock: socket.socket, request: ExchangeRequest) -> int:
    """Send a request, and return the number of bytes sent."""
    head = _RequestHead(
        version=request.version,
        flags=request.flags,
        push_tag=request.push_tag,
        rows=len(request.row_grads),
        start=request.start,
        end=request.end,
        dense_samples=len(request.dense_samples),
        push_keys=len(request.push_keys),
        dense_grads=request.dense_grads.size,
        pull_tag=request.pull_tag,
        keys=len(request.keys),
    )
    return send_arrays(sock, _REQUEST.pack(*head), *_arrays_of(request))


def receive_request(sock: socket.socket, width: int) -> ExchangeRequest | None:
    """Receive the next request; return None if the worker has closed the connection."""
    head = receive_bytes(sock, _REQUEST.size)
    if head is None:
        return None
    fields = _RequestHead(*_REQUEST.unpack(head))
    request = ExchangeRequest(
        version=fields.version,
        flags=fields.flags,
        push_tag=fields.push_tag,
        start=fields.start,
        end=fields.end,
        push_keys=np.empty(fields.push_keys, np.int64),
        row_grads=np.empty((fields.rows, width), np.float32),
        dense_samples=np.empty((fields.dense_samples, 2), np.int64),
        dense_grads=np.empty(fields.dense_grads, np.float32),
        pull_tag=fields.pull_tag,
        keys=np.empty(fields.keys, np.int64),
    )
    for array in _arrays_of(request):
        if not receive_into(sock, array):
            return None
    return request


def request_bytes(request: ExchangeRequest) -> int:
    """Return the size of a request on the wire in bytes."""
    return _REQUEST.size + sum(array.nbytes for array in _arrays_of(request))


def _arrays_of(request: ExchangeRequest) -> tuple[NDArray[Any], ...]:
    """Return the arrays of a request in the order of the wire."""
    return request.push_keys, request.row_grads, request.dense_samples, request.dense_grads, request.keys


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
