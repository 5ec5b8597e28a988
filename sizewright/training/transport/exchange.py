"""The exchange between a worker and a parameter server: gradients of one step in, rows of a later one out.

Rows of different widths are in arrays of their own: keys, gradients and rows are tuples with one array per width, in
the order of `Model.table_groups`, which both sides know.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.training.ps.hash_index import Keys
from sizewright.training.ps.optimizers import Floats
from sizewright.training.transport.wire import receive_bytes, receive_into, send_arrays

_REQUEST = struct.Struct("<3I2Q3I")
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
Samples = NDArray[np.int64]
"""Ranges [start, end) of samples as an array (n, 2)."""
NO_SAMPLES: Samples = np.empty((0, 2), np.int64)


class ExchangeRequest(NamedTuple):
    """One request to a server, which was split by the routing of `version`.

    The rows of `row_grads`, arrays (n, width), are given by `push_keys`, arrays (n,), or, if these are empty, by
    `push_tag`: the tag of the pull of these rows, which the server remembers. The gradients are those of the samples
    [start, end). `dense_grads` cover the server's whole slice of the dense weights, summed over `dense_samples`. All
    rows of a push that belong to a server are in one request, even if it is repeated.
    """

    version: int
    flags: int = 0
    push_tag: int = 0
    start: int = 0
    end: int = 0
    push_keys: tuple[Keys, ...] = ()
    row_grads: tuple[Floats, ...] = ()
    dense_samples: Samples = NO_SAMPLES
    dense_grads: Floats = NO_FLOATS
    pull_tag: int = 0
    keys: tuple[Keys, ...] = ()


class Reply(NamedTuple):
    """Rows, arrays (n, width) in the order of the keys, and the server's slice of the dense weights if requested."""

    state: int
    rows: tuple[Floats, ...]
    dense: Floats


class _RequestHead(NamedTuple):
    """The numbers of a request, and the lengths of the dense arrays that follow; those of the rows come next."""

    version: int
    flags: int
    push_tag: int
    start: int
    end: int
    dense_samples: int
    dense_grads: int
    pull_tag: int


class ReplyHead(NamedTuple):
    """The state of a reply, and the numbers of rows and of dense weights that follow."""

    state: int
    rows: int
    dense: int


STALE_REPLY = Reply(STALE, (), NO_FLOATS)


def send_request(sock: socket.socket, request: ExchangeRequest) -> int:
    """Send a request, which must have all three arrays of every width, and return the number of bytes sent."""
    head = _RequestHead(
        version=request.version,
        flags=request.flags,
        push_tag=request.push_tag,
        start=request.start,
        end=request.end,
        dense_samples=len(request.dense_samples),
        dense_grads=request.dense_grads.size,
        pull_tag=request.pull_tag,
    )
    arrays: tuple[NDArray[Any], ...] = (*request.push_keys, *request.row_grads, *request.keys)
    counts = [len(array) for array in arrays]
    packed = _REQUEST.pack(*head) + _counts_of_rows(len(request.keys)).pack(*counts)
    return send_arrays(sock, packed, *_arrays_of(request))


def receive_request(sock: socket.socket, widths: Sequence[int]) -> ExchangeRequest | None:
    """Receive the next request for rows of these `widths`; return None if the worker has closed the connection."""
    counts = _counts_of_rows(len(widths))
    head = receive_bytes(sock, _REQUEST.size + counts.size)
    if head is None:
        return None
    fields = _RequestHead(*_REQUEST.unpack_from(head))
    pushed, grads, pulled = np.reshape(counts.unpack_from(head, _REQUEST.size), (3, -1)).tolist()
    request = ExchangeRequest(
        version=fields.version,
        flags=fields.flags,
        push_tag=fields.push_tag,
        start=fields.start,
        end=fields.end,
        push_keys=tuple(np.empty(count, np.int64) for count in pushed),
        row_grads=tuple(np.empty((count, width), np.float32) for count, width in zip(grads, widths, strict=True)),
        dense_samples=np.empty((fields.dense_samples, 2), np.int64),
        dense_grads=np.empty(fields.dense_grads, np.float32),
        pull_tag=fields.pull_tag,
        keys=tuple(np.empty(count, np.int64) for count in pulled),
    )
    for array in _arrays_of(request):
        if not receive_into(sock, array):
            return None
    return request


def request_bytes(request: ExchangeRequest) -> int:
    """Return the size of a request on the wire in bytes."""
    return _REQUEST.size + _counts_of_rows(len(request.keys)).size + sum(array.nbytes for array in _arrays_of(request))


def _counts_of_rows(widths: int) -> struct.Struct:
    """Return the format of the numbers of pushed keys, of gradients and of pulled keys, for each of the widths."""
    return struct.Struct(f"<{3 * widths}I")


def _arrays_of(request: ExchangeRequest) -> tuple[NDArray[Any], ...]:
    """Return the arrays of a request in the order of the wire."""
    return (*request.push_keys, *request.row_grads, request.dense_samples, request.dense_grads, *request.keys)


def reply_bytes(rows: Sequence[Floats], dense: Floats) -> int:
    """Return the size of a reply on the wire in bytes."""
    return _REPLY.size + sum(array.nbytes for array in rows) + dense.nbytes


def send_reply(sock: socket.socket, reply: Reply) -> int:
    """Send a reply, and return the number of bytes sent."""
    head = _REPLY.pack(reply.state, sum(map(len, reply.rows)), reply.dense.size)
    return send_arrays(sock, head, *reply.rows, reply.dense)


def receive_reply_head(sock: socket.socket) -> ReplyHead:
    """Wait for the head of a reply. Raise ConnectionError if the server has closed the connection."""
    head = receive_bytes(sock, _REPLY.size)
    if head is None:
        raise ConnectionError("the parameter server closed the connection")
    return ReplyHead(*_REPLY.unpack(head))
