"""The client of a worker, which splits exchanges by the routing and repeats them until every server has replied.

A server applies a push once, even if it arrives several times. So after a broken connection, the shares of an exchange
whose servers have not replied are sent again; after a change of the routing, the exchange is split again and sent to
all servers. A worker waits for a server or a newer routing for at most `patience_s`, by default 120 s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.training.ps.hash_index import Keys
from sizewright.training.ps.optimizers import Floats
from sizewright.training.ps.routing import Lookup, Routing
from sizewright.training.transport.exchange import (
    AGAIN,
    DONE,
    NO_FLOATS,
    NO_SAMPLES,
    PUSH,
    STALE,
    ExchangeRequest,
    Samples,
)
from sizewright.training.transport.links import Link, Transport

_FIRST_WAIT_S = 0.02
_MAX_WAIT_S = 1.0
_CONNECT_TIMEOUT_S = 2.0
_FIRST_CONNECT_TIMEOUT_S = 30.0


class OutgoingPush(NamedTuple):
    """Gradients, arrays (n, width), of the rows of look-ups, one for each width, for the samples [start, end).

    The look-ups were split by the routing of `version`.
    """

    tag: int
    version: int
    lookups: Sequence[Lookup]
    row_grads: Sequence[Floats]
    start: int = 0
    end: int = 0


class Pull(NamedTuple):
    """Look-ups, one for each width, whose rows are to be pulled."""

    tag: int
    lookups: Sequence[Lookup]


class DensePush(NamedTuple):
    """Gradients (d,) of all dense weights, summed over the samples (n, 2)."""

    grads: Floats = NO_FLOATS
    samples: Samples = NO_SAMPLES


class _Exchange(NamedTuple):
    push: OutgoingPush | None
    pull: Pull | None
    dense: DensePush
    flags: int


_Positions = slice | NDArray[np.int64]


class _Share(NamedTuple):
    """One server's share of an exchange, for each width: its positions in the pushed and pulled keys.

    `dense` is its slice of the dense weights.
    """

    push: tuple[_Positions, ...]
    pull: tuple[_Positions, ...]
    dense: slice


class PsClient:
    """Exchanges gradients and rows of some `widths` with all servers of the current routing.

    `announce` may be called from another thread. The new routing is adopted when a server refuses the old one or has
    died. Waiting for links, or for a new routing, raises ConnectionError after `patience_s`.
    """

    def __init__(
        self, transport: Transport, worker: int, routing: Routing, widths: Sequence[int], *, patience_s: float = 120.0
    ) -> None:
        self.routing = routing
        self.widths = tuple(widths)
        self.cuts = 0
        """The number of links that broke and were opened again."""
        self.cut_s = 0.0
        """The total seconds for which these links were broken."""
        self._no_rows = tuple(self.empty_rows())
        self._no_keys: tuple[Keys, ...] = (np.empty(0, np.int64),) * len(self.widths)
        self._transport = transport
        self._worker = worker
        self._patience_s = patience_s
        self._links: dict[int, Link] = {}
        self._lost_at: dict[int, float] = {}
        self._closed_sent_bytes = 0  # of links that are closed
        self._closed_received_bytes = 0
        self._changed = threading.Condition()
        self._announced = routing
        self._closed = False
        self._shares: list[_Share] = []
        self._sent_on: dict[int, Link | None] = {}
        self._connect(routing, _FIRST_CONNECT_TIMEOUT_S)

    @property
    def sent_bytes(self) -> int:
        """The total bytes sent."""
        return self._closed_sent_bytes + sum(link.sent_bytes for link in list(self._links.values()))

    @property
    def received_bytes(self) -> int:
        """The total bytes received."""
        return self._closed_received_bytes + sum(link.received_bytes for link in list(self._links.values()))

    def announce(self, routing: Routing, gone: Collection[int] = ()) -> None:
        """Open links to the servers of a newer routing, and cut those to servers that are `gone`.

        The exchange in progress adopts the routing only when a server calls the current one stale, or a link breaks.
        """
        self._connect(routing, _CONNECT_TIMEOUT_S)  # now, so that a change of the routing waits for no handshake
        with self._changed:
            if routing.version > self._announced.version:
                self._announced = routing
            for server in gone:
                if server in self._links:
                    self._links[server].close()
            self._changed.notify_all()

    def close(self) -> None:
        """Cut all links; a waiting thread gets a ConnectionError."""
        with self._changed:
            self._closed = True
            for link in self._links.values():
                link.close()
            self._changed.notify_all()

    def send(self, push: OutgoingPush | None, pull: Pull | None, dense: DensePush, flags: int) -> None:
        """Send one exchange to every server; `receive` must follow before the next."""
        self._exchange = _Exchange(push, pull, dense, flags)
        is_current = push is None or push.version == self.routing.version
        self._shares = self._split(regroup_push=not is_current, regroup_pull=False)
        for i in range(len(self._shares)):
            self._send_share(i, with_keys=not is_current)

    def empty_rows(self, lookups: Sequence[Lookup] = ()) -> list[Floats]:
        """Return arrays (n, width) for the rows of look-ups, by default of none."""
        counts = [len(lookup.keys) for lookup in lookups] or [0] * len(self.widths)
        return [np.empty((count, width), np.float32) for count, width in zip(counts, self.widths, strict=True)]

    def receive(self, rows: Sequence[Floats], weights: Floats) -> tuple[float, float]:
        """Fill the rows (n, width) of the pull, in the order of its keys, and the dense weights (d,) if requested.

        Return the seconds spent waiting for replies and the seconds spent reading them. Raise ConnectionError if a
        server has died and nobody takes its place.
        """
        waited = read = 0.0
        pending = list(range(len(self._shares)))
        while pending:
            states = {}
            for i in pending:
                start = time.perf_counter()
                states[i], arrived = self._receive_share(i, rows, weights)
                waited += arrived - start
                read += time.perf_counter() - arrived
            pending = [i for i, state in states.items() if state != DONE]
            if pending:
                start = time.perf_counter()
                pending = self._send_again(pending, is_stale=STALE in states.values())
                waited += time.perf_counter() - start
        return waited, read

    def _split(self, *, regroup_push: bool, regroup_pull: bool) -> list[_Share]:
        """Return the shares of the exchange by server.

        Look-ups that were split by another routing must be regrouped; others are in the order of the servers already.
        """
        push, pull, _, _ = self._exchange
        pushed = self._positions(push.lookups if push else (), regroup_push)
        pulled = self._positions(pull.lookups if pull else (), regroup_pull)
        return [_Share(*share) for share in zip(pushed, pulled, self.routing.slices(), strict=True)]

    def _positions(self, lookups: Sequence[Lookup], regroup: bool) -> list[tuple[_Positions, ...]]:
        """Return the positions of each server's keys in each look-up."""
        if not lookups:
            return [(slice(0, 0),) * len(self.widths)] * len(self.routing.servers)
        return list(zip(*(self._positions_in(lookup, regroup) for lookup in lookups), strict=True))

    def _positions_in(self, lookup: Lookup, regroup: bool) -> Sequence[_Positions]:
        if regroup:
            positions, counts = self.routing.split(lookup.keys)
            return np.split(positions, np.cumsum(counts)[:-1])
        edges = np.cumsum([0, *lookup.counts]).tolist()
        return [slice(start, end) for start, end in pairwise(edges)]

    def _send_share(self, i: int, *, with_keys: bool) -> None:
        server, share = self.routing.servers[i], self._shares[i]
        push, pull, dense, flags = self._exchange
        request = ExchangeRequest(
            self.routing.version,
            flags,
            push_keys=self._no_keys,
            row_grads=self._no_rows,
            dense_samples=dense.samples,
            keys=self._no_keys,
        )
        if push is not None or len(dense.samples):
            request = request._replace(flags=request.flags | PUSH)
        if push is not None:
            request = request._replace(
                push_tag=push.tag,
                start=push.start,
                end=push.end,
                push_keys=_keys_at(push.lookups, share.push) if with_keys else self._no_keys,
                row_grads=tuple(grads[at] for grads, at in zip(push.row_grads, share.push, strict=True)),
            )
        if dense.grads.size:
            request = request._replace(dense_grads=dense.grads[share.dense])
        if pull is not None:
            request = request._replace(pull_tag=pull.tag, keys=_keys_at(pull.lookups, share.pull))
        link = self._links.get(server.id)
        try:
            if link is not None:
                link.send(request)
        except OSError:
            self._lose(server.id, link)
            link = None
        self._sent_on[i] = link

    def _receive_share(self, i: int, rows: Sequence[Floats], weights: Floats) -> tuple[int | None, float]:
        """Return the state of a server's reply, None if its link has broken, and the time of its arrival."""
        server, share = self.routing.servers[i], self._shares[i]
        arrived = time.perf_counter()
        link = self._sent_on[i]  # not the current one: `announce` may have opened another, on which nothing was sent
        if link is None:
            return None, arrived
        try:
            head = link.wait()
            arrived = time.perf_counter()
            if head.state == DONE:
                dense = weights[share.dense] if head.dense else NO_FLOATS
                # Of a slice this is a view, into which the rows are read; of positions it is a copy.
                pulled = [array[at] for array, at in zip(rows, share.pull, strict=True)]
                link.read(pulled, dense)
                for array, at, received in zip(rows, share.pull, pulled, strict=True):
                    if not isinstance(at, slice):
                        array[at] = received
        except OSError:
            self._lose(server.id, link)
            return None, arrived
        return head.state, arrived

    def _send_again(self, pending: list[int], *, is_stale: bool) -> list[int]:
        """Send pending shares again once the broken links are open again, or everything by a newer routing.

        Return the positions of the servers whose replies must be awaited.
        """
        if self._await_newer_routing(is_stale=is_stale):
            self._adopt(self._announced)
            self._exchange = self._exchange._replace(flags=self._exchange.flags | AGAIN)
            self._shares = self._split(regroup_push=True, regroup_pull=True)
            pending = list(range(len(self._shares)))
        for i in pending:
            self._send_share(i, with_keys=True)
        return pending

    def _await_newer_routing(self, *, is_stale: bool) -> bool:
        """Wait for a newer routing and return True, or return False once all links are open again.

        A server that called the current routing stale needs a newer one. Raise ConnectionError after `patience_s`.
        """
        deadline = time.monotonic() + self._patience_s
        wait_s = 0.0
        while True:
            with self._changed:
                is_newer = self._changed.wait_for(
                    lambda: self._closed or self._announced.version > self.routing.version, wait_s
                )
                if self._closed or (not is_newer and time.monotonic() > deadline):
                    raise ConnectionError("a parameter server has died and nobody took its place")
            if is_newer:
                return True
            if not is_stale:
                self._connect(self.routing, _CONNECT_TIMEOUT_S)
                if all(server.id in self._links for server in self.routing.servers):
                    return False
            wait_s = min(max(_FIRST_WAIT_S, 2 * wait_s), _MAX_WAIT_S, max(0.0, deadline - time.monotonic()))

    def _adopt(self, routing: Routing) -> None:
        self.routing = routing
        current = {server.id for server in routing.servers}
        for server, link in list(self._links.items()):
            if server not in current:
                self._lose(server, link)
        with self._changed:  # a server that has left was not cut off, even if it returns under the same number
            self._lost_at = {server: at_s for server, at_s in self._lost_at.items() if server in current}
        self._connect(routing, _CONNECT_TIMEOUT_S)

    def _connect(self, routing: Routing, timeout_s: float) -> None:
        """Open links to those servers of a routing that have none; failures are left to later attempts."""
        for server in routing.servers:
            if server.id in self._links:
                continue
            try:
                link = self._transport.connect(server, self._worker, timeout_s)
            except OSError:
                continue
            with self._changed:
                if self._closed or server.id in self._links:
                    link.close()
                    continue
                self._links[server.id] = link
                if server.id in self._lost_at:
                    self.cuts += 1
                    self.cut_s += time.monotonic() - self._lost_at.pop(server.id)

    def _lose(self, server: int, link: Link | None) -> None:
        with self._changed:
            if link is None or self._links.get(server) is not link:
                return
            del self._links[server]
            self._lost_at[server] = time.monotonic()
        link.close()
        self._closed_sent_bytes += link.sent_bytes
        self._closed_received_bytes += link.received_bytes


def _keys_at(lookups: Sequence[Lookup], positions: Sequence[_Positions]) -> tuple[Keys, ...]:
    return tuple(lookup.keys[at] for lookup, at in zip(lookups, positions, strict=True))
