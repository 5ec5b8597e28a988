"""A worker's way to its servers: it splits exchanges by the routing, and sends them again until each has been served.

A server applies a push once, however often it comes. So what was interrupted, by a change of the routing or by a cut
connection, is sent again as a whole.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.training.optimizers import Floats
from sizewright.training.routing import Lookup, Routing
from sizewright.training.transport.exchange import (
    AGAIN,
    DONE,
    NO_FLOATS,
    NO_KEYS,
    NO_SAMPLES,
    PUSH,
    STALE,
    Request,
    Samples,
)
from sizewright.training.transport.links import Link, Transport

_FIRST_WAIT_S, _LONGEST_WAIT_S, _ANSWER_S = 0.02, 1.0, 2.0


class Push(NamedTuple):
    """Gradients (n, width) of the rows of a look-up, which was split by the routing of `version`, and the samples
    [start, end) that they are of."""

    tag: int
    version: int
    lookup: Lookup
    row_grads: Floats
    start: int = 0
    end: int = 0


class Pull(NamedTuple):
    """Rows to bring."""

    tag: int
    lookup: Lookup


class DensePush(NamedTuple):
    """Gradients (d,) of all dense weights, the sum of those of samples (n, 2)."""

    grads: Floats = NO_FLOATS
    samples: Samples = NO_SAMPLES


class _Exchange(NamedTuple):
    push: Push | None
    pull: Pull | None
    dense: DensePush
    flags: int


class _Part(NamedTuple):
    """What one server is asked: positions in the keys pushed and pulled, and its slice of the dense weights."""

    push: slice | NDArray[np.int64]
    pull: slice | NDArray[np.int64]
    dense: slice


class PsClient:
    """Links to all servers of the present routing.

    `announce` may be called from another thread; the new routing is taken up when a server refuses the old one or
    has gone. Whoever waits for a server or for news of one gets a ConnectionError after `patience_s`.
    """

    def __init__(
        self, transport: Transport, worker: int, routing: Routing, width: int, *, patience_s: float = 120.0
    ) -> None:
        self.routing = routing
        self.width = width
        self.cuts = 0
        """Links that broke, to servers that went on, and were opened again."""
        self.cut_s = 0.0
        """How long they were open no more, in all."""
        self._transport, self._worker, self._patience_s = transport, worker, patience_s
        self._links: dict[int, Link] = {}
        self._lost_at: dict[int, float] = {}
        self._closed_bytes = [0, 0]
        self._news = threading.Condition()
        self._announced = routing
        self._stopped = False
        self._parts: list[_Part] = []
        self._sent_on: dict[int, Link | None] = {}
        self._connect(routing, 30.0)

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
        self._connect(routing, _ANSWER_S)  # now, so that a change of the routing waits for no handshake
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

    def send(self, push: Push | None, pull: Pull | None, dense: DensePush, flags: int) -> None:
        """Send one exchange to every server; `receive` must follow before the next."""
        self._exchange, self._again = _Exchange(push, pull, dense, flags), 0
        current = push is None or push.version == self.routing.version
        self._parts = self._split(push_order=not current, pull_order=False)
        for i in range(len(self._parts)):
            self._send_part(i, explicit=not current)

    def receive(self, rows: Floats, weights: Floats) -> tuple[float, float]:
        """Fill the rows (n, width) of the pull, in the order of its keys, and the dense weights (d,) if wanted.

        Returns seconds waited for replies and seconds spent reading them. Raises ConnectionError when a server has
        gone for good.
        """
        waited = read = 0.0
        pending = list(range(len(self._parts)))
        while pending:
            states = {}
            for i in pending:
                start = time.perf_counter()
                states[i], arrived = self._receive_part(i, rows, weights)
                waited += arrived - start
                read += time.perf_counter() - arrived
            pending = [i for i, state in states.items() if state != DONE]
            if pending:
                start = time.perf_counter()
                pending = self._send_again(pending, stale=STALE in states.values())
                waited += time.perf_counter() - start
        return waited, read

    def _split(self, *, push_order: bool, pull_order: bool) -> list[_Part]:
        """The parts of the exchange by server. A look-up that was split by this routing is in the order of its
        servers already."""
        push, pull, servers = self._exchange.push, self._exchange.pull, len(self.routing.servers)
        pushed = self._positions(push.lookup, push_order) if push else [slice(0, 0)] * servers
        pulled = self._positions(pull.lookup, pull_order) if pull else [slice(0, 0)] * servers
        return [_Part(*part) for part in zip(pushed, pulled, self.routing.slices(), strict=True)]

    def _positions(self, lookup: Lookup, order: bool) -> Sequence[slice | NDArray[np.int64]]:
        if order:
            positions, counts = self.routing.split(lookup.keys)
            return np.split(positions, np.cumsum(counts)[:-1])
        edges = np.cumsum([0, *lookup.counts]).tolist()
        return [slice(a, b) for a, b in pairwise(edges)]

    def _send_part(self, i: int, *, explicit: bool) -> None:
        server, part = self.routing.servers[i], self._parts[i]
        push, pull, dense, flags = self._exchange
        request = Request(self.routing.version, flags | self._again, dense_samples=dense.samples)
        if push is not None or len(dense.samples):
            request = request._replace(flags=request.flags | PUSH)
        if push is not None:
            request = request._replace(
                push_tag=push.tag,
                start=push.start,
                end=push.end,
                push_keys=push.lookup.keys[part.push] if explicit else NO_KEYS,
                row_grads=push.row_grads[part.push],
            )
        if dense.grads.size:
            request = request._replace(dense_grads=dense.grads[part.dense])
        if pull is not None:
            request = request._replace(pull_tag=pull.tag, keys=pull.lookup.keys[part.pull])
        link = self._links.get(server.id)
        try:
            if link is not None:
                link.send(request)
        except OSError:
            self._lose(server.id, link)
            link = None
        self._sent_on[i] = link

    def _receive_part(self, i: int, rows: Floats, weights: Floats) -> tuple[int | None, float]:
        """The state of a server's reply, None where its link has broken, and when it came."""
        server, part = self.routing.servers[i], self._parts[i]
        arrived = time.perf_counter()
        link = self._sent_on[i]  # not the present one: `announce` may have opened another, on which nothing was asked
        if link is None:
            return None, arrived
        try:
            head = link.wait()
            arrived = time.perf_counter()
            if head.state == DONE:
                dense = weights[part.dense] if head.dense else NO_FLOATS
                if isinstance(part.pull, slice):
                    link.read(rows[part.pull], dense)
                else:
                    found = np.empty((len(part.pull), self.width), np.float32)
                    link.read(found, dense)
                    rows[part.pull] = found
        except OSError:
            self._lose(server.id, link)
            return None, arrived
        return head.state, arrived

    def _send_again(self, pending: list[int], *, stale: bool) -> list[int]:
        """Once a newer routing is known, or all broken links are open again: send what is to be sent again.

        Returns the servers whose replies are to be awaited.
        """
        if self._await_change(stale=stale):
            self._take_up(self._announced)
            self._parts, self._again = self._split(push_order=True, pull_order=True), AGAIN
            pending = list(range(len(self._parts)))
        for i in pending:
            self._send_part(i, explicit=True)
        return pending

    def _await_change(self, *, stale: bool) -> bool:
        """Whether there is a newer routing; without one, all links are open when this returns."""
        deadline, wait_s = time.monotonic() + self._patience_s, 0.0
        while True:
            with self._news:
                newer = self._news.wait_for(
                    lambda: self._stopped or self._announced.version > self.routing.version, wait_s
                )
                if self._stopped or (not newer and time.monotonic() > deadline):
                    raise ConnectionError("a parameter server has gone and nobody took its place")
            if newer:
                return True
            if not stale:
                self._connect(self.routing, _ANSWER_S)
                if all(server.id in self._links for server in self.routing.servers):
                    return False
            wait_s = min(max(_FIRST_WAIT_S, 2 * wait_s), _LONGEST_WAIT_S, max(0.0, deadline - time.monotonic()))

    def _take_up(self, routing: Routing) -> None:
        self.routing = routing
        stay = {server.id for server in routing.servers}
        for server, link in [(server, link) for server, link in self._links.items() if server not in stay]:
            self._lose(server, link)
        with self._news:  # a server that leaves was not cut off, though it may come back by the same number
            self._lost_at = {server: at_s for server, at_s in self._lost_at.items() if server in stay}
        self._connect(routing, _ANSWER_S)

    def _connect(self, routing: Routing, answer_s: float) -> None:
        for server in routing.servers:
            if server.id in self._links:
                continue
            try:
                link = self._transport.connect(server, self._worker, answer_s)
            except OSError:
                continue  # it has gone: it is tried again, or a later routing will say so
            with self._news:
                if self._stopped or server.id in self._links:
                    link.close()
                    continue
                self._links[server.id] = link
                if server.id in self._lost_at:
                    self.cuts += 1
                    self.cut_s += time.monotonic() - self._lost_at.pop(server.id)

    def _lose(self, server: int, link: Link | None) -> None:
        with self._news:
            if link is None or self._links.get(server) is not link:
                return
            del self._links[server]
            self._lost_at[server] = time.monotonic()
        link.close()
        self._closed_bytes[0] += link.sent_bytes
        self._closed_bytes[1] += link.received_bytes
