"""A worker's way to its servers: it splits exchanges by the routing, and asks again where the routing has changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.training.exchange import (
    AGAIN,
    DONE,
    LEAVE,
    NO_FLOATS,
    NO_KEYS,
    PUSH,
    STALE,
    WANT_DENSE,
    Request,
)
from sizewright.training.optimizers import Floats
from sizewright.training.routing import Lookup, Routing
from sizewright.training.transport import Link, Transport

Positions = NDArray[np.int64]
_NONE: Positions = np.empty(0, np.int64)


class Push(NamedTuple):
    """Gradients (n, width) of the rows of a look-up, which was split by the routing of `version`."""

    tag: int
    version: int
    lookup: Lookup
    row_grads: Floats


class Pull(NamedTuple):
    """Rows to bring."""

    tag: int
    lookup: Lookup


class _Part(NamedTuple):
    """What one server was asked: positions in the keys pushed and pulled, its slice of the dense weights, and the
    parts of the dense gradients that were pushed to it."""

    push: Positions
    pull: Positions
    dense: slice
    grads: list[slice]


class _Asked(NamedTuple):
    """The same as slices: what one server was asked at first."""

    push: slice
    pull: slice
    dense: slice

    def part(self) -> _Part:
        push, pull = (np.arange(part.start, part.stop) for part in (self.push, self.pull))
        return _Part(push, pull, self.dense, [self.dense])


class Router:
    """Links to all servers of the present routing.

    `announce` may be called from another thread; the new routing is taken up when a server refuses the old one or
    has gone. Waits for an announcement end with ConnectionError after `patience_s`.
    """

    def __init__(
        self, transport: Transport, worker: int, routing: Routing, width: int, *, patience_s: float = 120.0
    ) -> None:
        self.routing = routing
        self.width = width
        self._transport, self._worker, self._patience_s = transport, worker, patience_s
        self._links: dict[int, Link] = {}
        self._closed_bytes = [0, 0]
        self._news = threading.Condition()
        self._announced = routing
        self._stopped = False
        self._asked: list[_Asked] = []
        self._connect(routing)

    @property
    def sent_bytes(self) -> int:
        """Bytes sent in all."""
        return self._closed_bytes[0] + sum(link.sent_bytes for link in self._links.values())

    @property
    def received_bytes(self) -> int:
        """Bytes received in all."""
        return self._closed_bytes[1] + sum(link.received_bytes for link in self._links.values())

    def announce(self, routing: Routing, gone: Collection[int] = ()) -> None:
        """A routing that will be valid soon; links to the servers in `gone` are cut so that nobody waits on them."""
        self._connect(routing)  # now, so that a change of the routing waits for no handshake
        with self._news:
            if routing.version > self._announced.version:
                self._announced = routing
            for server in gone:
                if server in self._links:
                    self._links[server].close()
            self._news.notify_all()

    def close(self) -> None:
        """Cut all links; a thread that waits is woken with ConnectionError."""
        with self._news:
            self._stopped = True
            for link in self._links.values():
                link.close()
            self._news.notify_all()

    def send(self, push: Push | None, pull: Pull | None, dense_grads: Floats, flags: int) -> None:
        """Send one exchange to every server; `receive` must follow before the next."""
        self._push, self._pull, self._dense, self._flags = push, pull, dense_grads, flags
        self._push_keys, self._grads = NO_KEYS, np.empty((0, self.width), np.float32)
        push_counts = [0] * len(self.routing.servers)
        explicit = NO_KEYS
        if push is not None:
            self._push_keys, self._grads, push_counts = push.lookup.keys, push.row_grads, push.lookup.counts
            if push.version != self.routing.version:
                order, push_counts = self.routing.split(push.lookup.keys)
                explicit = self._push_keys = push.lookup.keys[order]
                self._grads = push.row_grads[order]
        pull_counts = pull.lookup.counts if pull else [0] * len(self.routing.servers)
        self._asked = []
        at = [0, 0]
        for i, dense in enumerate(self.routing.slices()):
            mine, theirs = slice(at[0], at[0] + push_counts[i]), slice(at[1], at[1] + pull_counts[i])
            self._send_part(i, mine, theirs, dense, len(explicit) > 0)
            at = [mine.stop, theirs.stop]

    def receive(self, rows: Floats, weights: Floats) -> tuple[float, float]:
        """Write the rows (n, width) pulled, and the dense weights (d,) if they were wanted.

        Returns seconds waited for replies and seconds spent reading them. What a server refused is asked again of
        those that hold it now.
        """
        waited = read = 0.0
        refused: list[tuple[_Part, int]] = []
        for i, asked in enumerate(self._asked):
            start = time.perf_counter()
            state, arrived = self._receive_part(i, asked, rows, weights)
            waited += arrived - start
            read += time.perf_counter() - arrived
            if state != DONE:
                refused.append((asked.part(), state))
        if refused:
            start = time.perf_counter()
            self._ask_again(refused, rows, weights)
            waited += time.perf_counter() - start
        return waited, read

    def _send_part(self, i: int, push: slice, pull: slice, dense: slice, explicit: bool) -> None:
        server = self.routing.servers[i]
        keys = self._pull.lookup.keys[pull] if self._pull else NO_KEYS
        request = Request(
            self.routing.version,
            self._flags | (PUSH if self._push or (self._flags & LEAVE and self._dense.size) else 0),
            self._push.tag if self._push else 0,
            self._push_keys[push] if explicit else NO_KEYS,
            self._grads[push],
            dense.start,
            self._dense[dense] if self._dense.size else NO_FLOATS,
            self._pull.tag if self._pull else 0,
            keys,
        )
        self._asked.append(_Asked(push, pull, dense))
        try:
            self._links[server.id].send(request)
        except (OSError, KeyError):
            self._lose(server.id)

    def _receive_part(self, i: int, asked: _Asked, rows: Floats, weights: Floats) -> tuple[int, float]:
        server = self.routing.servers[i]
        arrived = time.perf_counter()
        try:
            link = self._links[server.id]
            head = link.wait()
            arrived = time.perf_counter()
            if head.state == DONE:
                link.read(rows[asked.pull], weights[asked.dense] if head.dense else NO_FLOATS)
        except (OSError, KeyError):
            self._lose(server.id)
            return STALE, arrived
        return head.state, arrived

    def _ask_again(self, refused: list[tuple[_Part, int]], rows: Floats, weights: Floats) -> None:
        """Once a newer routing is known, ask again until all is done."""
        while refused:
            self._take_up(self._await_news())
            push = np.concatenate([_NONE, *(part.push for part, state in refused if state == STALE)])
            pull = np.concatenate([_NONE, *(part.pull for part, _ in refused)])
            grads = [each for part, state in refused if state == STALE for each in part.grads if self._dense.size]
            asked = self._resend(push, pull, grads, [part.dense for part, _ in refused])
            refused = []
            for i, part in asked:
                state = self._reread(i, part, rows, weights)
                if state != DONE:
                    refused.append((part, state))

    def _resend(
        self, push: Positions, pull: Positions, pushed: list[slice], wanted: list[slice]
    ) -> list[tuple[int, _Part]]:
        pull_keys = self._pull.lookup.keys[pull] if self._pull else NO_KEYS
        push_order, push_counts = self.routing.split(self._push_keys[push])
        pull_order, pull_counts = self.routing.split(pull_keys)
        asked, at = [], [0, 0]
        for i, own in enumerate(self.routing.slices()):
            mine = push[push_order[at[0] : at[0] + push_counts[i]]]
            theirs = pull[pull_order[at[1] : at[1] + pull_counts[i]]]
            at = [at[0] + push_counts[i], at[1] + pull_counts[i]]
            part = _Part(mine, theirs, own, _within(own, pushed))
            want = bool(self._flags & WANT_DENSE) and bool(_within(own, wanted))
            if len(mine) or len(theirs) or part.grads or want or self._flags & LEAVE:
                self._send_again(i, part, want)
                asked.append((i, part))
        return asked

    def _send_again(self, i: int, part: _Part, want: bool) -> None:
        server = self.routing.servers[i]
        start, grads = _gathered(self._dense, part.grads)
        pushes = len(part.push) or grads.size
        request = Request(
            self.routing.version,
            AGAIN | (PUSH if pushes else 0) | (WANT_DENSE if want else 0) | (self._flags & LEAVE),
            self._push.tag if self._push else 0,
            self._push_keys[part.push],
            self._grads[part.push],
            start,
            grads,
            0,
            self._pull.lookup.keys[part.pull] if self._pull else NO_KEYS,
        )
        try:
            self._links[server.id].send(request)
        except (OSError, KeyError):
            self._lose(server.id)

    def _reread(self, i: int, part: _Part, rows: Floats, weights: Floats) -> int:
        server = self.routing.servers[i]
        try:
            link = self._links[server.id]
            head = link.wait()
            if head.state == DONE:
                found = np.empty((len(part.pull), self.width), np.float32)
                link.read(found, weights[part.dense] if head.dense else NO_FLOATS)
                rows[part.pull] = found
        except (OSError, KeyError):
            self._lose(server.id)
            return STALE
        return head.state

    def _await_news(self) -> Routing:
        with self._news:
            newer = self._news.wait_for(
                lambda: self._stopped or self._announced.version > self.routing.version, self._patience_s
            )
            if self._stopped or not newer:
                raise ConnectionError("a parameter server has gone and nobody took its place")
            return self._announced

    def _take_up(self, routing: Routing) -> None:
        self.routing = routing
        stay = {server.id for server in routing.servers}
        for server in [server for server in self._links if server not in stay]:
            self._lose(server)
        self._connect(routing)

    def _connect(self, routing: Routing) -> None:
        for server in routing.servers:
            if server.id not in self._links:
                try:
                    link = self._transport.connect(server, self._worker)
                except OSError:
                    continue  # it has gone again: a later routing will say so
                with self._news:
                    if self._stopped or server.id in self._links:
                        link.close()
                    else:
                        self._links[server.id] = link

    def _lose(self, server: int) -> None:
        with self._news:
            link = self._links.pop(server, None)
        if link is not None:
            link.close()
            self._closed_bytes[0] += link.sent_bytes
            self._closed_bytes[1] += link.received_bytes


def _within(own: slice, others: Iterable[slice]) -> list[slice]:
    """What of other slices lies in one."""
    cut = (slice(max(own.start, other.start), min(own.stop, other.stop)) for other in others)
    return [part for part in cut if part.start < part.stop]


def _gathered(dense: Floats, parts: list[slice]) -> tuple[int, Floats]:
    """Parts of a vector as one piece of it, zero between them; and where it begins."""
    if not parts:
        return 0, NO_FLOATS
    start = min(part.start for part in parts)
    piece = np.zeros(max(part.stop for part in parts) - start, np.float32)
    for part in parts:
        piece[part.start - start : part.stop - start] = dense[part]
    return start, piece
