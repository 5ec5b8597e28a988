"""Live migration of rows: copy everything, then copy in rounds what has changed since.

Only the last round stops exchanges. Snapshots use the same copying and need no last round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from sizewright.training.ps.embedding import MOVE, EmbeddingRows, EmbeddingStore, Mask
from sizewright.training.ps.hash_index import Keys, Slots
from sizewright.training.ps.parameter_server import ParameterServer
from sizewright.training.ps.routing import Owners, Routing, partition_of
from sizewright.training.transport.peers import Peer, WeightsReceiver

_SCAN_ROWS = 1 << 16  # row numbers scanned under one lock
_CHUNK = 4096  # rows copied under one lock: about half a millisecond
_MAX_CHUNKS = 16  # taken at once where the lock is busy
_LAST_ROUND_ROWS = 2 * _CHUNK  # rows that may remain for the last round
_MAX_ROUNDS = 12
_MAX_ROUNDS_BEFORE_FREEZE = 4
# After each piece a copy rests, so that it takes this share of the time and exchanges have the rest; but not for long:
# the longer it takes, the more rows change and are sent again.
_COPY_SHARE = 0.5
_MAX_REST_S = 0.1

Send = Callable[[EmbeddingRows], None]
SelectKeys = Callable[[Keys], Mask]


def copy_unread(
    ps: ParameterServer,
    reader: int,
    send: Send,
    *,
    selects: SelectKeys | None = None,
    still_unread: bool = False,
    throttled: bool = True,
) -> int:
    """Send every row of all stores that `selects` accepts and the reader has not taken; return how many.

    With `still_unread` the others stay unread, because the reader may need them later. With `throttled` the copy is
    throttled in favour of exchanges. It takes more rows at once where it waits for longer than it makes exchanges wait:
    on a server that is held back, every wait is an exchange.
    """
    sent, chunks = 0, 1
    for number, slots in _scan(ps, lambda store, start: store.unread(reader, start, start + _SCAN_ROWS), _SCAN_ROWS):
        start = 0
        while start < len(slots):
            asked = time.perf_counter()
            with ps.locked() as stores:
                began = time.perf_counter()
                some = slots[start : start + chunks * _CHUNK]
                rows = stores[number].take(some, reader, selects, still_unread=still_unread)
                held_s = time.perf_counter() - began
            start += len(some)
            chunks = min(2 * chunks, _MAX_CHUNKS) if began - asked > held_s else max(chunks // 2, 1)
            if not len(rows.keys):
                continue
            send(rows)
            sent += len(rows.keys)
            if throttled:
                copy_s = time.perf_counter() - began
                time.sleep(min(copy_s * (1 - _COPY_SHARE) / _COPY_SHARE, _MAX_REST_S))
    return sent


def _scan(ps: ParameterServer, read: Callable[[EmbeddingStore, int], Slots], step: int) -> Iterator[tuple[int, Slots]]:
    """Yield the number of each store, and what `read` returns of every `step` rows of it, read under the lock."""
    for number in range(len(ps.stores)):
        start = 0
        while True:
            with ps.locked() as stores:
                top = stores[number].top
                slots = read(stores[number], start)
            yield number, slots
            start += step
            if start >= top:
                break


def copy_snapshot(
    ps: ParameterServer, to: WeightsReceiver, selects: SelectKeys, *, all_rows: bool, throttled: bool = True
) -> None:
    """Send a consistent snapshot of this moment while training goes on.

    It has the rows that have changed since the last snapshot, or `all_rows`, with the dense weights and the applied
    samples of the same moment.
    """

    def send(rows: EmbeddingRows) -> None:
        to.insert(rows)
        send_preserved()

    def send_preserved() -> None:
        with ps.locked() as stores:
            preserved = [rows for store in stores for rows in store.take_preserved()]
        for rows in preserved:
            to.insert(rows.select(selects(rows.keys)))

    moment = ps.begin_snapshot(all_rows=all_rows)
    try:
        to.put_dense(*moment.dense)
        for parts, samples in moment.applied:
            to.put_applied(parts, samples)
        copy_unread(ps, moment.reader, send, selects=selects, still_unread=True, throttled=throttled)
        send_preserved()
    finally:
        with ps.locked() as stores:
            for store in stores:
                store.end_snapshot()


@dataclass
class MigrationStats:
    """Rows copied in all, rounds, rows of the last round, and seconds for which exchanges waited."""

    rows: int = 0
    rounds: int = 0
    last_rows: int = 0
    frozen_s: float = 0.0


class Migration:
    """One server's part in a change of the routing, from `copy` to `finish`.

    `peers` are the other servers of the target routing by number.
    """

    def __init__(self, ps: ParameterServer, server_id: int, target: Routing, peers: Mapping[int, Peer]) -> None:
        self.stats = MigrationStats()
        self._ps = ps
        self._id = server_id
        self._target = target
        self._peers = peers
        self._stays = server_id in {server.id for server in target.servers}
        self._position = target.position(server_id) if self._stays else -1

    def copy(self, *, throttled: bool = True) -> None:
        """Copy while training goes on, until few changed rows remain."""
        with self._ps.locked() as stores:
            for store in stores:
                store.mark_all_for_migration()
        self._catch_up(_MAX_ROUNDS, throttled=throttled)

    def finish(self) -> MigrationStats:
        """Stop exchanges, send the remaining rows and the dense weights, and begin the new version."""
        self._catch_up(_MAX_ROUNDS_BEFORE_FREEZE, throttled=False)  # it may have waited for other servers to get here
        start = time.perf_counter()
        self._ps.freeze()
        self.stats.last_rows = self._copy_round(throttled=False)
        for server, dense in zip(self._target.servers, self._target.slices(), strict=True):
            begin, weights, state = self._ps.dense.part(dense.start, dense.stop)
            to: WeightsReceiver = (
                self._peers[server.id] if server.id != self._id else self._ps.incoming(self._target.version)
            )
            if len(weights):
                to.put_dense(begin, weights, state)
            for parts, samples in self._ps.applied.keep(self._target.parts_of(server.id)).groups():
                to.put_applied(parts, samples)
        for peer in self._peers.values():
            peer.done(self._target.version)
        if self._stays:
            self._ps.arrived(self._target.version, self._id)
        else:
            self._ps.start_version(self._target.version)
        self.stats.frozen_s = time.perf_counter() - start
        return self.stats

    def remove_moved_rows(self) -> None:
        """Free the rows that other servers hold now."""

        def remove(store: EmbeddingStore, start: int) -> Slots:
            slots, keys = store.slots(start, start + _CHUNK)
            moved = self._moves_away(keys)
            if moved.any():
                store.remove(keys[moved])
            return slots[moved]

        for _ in _scan(self._ps, remove, _CHUNK):
            time.sleep(0.001)

    def _catch_up(self, max_rounds: int, *, throttled: bool) -> None:
        """Copy in rounds until few rows remain or their number no longer falls."""
        previous = None
        for _ in range(max_rounds):
            sent = self._copy_round(throttled=throttled)
            self.stats.rounds += 1
            if sent <= _LAST_ROUND_ROWS or (previous is not None and sent > 0.8 * previous):
                return
            previous = sent

    def _copy_round(self, *, throttled: bool) -> int:
        sent = copy_unread(self._ps, MOVE, self._send, selects=self._moves_away, throttled=throttled)
        self.stats.rows += sent
        return sent

    def _moves_away(self, keys: Keys) -> Mask:
        moves: Mask = self._owners(keys) != self._position
        return moves

    def _send(self, rows: EmbeddingRows) -> None:
        owners = self._owners(rows.keys)
        for position in np.unique(owners):
            peer = self._peers[self._target.servers[position].id]
            peer.insert(rows.select(np.flatnonzero(owners == position)))

    def _owners(self, keys: Keys) -> Owners:
        return self._target.owners[partition_of(keys)]
