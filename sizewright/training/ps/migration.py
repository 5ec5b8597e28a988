"""Moving rows while training goes on: copy everything, then replay in rounds what has changed since.

Only the last round stops exchanges. The same copying feeds snapshots, which need no last round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from sizewright.training.embedding import MOVE, Mask, Rows
from sizewright.training.hash_index import Keys
from sizewright.training.ps.parameter_server import ParameterServer
from sizewright.training.routing import Owners, Routing, partition_of
from sizewright.training.transport.peers import Parcel, Peer

_SCANNED = 1 << 16  # row numbers looked at under one lock
_CHUNK = 4096  # rows copied under one lock: about half a millisecond
_FEW = 2 * _CHUNK  # rows that may be left for the last round
_MOST_ROUNDS, _MOST_ROUNDS_AT_LAST = 12, 4
# A copy takes at most this share of the time, so that it does not starve the exchanges of a server of few cores; with
# less, more rows change before it is done, and are sent again.
_SHARE = 0.5
_LONGEST_REST_S = 0.1

Send = Callable[[Rows], None]
Wanted = Callable[[Keys], Mask]


def copy_unread(
    ps: ParameterServer,
    reader: int,
    send: Send,
    *,
    wanted: Wanted | None = None,
    still_unread: bool = False,
    polite: bool = True,
) -> int:
    """Send every wanted row that the reader has not seen; returns how many.

    With `still_unread` the others stay unread, since they may be wanted later.
    """
    sent, start = 0, 0
    while True:
        with ps.locked() as store:
            top, slots = store.top, store.unread(reader, start, min(start + _SCANNED, store.top))
        for piece in range(0, len(slots), _CHUNK):
            began = time.perf_counter()
            with ps.locked() as store:
                rows = store.take(slots[piece : piece + _CHUNK], reader, wanted, still_unread=still_unread)
            if not len(rows.keys):
                continue
            send(rows)
            sent += len(rows.keys)
            if polite:
                took = time.perf_counter() - began
                time.sleep(min(took * (1 - _SHARE) / _SHARE, _LONGEST_REST_S))
        start += _SCANNED
        if start >= top:
            return sent


def copy_snapshot(ps: ParameterServer, to: Parcel, wanted: Wanted, *, all_rows: bool, polite: bool = True) -> None:
    """Send what has changed since the last snapshot, or `all_rows`, as of the moment of this call, while training
    goes on; and the dense weights and what was applied, of the same moment."""

    def send(rows: Rows) -> None:
        to.insert(rows)
        send_kept()

    def send_kept() -> None:
        with ps.locked() as store:
            kept = store.kept_rows()
        for rows in kept:
            mine = wanted(rows.keys)
            to.insert(Rows(rows.keys[mine], rows.weights[mine], rows.state[mine]))

    moment = ps.begin_snapshot(all_rows=all_rows)
    try:
        to.put_dense(*moment.dense)
        for parts, samples in moment.applied:
            to.put_applied(parts, samples)
        copy_unread(ps, moment.reader, send, wanted=wanted, still_unread=True, polite=polite)
        send_kept()
    finally:
        with ps.locked() as store:
            store.end_snapshot()


@dataclass
class Moved:
    """What a move took: rows copied in all, rounds, rows of the last round, seconds for which exchanges waited."""

    rows: int = 0
    rounds: int = 0
    last_rows: int = 0
    frozen_s: float = 0.0


class Migration:
    """One server's part in a change of the routing, from `copy` to `finish`."""

    def __init__(self, ps: ParameterServer, server_id: int, target: Routing, peers: Mapping[int, Peer]) -> None:
        """`peers` are the other servers of the target by number."""
        self.moved = Moved()
        self._ps, self._id, self._target, self._peers = ps, server_id, target, peers
        self._stays = server_id in {server.id for server in target.servers}
        self._mine = target.position(server_id) if self._stays else -1

    def copy(self, *, polite: bool = True) -> None:
        """Copy while training goes on, until few rows are left that have changed."""
        with self._ps.locked() as store:
            store.forget_move()
        self._catch_up(_MOST_ROUNDS, polite=polite)

    def finish(self) -> Moved:
        """Stop exchanges, send what is left and the dense weights, and begin the new version."""
        self._catch_up(_MOST_ROUNDS_AT_LAST, polite=False)  # it may have waited for others to come this far
        start = time.perf_counter()
        self._ps.freeze()
        self.moved.last_rows = self._pass(polite=False)
        for server, dense in zip(self._target.servers, self._target.slices(), strict=True):
            begin, weights, state = self._ps.dense.part(dense.start, dense.stop)
            to: Parcel = self._peers[server.id] if server.id != self._id else self._ps.incoming(self._target.version)
            if len(weights):
                to.put_dense(begin, weights, state)
            for parts, samples in self._ps.applied.keep(self._target.parts_of(server.id)).groups():
                to.put_applied(parts, samples)
        for peer in self._peers.values():
            peer.done(self._target.version)
        if self._stays:
            self._ps.arrived(self._target.version, self._id)
        else:
            self._ps.begin(self._target.version)
        self.moved.frozen_s = time.perf_counter() - start
        return self.moved

    def forget_moved(self) -> None:
        """Free the rows that are elsewhere now."""
        start = 0
        while True:
            with self._ps.locked() as store:
                top = store.top
                _, keys = store.slots(start, start + _CHUNK)
                gone = keys[self._leaves(keys)]
                if len(gone):
                    store.remove(gone)
            start += _CHUNK
            if start >= top:
                return
            time.sleep(0.001)

    def _catch_up(self, most_rounds: int, *, polite: bool) -> None:
        """In rounds, until few rows are left or no fewer come to be."""
        before = None
        for _ in range(most_rounds):
            sent = self._pass(polite=polite)
            self.moved.rounds += 1
            if sent <= _FEW or (before is not None and sent > 0.8 * before):
                return
            before = sent

    def _pass(self, *, polite: bool) -> int:
        sent = copy_unread(self._ps, MOVE, self._send, wanted=self._leaves, polite=polite)
        self.moved.rows += sent
        return sent

    def _leaves(self, keys: Keys) -> Mask:
        leaves: Mask = self._owners(keys) != self._mine
        return leaves

    def _send(self, rows: Rows) -> None:
        owners = self._owners(rows.keys)
        for position in np.unique(owners):
            part = np.flatnonzero(owners == position)
            peer = self._peers[self._target.servers[position].id]
            peer.insert(Rows(rows.keys[part], rows.weights[part], rows.state[part]))

    def _owners(self, keys: Keys) -> Owners:
        return self._target.owners[partition_of(keys)]
