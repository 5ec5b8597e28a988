"""The server of leases, which grants leases over TCP and receives reports."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sizewright.training.leases.batch_source import ANSWER, ASK, QUESTIONS, LeaseAnswer, LeaseMessage, LeaseState, Op
from sizewright.training.leases.sample_leases import SampleLeases
from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.ps.routing import Address
from sizewright.training.transport.listeners import Listener
from sizewright.training.transport.wire import Hello, receive_bytes


@dataclass
class _LastMessage:
    """The number of a worker's last message, and the last answer to it."""

    number: int = 0
    answer: bytes = b""


class LeaseServer:
    """The session's side of `LeasedBatches`; `leases` may be read under `lock`.

    The end of a connection returns no samples: its worker may open another, or has died with pushes on their way.
    """

    def __init__(
        self, leases: SampleLeases, token: bytes, host: str = "127.0.0.1", clock: Callable[[], float] | None = None
    ) -> None:
        self.leases = leases
        self.lock = threading.Lock()
        self.finished = threading.Event()
        self._clock = clock or time.monotonic
        self._last_messages: dict[int, _LastMessage] = {}
        self._removed_workers: set[int] = set()
        self._listener = Listener(token, self._serve, host)

    @property
    def address(self) -> Address:
        """The host and port to connect to."""
        return self._listener.address

    def release(self, worker: int, applied: Sequence[SampleRanges]) -> int:
        """Refuse further messages of a worker that has left or died, and call `SampleLeases.release`."""
        with self.lock:
            self._removed_workers.add(worker)
            self._last_messages.pop(worker, None)
            released = self.leases.release(worker, applied)
            self._finish()
            return released

    def close(self) -> None:
        """Stop serving."""
        self._listener.close()

    def _serve(self, link: socket.socket, hello: Hello) -> None:
        while (received := receive_bytes(link, ASK.size)) is not None:
            op, *fields = ASK.unpack(received)
            if answer := self._answer(hello.id, LeaseMessage(Op(op), *fields)):
                link.sendall(answer)

    def _answer(self, worker: int, message: LeaseMessage) -> bytes:
        """Return the answer to a message, empty if there is none.

        A repeated message gets the same answer again, since the first one was lost.
        """
        with self.lock:
            if worker in self._removed_workers:
                raise ConnectionError("this worker was removed from the session")
            last = self._last_messages.setdefault(worker, _LastMessage())
            is_question = message.op in QUESTIONS
            if message.number > last.number:
                answer = self._process(worker, message)
                last.number = message.number
                self._finish()
                if is_question:
                    last.answer = answer
            return last.answer if is_question else b""

    def _process(self, worker: int, message: LeaseMessage) -> bytes:
        """Apply a message to the leases, and return the answer."""
        answer = None
        if message.op == Op.trained:
            self.leases.report(worker, message.lease, message.end, self._clock())
        elif message.op == Op.skip:
            self.leases.skip(message.start, message.end)
        elif message.op == Op.hand_back:
            self.leases.hand_back(worker)
        elif message.op == Op.want and (granted := self.leases.lease(worker, self._clock())) is not None:
            state = LeaseState.leased_partly_applied if granted.partly_applied else LeaseState.leased
            answer = LeaseAnswer(state, granted.id, granted.start, granted.end)
        if answer is None:
            answer = LeaseAnswer(LeaseState.finished if self.leases.finished else LeaseState.nothing)
        return ANSWER.pack(*answer)

    def _finish(self) -> None:
        if self.leases.finished:
            self.finished.set()
