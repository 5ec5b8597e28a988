"""Gives out leases over TCP and takes reports; a connection that ends gives back what its worker had."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

from sizewright.training.feed import ANSWER, ASK, Op, State
from sizewright.training.leases import LeaseBook
from sizewright.training.replica_server import Listener
from sizewright.training.routing import Address
from sizewright.training.wire import Hello, receive_bytes


class LeaseServer:
    """The session's side of `LeasedFeed`; `book` may be read under `lock`."""

    def __init__(
        self, book: LeaseBook, token: bytes, host: str = "127.0.0.1", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.book = book
        self.lock = threading.Lock()
        self.finished = threading.Event()
        self.reported: dict[int, int] = {}
        """The tag of the last push that each worker has reported."""
        self.reports = 0
        """Batches that have reached every server, as often as they did."""
        self._clock = clock
        self._listener = Listener(token, self._serve, host)

    @property
    def address(self) -> Address:
        """Host and port to connect to."""
        return self._listener.address

    def drop(self, worker: int) -> int:
        """A worker has died: returns how many samples are to be leased again."""
        with self.lock:
            return self.book.drop(worker)

    def close(self) -> None:
        """Stop serving."""
        self._listener.close()

    def _serve(self, link: socket.socket, hello: Hello) -> None:
        try:
            while (asked := receive_bytes(link, ASK.size)) is not None:
                op, lease, until, tag = ASK.unpack(asked)
                if answer := self._answer(hello.id, Op(op), lease, until, tag):
                    link.sendall(answer)
        finally:
            self.drop(hello.id)

    def _answer(self, worker: int, op: Op, lease: int, until: int, tag: int) -> bytes | None:
        with self.lock:
            if self.book.finished:  # from the start, where a finished run is resumed
                self.finished.set()
            if op == Op.want:
                given = self.book.lease(worker, self._clock())
                if given is not None:
                    return ANSWER.pack(State.leased, given.id, given.start, given.end)
                return ANSWER.pack(State.finished if self.book.finished else State.nothing, 0, 0, 0)
            if op == Op.trained:
                self.book.report(worker, lease, until, self._clock())
                if tag:
                    self.reported[worker] = tag
                    self.reports += 1
                if self.book.finished:
                    self.finished.set()
            else:
                self.book.hand_back(worker)
            return None
