"""How rows and dense weights travel between servers and to the store of snapshots: frames that are acknowledged."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

import numpy as np

from sizewright.training.embedding import Rows
from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.optimizers import Floats
from sizewright.training.routing import Address, Parts
from sizewright.training.transport.wire import Caller, Hello, connect, drop, receive_bytes, receive_into, send_arrays

_FRAME = struct.Struct("<B2Q3I")
_ACK = b"\x06"
# A stalled peer must not hold a change for ever.
_TIMEOUT_S = 60.0


class _Kind(IntEnum):
    rows = 1
    dense = 2
    done = 3
    applied = 4


class Parcel(Protocol):
    """What takes parts of the weights in, here or elsewhere."""

    def insert(self, rows: Rows) -> None:
        """Put rows in place of what is there."""

    def put_dense(self, start: int, weights: Floats, state: Floats) -> None:
        """Put dense weights (n, 1) and their state (n, k) from `start`."""

    def put_applied(self, parts: Parts, samples: SampleRanges) -> None:
        """Take which samples are applied to parts of the weights."""


class Sink(Parcel, Protocol):
    """A parameter server, or the store of snapshots."""

    def arrived(self, version: int, source: int) -> None:
        """A source has sent everything that belongs to a version."""


class Peer:
    """A connection to a sink elsewhere. Every method raises OSError when it has gone."""

    def __init__(self, address: Address, token: bytes, source: int, version: int = 0) -> None:
        """What is sent is for the `version` of the routing that is coming there."""
        self.address, self.version = address, version
        self._socket = connect(address, token, Hello(Caller.peer, source))
        self._socket.settimeout(_TIMEOUT_S)
        self.sent_bytes = 0

    def insert(self, rows: Rows) -> None:
        """Send rows; returns once they are in place."""
        shape = (rows.weights.shape[1], rows.state.shape[1])
        self._send(
            _FRAME.pack(_Kind.rows, self.version, 0, len(rows.keys), *shape), rows.keys, rows.weights, rows.state
        )

    def put_dense(self, start: int, weights: Floats, state: Floats) -> None:
        """Send a part of the dense weights."""
        shape = (weights.size // max(1, len(weights)), state.shape[1])
        self._send(_FRAME.pack(_Kind.dense, self.version, start, len(weights), *shape), weights, state)

    def put_applied(self, parts: Parts, samples: SampleRanges) -> None:
        """Send which samples are applied to parts of the weights."""
        ranges = samples.to_array()
        self._send(_FRAME.pack(_Kind.applied, self.version, 0, len(parts), len(ranges), 0), parts, ranges)

    def done(self, version: int) -> None:
        """Say that everything of a version has been sent."""
        self._send(_FRAME.pack(_Kind.done, version, 0, 0, 0, 0))

    def close(self) -> None:
        """Close the connection."""
        drop(self._socket)

    def _send(self, head: bytes, *arrays: np.ndarray) -> None:
        self.sent_bytes += send_arrays(self._socket, head, *arrays)
        if receive_bytes(self._socket, 1) != _ACK:
            raise ConnectionError("the other side closed the connection")


def serve_peer(sock: socket.socket, source: int, sink_of: Callable[[int], Sink]) -> int:
    """Feed the sink of each version from a connection until it ends; returns the bytes received."""
    received = 0
    while (head := receive_bytes(sock, _FRAME.size)) is not None:
        kind, version, start, count, width, state_width = _FRAME.unpack(head)
        sink = sink_of(version)
        if kind == _Kind.done:
            sink.arrived(version, source)
            sock.sendall(_ACK)
            continue
        if kind == _Kind.applied:
            parts, ranges = np.empty(count, np.int64), np.empty((width, 2), np.int64)
            if not (receive_into(sock, parts) and receive_into(sock, ranges)):
                break
            sink.put_applied(parts, SampleRanges(ranges.tolist()))
            sock.sendall(_ACK)
            continue
        keys = np.empty(count if kind == _Kind.rows else 0, np.int64)
        weights, state = np.empty((count, width), np.float32), np.empty((count, state_width), np.float32)
        if not all(receive_into(sock, array) for array in (keys, weights, state)):
            break
        if kind == _Kind.rows:
            sink.insert(Rows(keys, weights, state))
        else:
            sink.put_dense(start, weights, state)
        received += _FRAME.size + keys.nbytes + weights.nbytes + state.nbytes
        sock.sendall(_ACK)
    return received
