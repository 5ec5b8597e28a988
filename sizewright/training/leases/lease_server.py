"""Gives out leases over TCP and takes reports."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sizewright.training.leases.batch_source import ANSWER, ASK, QUESTIONS, Op, State
from sizewright.training.leases.sample_leases import SampleLeases
from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.routing import Address
from sizewright.training.transport.listeners import Listener
from sizewright.training.transport.wire import Hello, receive_bytes


@dataclass
class _Heard:
    """The number of what a worker said last, and the last answer to it."""

    number: int = 0
    answer: bytes = b""


class LeaseServer:
    """The session's side of `LeasedBatches`; `book` may be read under `lock`.

    A connection that ends gives nothing back: its worker may open another, or has died with samples on their way.
    """

    def __init__(
        self, book: SampleLeases, token: bytes, host: str = "127.0.0.1", clock: Callable[[], float] | None = None
    ) -> None:
        self.book = book
        self.lock = threading.Lock()
        self.finished = threading.Event()
        self._clock = clock or time.monotonic
        self._heard: dict[int, _Heard] = {}
        self._gone: set[int] = set()
        self._listener = Listener(token, self._serve, host)

    @property
    def address(self) -> Address:
        """Host and port to connect to."""
        return self._listener.address

    def release(self, worker: int, applied: Sequence[SampleRanges]) -> int:
        """A worker has gone, and nothing is heard from it any more; see `SampleLeases.release`."""
        with self.lock:
            self._gone.add(worker)
            self._heard.pop(worker, None)
            again = self.book.release(worker, applied)
            self._finish()
            return again

    def close(self) -> None:
        """Stop serving."""
        self._listener.close()

    def _serve(self, link: socket.socket, hello: Hello) -> None:
        while (asked := receive_bytes(link, ASK.size)) is not None:
            op, number, lease, start, end = ASK.unpack(asked)
            if answer := self._answer(hello.id, Op(op), number, lease, start, end):
                link.sendall(answer)

    def _answer(self, worker: int, op: Op, number: int, lease: int, start: int, end: int) -> bytes:
        """What to answer, if anything. What was heard before has been lost on its way back: it is answered alike."""
        with self.lock:
            if worker in self._gone:
                raise ConnectionError("another worker has taken the place of this one")
            heard = self._heard.setdefault(worker, _Heard())
            answered = op in QUESTIONS
            if number > heard.number:
                heard.number = number
                answer = self._do(worker, op, lease, start, end)
                self._finish()
                if answered:
                    heard.answer = answer
            return heard.answer if answered else b""

    def _do(self, worker: int, op: Op, lease: int, start: int, end: int) -> bytes:
        if op == Op.trained:
            self.book.report(worker, lease, end, self._clock())
        elif op == Op.skip:
            self.book.skip(start, end)
        elif op == Op.hand_back:
            self.book.hand_back(worker)
        elif op == Op.want and (given := self.book.lease(worker, self._clock())) is not None:
            state = State.leased_again if given.again else State.leased
            return ANSWER.pack(state, given.id, given.start, given.end)
        return ANSWER.pack(State.finished if self.book.finished else State.nothing, 0, 0, 0)

    def _finish(self) -> None:
        if self.book.finished:
            self.finished.set()
