"""Where a worker's batches come from: ranges of samples that are leased, and what it reports of them."""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, Protocol

from sizewright.datasets.batch import Batch
from sizewright.datasets.samples import SampleSource
from sizewright.training.transport.wire import Backoff, drop, receive_bytes

ASK = struct.Struct("<BQI2Q")
ANSWER = struct.Struct("<BI2Q")


class Op(IntEnum):
    """What a worker says, with a number by which it is heard once, a lease and a range of it. The last two of these
    are answered."""

    trained = 1
    skip = 2
    hand_back = 3
    want = 4
    confirm = 5


QUESTIONS = (Op.want, Op.confirm)


class State(IntEnum):
    """What it is told: a lease, one that some servers have seen, nothing at present, or that all is trained."""

    leased = 1
    nothing = 2
    finished = 3
    leased_again = 4


class LeasedBatch(NamedTuple):
    """A batch of the samples [start, until), and the lease that it is part of.

    `again` tells that some servers have applied these samples already.
    """

    batch: Batch
    lease: int
    start: int
    until: int
    again: bool = False


class BatchSource(Protocol):
    """Batches for one worker."""

    finished: bool

    def next(self) -> LeasedBatch | None:
        """The next batch; None when there is none at present, or no more (`finished`)."""

    def trained(self, batch: LeasedBatch) -> None:
        """This batch's gradients have reached every server."""

    def hand_back(self) -> None:
        """Give up what has not been trained."""


class LeasedBatches:
    """Asks for the next lease before the last one ends, so that training does not wait for it.

    A connection that breaks is opened again, and what may have been lost on it is said again.
    """

    def __init__(
        self, open_link: Callable[[], socket.socket], source: SampleSource, batch_size: int, *, patience_s: float = 30.0
    ) -> None:
        """Raises OSError when the first connection is refused; later ones are tried for `patience_s`."""
        self.finished = False
        self.batch_size = batch_size
        self.cuts = 0
        """Connections that broke and were opened again."""
        self.cut_s = 0.0
        """How long there was none, in all."""
        self._open, self._source, self._patience_s = open_link, source, patience_s
        self._link = open_link()
        self._closed = False
        self._lease, self._at, self._end, self._again = 0, 0, 0, False
        self._asked = False
        self._said = 0
        self._last_question = 0
        self._unconfirmed: list[tuple[int, bytes]] = []  # said after the last question that was answered
        self._given: deque[tuple[int, int, bool]] = deque()  # lease, until and whether there is anything to train

    def next(self) -> LeasedBatch | None:  # noqa: D102
        while True:
            if self._at >= self._end and not self._renew():
                return None
            start, self._at = self._at, min(self._at + self.batch_size, self._end)
            if self._end - self._at <= self.batch_size:
                self._ask()
            batch = self._source.read(start, self._at - start)
            self._given.append((self._lease, self._at, len(batch.labels) > 0))
            if len(batch.labels):
                return LeasedBatch(batch, self._lease, start, self._at, self._again)
            self._say(Op.skip, self._lease, start, self._at)
            self._report_empty()

    def trained(self, batch: LeasedBatch) -> None:  # noqa: D102
        self._given.popleft()
        self._say(Op.trained, batch.lease, batch.start, batch.until)
        self._report_empty()

    def hand_back(self) -> None:  # noqa: D102
        self._say(Op.hand_back)
        if self._asked:
            self._answer()
            self._say(Op.hand_back)
        self._at = self._end = 0
        self._given.clear()
        self._say(Op.confirm)
        self._answer()

    def close(self) -> None:
        """Close the connection."""
        self._closed = True
        drop(self._link)

    def _report_empty(self) -> None:
        """Batches whose rows are all broken, once those before them are trained: a report covers all before it."""
        while self._given and not self._given[0][2]:
            lease, until, _ = self._given.popleft()
            self._say(Op.trained, lease, until, until)

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._say(Op.want)

    def _renew(self) -> bool:
        self._ask()
        state, lease, start, end = self._answer()
        self.finished = state == State.finished
        leased = state in (State.leased, State.leased_again)
        if leased:
            self._lease, self._at, self._end, self._again = lease, start, end, state == State.leased_again
        return leased

    def _say(self, op: Op, lease: int = 0, start: int = 0, end: int = 0) -> None:
        self._said += 1
        if op in QUESTIONS:
            self._last_question = self._said
        self._unconfirmed.append((self._said, ASK.pack(op, self._said, lease, start, end)))
        try:
            self._link.sendall(self._unconfirmed[-1][1])
        except OSError:
            self._reopen()

    def _answer(self) -> tuple[int, int, int, int]:
        for _ in Backoff(self._patience_s):
            if (told := _receive(self._link)) is not None:
                break
            self._reopen()
        else:
            raise ConnectionError("the session does not answer this worker any more")
        self._asked = False
        self._unconfirmed = [each for each in self._unconfirmed if each[0] > self._last_question]
        state, lease, start, end = ANSWER.unpack(told)
        return state, lease, start, end

    def _reopen(self) -> None:
        drop(self._link)
        since_s = time.monotonic()
        for _ in Backoff(self._patience_s):
            if self._closed:
                break
            try:
                self._link = self._open()
                self._link.sendall(b"".join(message for _, message in self._unconfirmed))
            except OSError:
                continue
            self.cuts += 1
            self.cut_s += time.monotonic() - since_s
            return
        raise ConnectionError("the session closed the connection")


def _receive(link: socket.socket) -> bytes | None:
    try:
        return receive_bytes(link, ANSWER.size)
    except OSError:
        return None
