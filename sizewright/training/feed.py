"""Where a worker's batches come from: ranges of samples that are leased, and what it reports of them."""

from __future__ import annotations

import socket
import struct
from collections import deque
from enum import IntEnum
from typing import NamedTuple, Protocol

from sizewright.datasets.batch import Batch
from sizewright.datasets.samples import SampleSource
from sizewright.training.wire import drop, receive_bytes

ASK = struct.Struct("<BIQI")
ANSWER = struct.Struct("<BI2Q")


class Op(IntEnum):
    """What a worker says."""

    want = 1
    trained = 2
    hand_back = 3


class State(IntEnum):
    """What it is told: a lease, nothing at present, or that all is trained."""

    leased = 1
    nothing = 2
    finished = 3


class Portion(NamedTuple):
    """A batch, the lease that it is part of, and one past its last sample."""

    batch: Batch
    lease: int
    until: int


class Feed(Protocol):
    """Batches for one worker."""

    finished: bool

    def next(self) -> Portion | None:
        """The next batch; None when there is none at present, or no more (`finished`)."""

    def trained(self, portion: Portion, tag: int) -> None:
        """This batch's gradients, pushed as `tag`, have reached every server."""

    def hand_back(self) -> None:
        """Give up what has not been trained."""


class LeasedFeed:
    """Asks for the next lease before the last one ends, so that training does not wait for it."""

    def __init__(self, link: socket.socket, source: SampleSource, batch_size: int) -> None:
        self.finished = False
        self.batch_size = batch_size
        self._link, self._source = link, source
        self._lease, self._at, self._end = 0, 0, 0
        self._asked = False
        self._given: deque[tuple[int, int, bool]] = deque()  # lease, until and whether there is anything to train

    def next(self) -> Portion | None:  # noqa: D102
        while True:
            if self._at >= self._end and not self._renew():
                return None
            start, self._at = self._at, min(self._at + self.batch_size, self._end)
            if self._end - self._at <= self.batch_size:
                self._ask()
            batch = self._source.read(start, self._at - start)
            portion = Portion(batch, self._lease, self._at)
            self._given.append((portion.lease, portion.until, len(batch.labels) > 0))
            if len(batch.labels):
                return portion
            self._report_empty()

    def trained(self, portion: Portion, tag: int) -> None:  # noqa: D102
        self._given.popleft()
        self._link.sendall(ASK.pack(Op.trained, portion.lease, portion.until, tag))
        self._report_empty()

    def hand_back(self) -> None:  # noqa: D102
        self._link.sendall(ASK.pack(Op.hand_back, 0, 0, 0))
        if self._asked:
            self._answer()
            self._link.sendall(ASK.pack(Op.hand_back, 0, 0, 0))
        self._at = self._end = 0
        self._given.clear()

    def close(self) -> None:
        """Close the connection: what has not been trained goes back."""
        drop(self._link)

    def _report_empty(self) -> None:
        """Batches whose rows are all broken, once those before them are trained: a report covers all before it."""
        while self._given and not self._given[0][2]:
            lease, until, _ = self._given.popleft()
            self._link.sendall(ASK.pack(Op.trained, lease, until, 0))

    def _ask(self) -> None:
        if not self._asked:
            self._link.sendall(ASK.pack(Op.want, 0, 0, 0))
            self._asked = True

    def _renew(self) -> bool:
        self._ask()
        state, lease, start, end = self._answer()
        self.finished = state == State.finished
        if state == State.leased:
            self._lease, self._at, self._end = lease, start, end
        return state == State.leased

    def _answer(self) -> tuple[int, int, int, int]:
        self._asked = False
        told = receive_bytes(self._link, ANSWER.size)
        if told is None:
            raise ConnectionError("the session closed the connection")
        state, lease, start, end = ANSWER.unpack(told)
        return state, lease, start, end
