"""Transfer of rows and dense weights between servers and to the snapshot store, in acknowledged frames."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, Protocol

import numpy as np

from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.ps.embedding import EmbeddingRows
from sizewright.training.ps.optimizers import Floats
from sizewright.training.ps.routing import Address, Parts
from sizewright.training.transport.wire import Caller, Hello, connect, drop, receive_bytes, receive_into, send_arrays

_FRAME = struct.Struct("<B2Q3I")
_ACK = b"\x06"
# A stalled peer must not block a change for ever.
_TIMEOUT_S = 60.0


class _Kind(IntEnum):
    rows = 1
    dense = 2
    done = 3
    applied = 4


class _FrameHead(NamedTuple):
    """The kind of a frame, and the shapes of the arrays that follow."""

    kind: int
    version: int
    start: int = 0
    """The first dense weight."""
    length: int = 0
    """Rows, dense weights, or parts with applied samples."""
    width: int = 0
    """Weights of a row, or the number of ranges of applied samples."""
    state_width: int = 0


class WeightsReceiver(Protocol):
    """Receives parts of the weights, in this process or in another."""

    def insert(self, rows: EmbeddingRows) -> None:
        """Write rows, replacing existing ones."""

    def put_dense(self, start: int, weights: Floats, state: Floats) -> None:
        """Write dense weights (n, 1) and their state (n, k) from `start` on."""

    def put_applied(self, parts: Parts, samples: SampleRanges) -> None:
        """Set the applied samples of parts of the weights."""


class Sink(WeightsReceiver, Protocol):
    """A parameter server, or the store of snapshots."""

    def arrived(self, version: int, source: int) -> None:
        """Record that a source has sent everything of a version."""


class Peer:
    """A connection to a sink in another process.

    Everything that is sent belongs to the coming `version` of the routing. Every method raises OSError if the other
    side has closed the connection.
    """

    def __init__(self, address: Address, token: bytes, source: int, version: int = 0) -> None:
        self.address, self.version = address, version
        self._socket = connect(address, token, Hello(Caller.peer, source))
        self._socket.settimeout(_TIMEOUT_S)
        self.sent_bytes = 0

    def insert(self, rows: EmbeddingRows) -> None:
        """Send rows, and return once they are written."""
        head = _FrameHead(
            _Kind.rows,
            self.version,
            length=len(rows.keys),
            width=rows.weights.shape[1],
            state_width=rows.state.shape[1],
        )
        self._send(head, rows.keys, rows.weights, rows.state)

    def put_dense(self, start: int, weights: Floats, state: Floats) -> None:
        """Send a part of the dense weights."""
        head = _FrameHead(
            _Kind.dense,
            self.version,
            start=start,
            length=len(weights),
            width=weights.size // max(1, len(weights)),
            state_width=state.shape[1],
        )
        self._send(head, weights, state)

    def put_applied(self, parts: Parts, samples: SampleRanges) -> None:
        """Send the applied samples of parts of the weights."""
        ranges = samples.to_array()
        self._send(_FrameHead(_Kind.applied, self.version, length=len(parts), width=len(ranges)), parts, ranges)

    def done(self, version: int) -> None:
        """Report that everything of a version has been sent."""
        self._send(_FrameHead(_Kind.done, version))

    def close(self) -> None:
        """Close the connection."""
        drop(self._socket)

    def _send(self, head: _FrameHead, *arrays: np.ndarray) -> None:
        self.sent_bytes += send_arrays(self._socket, _FRAME.pack(*head), *arrays)
        if receive_bytes(self._socket, 1) != _ACK:
            raise ConnectionError("the other side closed the connection")


def serve_peer(sock: socket.socket, source: int, sink_of: Callable[[int], Sink]) -> int:
    """Pass everything that a connection receives to the sink of its version; return the bytes received."""
    received = 0
    while (head := receive_bytes(sock, _FRAME.size)) is not None:
        frame = _FrameHead(*_FRAME.unpack(head))
        sink = sink_of(frame.version)
        if frame.kind == _Kind.done:
            sink.arrived(frame.version, source)
            sock.sendall(_ACK)
            continue
        if frame.kind == _Kind.applied:
            parts = np.empty(frame.length, np.int64)
            ranges = np.empty((frame.width, 2), np.int64)
            if not (receive_into(sock, parts) and receive_into(sock, ranges)):
                break
            sink.put_applied(parts, SampleRanges(ranges.tolist()))
            sock.sendall(_ACK)
            continue
        keys = np.empty(frame.length if frame.kind == _Kind.rows else 0, np.int64)
        weights = np.empty((frame.length, frame.width), np.float32)
        state = np.empty((frame.length, frame.state_width), np.float32)
        if not all(receive_into(sock, array) for array in (keys, weights, state)):
            break
        if frame.kind == _Kind.rows:
            sink.insert(EmbeddingRows(keys, weights, state))
        else:
            sink.put_dense(frame.start, weights, state)
        received += _FRAME.size + keys.nbytes + weights.nbytes + state.nbytes
        sock.sendall(_ACK)
    return received
