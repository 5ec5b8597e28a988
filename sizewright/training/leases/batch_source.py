"""The batches of a worker, which leases ranges of samples from the session and reports its progress."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, Protocol

from sizewright.datasets.clicks.batch import Batch
from sizewright.datasets.clicks.samples import SampleSource
from sizewright.training.transport.wire import Backoff, drop, receive_bytes

ASK = struct.Struct("<BQI2Q")
ANSWER = struct.Struct("<BI2Q")


class Op(IntEnum):
    """The messages of a worker. Each has a number, so that it is processed once, a lease and a range of samples.

    `want` and `flush` are answered; `flush` is answered once all earlier messages are processed.
    """

    trained = 1
    skip = 2
    hand_back = 3
    want = 4
    flush = 5


QUESTIONS = (Op.want, Op.flush)


class LeaseState(IntEnum):
    """The answers: a lease, nothing at present, all samples trained, or a lease that is partly applied."""

    leased = 1
    nothing = 2
    finished = 3
    leased_partly_applied = 4


class LeaseMessage(NamedTuple):
    """A message of a worker, as `ASK` packs it: its kind and number, a lease and the samples [start, end)."""

    op: Op
    number: int
    lease: int = 0
    start: int = 0
    end: int = 0


class LeaseAnswer(NamedTuple):
    """An answer of the session, as `ANSWER` packs it: a `LeaseState`, and the lease of the samples [start, end)."""

    state: int
    lease: int = 0
    start: int = 0
    end: int = 0


class LeasedBatch(NamedTuple):
    """A batch of the samples [start, until), and its lease.

    `partly_applied` is True if some parts of the weights have applied these samples already.
    """

    batch: Batch
    lease: int
    start: int
    until: int
    partly_applied: bool = False


class _ReadBatch(NamedTuple):
    lease: int
    until: int
    is_empty: bool
    """True if all its rows are broken, so that there is nothing to train."""


class BatchSource(Protocol):
    """Supplies the batches of one worker."""

    finished: bool

    def next(self) -> LeasedBatch | None:
        """Return the next batch; None if there is none at present, or no more (`finished`)."""

    def trained(self, batch: LeasedBatch) -> None:
        """Report that the gradients of a batch have reached every server."""

    def hand_back(self) -> None:
        """Return untrained samples to the session."""


class LeasedBatches:
    """Reads batches of leased samples.

    It requests the next lease before the current one ends, so that training does not wait. A broken connection is
    opened again, and messages that may be lost are repeated.

    `open_link` opens a connection to the session. The constructor raises OSError if the first connection is refused;
    later ones are retried for `patience_s`.
    """

    def __init__(
        self, open_link: Callable[[], socket.socket], source: SampleSource, batch_size: int, *, patience_s: float = 30.0
    ) -> None:
        self.finished = False
        self.batch_size = batch_size
        self.cuts = 0
        """The number of connections that broke and were opened again."""
        self.cut_s = 0.0
        """The total seconds without a connection."""
        self._open = open_link
        self._source = source
        self._patience_s = patience_s
        self._link = open_link()
        self._closed = False
        self._lease = 0
        self._next_sample = 0
        self._end = 0
        self._partly_applied = False
        self._requested = False  # whether a lease was requested and not received yet
        self._messages = 0
        self._last_question = 0
        self._unconfirmed: list[tuple[int, bytes]] = []  # messages after the last answered question
        self._read_batches: deque[_ReadBatch] = deque()  # not reported as trained yet

    def next(self) -> LeasedBatch | None:  # noqa: D102
        while True:
            if self._next_sample >= self._end and not self._start_lease():
                return None
            start = self._next_sample
            until = self._next_sample = min(start + self.batch_size, self._end)
            if self._end - until <= self.batch_size:
                self._request_lease()
            batch = self._source.read(start, until - start)
            self._read_batches.append(_ReadBatch(self._lease, until, not len(batch.labels)))
            if len(batch.labels):
                return LeasedBatch(batch, self._lease, start, until, self._partly_applied)
            self._send(Op.skip, self._lease, start, until)
            self._report_empty()

    def trained(self, batch: LeasedBatch) -> None:  # noqa: D102
        self._read_batches.popleft()
        self._send(Op.trained, batch.lease, batch.start, batch.until)
        self._report_empty()

    def hand_back(self) -> None:  # noqa: D102
        self._send(Op.hand_back)
        if self._requested:
            self._await_answer()
            self._send(Op.hand_back)  # also what was granted meanwhile
        self._next_sample = self._end = 0
        self._read_batches.clear()
        self._send(Op.flush)
        self._await_answer()

    def close(self) -> None:
        """Close the connection."""
        self._closed = True
        drop(self._link)

    def _report_empty(self) -> None:
        """Report empty batches once those before them are trained, since a report covers all earlier samples."""
        while self._read_batches and self._read_batches[0].is_empty:
            lease, until, _ = self._read_batches.popleft()
            self._send(Op.trained, lease, until, until)

    def _request_lease(self) -> None:
        if not self._requested:
            self._requested = True
            self._send(Op.want)

    def _start_lease(self) -> bool:
        self._request_lease()
        answer = self._await_answer()
        self.finished = answer.state == LeaseState.finished
        if answer.state not in (LeaseState.leased, LeaseState.leased_partly_applied):
            return False
        self._lease = answer.lease
        self._next_sample = answer.start
        self._end = answer.end
        self._partly_applied = answer.state == LeaseState.leased_partly_applied
        return True

    def _send(self, op: Op, lease: int = 0, start: int = 0, end: int = 0) -> None:
        self._messages += 1
        if op in QUESTIONS:
            self._last_question = self._messages
        message = ASK.pack(*LeaseMessage(op, self._messages, lease, start, end))
        self._unconfirmed.append((self._messages, message))
        try:
            self._link.sendall(message)
        except OSError:
            self._reopen()

    def _await_answer(self) -> LeaseAnswer:
        answer = None
        for _ in Backoff(self._patience_s):
            with contextlib.suppress(OSError):
                answer = receive_bytes(self._link, ANSWER.size)
            if answer is not None:
                break
            self._reopen()
        else:
            raise ConnectionError("the session no longer answers this worker")
        self._requested = False
        self._unconfirmed = [each for each in self._unconfirmed if each[0] > self._last_question]
        return LeaseAnswer(*ANSWER.unpack(answer))

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
        reason = "this worker was stopped" if self._closed else "the session no longer accepts this worker"
        raise ConnectionError(reason)
