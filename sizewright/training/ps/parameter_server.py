"""A parameter server: the embedding rows of its partitions and one slice of the dense weights."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sizewright.training.dense import DenseSlice
from sizewright.training.embedding import EmbeddingStore, Rows
from sizewright.training.hash_index import Slots
from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.optimizers import Floats
from sizewright.training.ps.applied import AppliedGroup, AppliedSamples
from sizewright.training.ps.sync import Push, UpdateSync, mean_push
from sizewright.training.recent_counts import RecentCounts
from sizewright.training.routing import (
    ALL_PARTS,
    DENSE_PARTS,
    PARTITIONS,
    PARTS,
    ROW_PARTS,
    Counts,
    Parts,
    dense_runs,
    partition_of,
)
from sizewright.training.transport.exchange import (
    AGAIN,
    DONE,
    LEAVE,
    NO_FLOATS,
    PUSH,
    STALE_REPLY,
    WANT_DENSE,
    Reply,
    Request,
)

MakeSync = Callable[[threading.Condition], UpdateSync]
_NO_SLOTS: Slots = np.empty(0, np.int64)


@dataclass
class PsCounters:
    """Sums since the server began: exchanges served, pushes applied, seconds busy with them, rows looked up."""

    exchanges: int = 0
    pushes: int = 0
    busy_s: float = 0.0
    lookups: int = 0


@dataclass
class Client:
    """What a server knows of one worker, whatever connections it uses: the places of its pulls until their push."""

    worker: int
    version: int = 0
    places: dict[int, Slots] = field(default_factory=dict)


@dataclass
class _Coming:
    """The next version, of which parts arrive."""

    version: int
    dense: DenseSlice
    parts: Parts
    missing: set[int]
    applied: AppliedSamples = field(default_factory=AppliedSamples)


class SnapshotMoment(NamedTuple):
    """What a server had applied when a snapshot began, its dense weights then, and the reader of its rows."""

    applied: list[AppliedGroup]
    dense: tuple[int, Floats, Floats]
    reader: int


class ParameterServer:
    """Serves exchanges of any number of workers, split by the routing of its `version`.

    A change of the routing has three parts: `expect` tells what will come, `freeze` stops exchanges for the last
    moment of a transfer, and the new version begins once everything has arrived.
    """

    def __init__(
        self,
        store: EmbeddingStore,
        dense: DenseSlice,
        sync: MakeSync,
        *,
        version: int = 1,
        parts: Parts | None = None,
    ) -> None:
        """`parts` are those that it begins with, all of them by default; a newcomer at version 0 has none."""
        self.store = store
        self.dense = dense
        self.counters = PsCounters()
        self._recent = RecentCounts()  # of this version
        begins = np.arange(PARTS) if parts is None else parts
        self.applied = AppliedSamples([AppliedGroup(begins, SampleRanges())] if version else ())
        self._last_tags: dict[int, int] = {}  # of each worker's pushes that are applied
        self._clients: dict[int, Client] = {}
        self._gone: set[int] = set()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self.sync = sync(self._changed)
        self.version = version
        self._frozen = False
        self._closed = False
        self._coming: _Coming | None = None
        self._former: tuple[DenseSlice, AppliedSamples] | None = None

    def exchange(self, client: Client, request: Request) -> Reply:
        """Apply the gradients of a request, once however often it comes, then answer its pull.

        Nothing is done, and the reply says so, when its routing is of the past. Raises ConnectionError once closed,
        and for a worker that was replaced.
        """
        with self._lock:
            self._await_version(request.version)
            if request.version != self.version:
                return STALE_REPLY
            start, waited = time.perf_counter(), self.sync.waited_s
            if client.version != request.version:
                client.places.clear()
                client.version = request.version
            self._check_belongs(client.worker)
            if client.worker not in self.sync.members and not request.flags & AGAIN:
                self.sync.join(client.worker)
                if request.flags & PUSH:
                    self.sync.await_membership(client.worker)
                    self._check_belongs(client.worker)
                    self._await_version(request.version)
                    if request.version != self.version:  # it changed while the worker waited for a round to end
                        return STALE_REPLY
            pushed = not request.flags & PUSH or self._push(client, request)
            self._check_belongs(client.worker)  # others may have gone on without it while it waited
            if request.flags & LEAVE and pushed:
                self.sync.drop(client.worker)
            if not pushed or self._frozen or request.version != self.version:
                return STALE_REPLY
            reply = self._pull(client, request)
            self.counters.busy_s += time.perf_counter() - start - (self.sync.waited_s - waited)
            return reply

    def client(self, worker: int) -> Client:
        """What is known of a worker."""
        with self._lock:
            return self._clients.setdefault(worker, Client(worker))

    def forget(self, worker: int) -> list[AppliedGroup]:
        """Nobody waits for this worker any more, and nothing is taken from it: it has left, or another takes its place.

        Returns what is applied here, in which nothing of this worker will change.
        """
        with self._lock:
            self._gone.add(worker)
            self._last_tags.pop(worker, None)
            self._clients.pop(worker, None)
            self.sync.drop(worker)
            self._changed.notify_all()
            return self.applied.groups()

    def applied_groups(self) -> list[AppliedGroup]:
        """Return what is applied here."""
        with self._lock:
            return self.applied.groups()

    def write_off(self, samples: SampleRanges) -> None:
        """Take samples as applied that some parts have lost and that are not trained again."""
        with self._lock:
            for parts, known in self.applied.groups():
                self.applied.put(parts, known.union(samples))

    def join(self, workers: set[int]) -> None:
        """Members from the start: those of the servers that it joins."""
        with self._lock:
            for worker in workers - self.sync.members:
                self.sync.join(worker)

    def close(self) -> None:
        """Turn away workers that wait for others, and all later ones; the store is not touched any more."""
        with self._lock:
            self._closed = True
            self.sync.close()

    @contextmanager
    def locked(self) -> Iterator[EmbeddingStore]:
        """The store, while no exchange is served."""
        with self._lock:
            yield self.store

    def partition_lookups(self) -> Counts:
        """Look-ups of each partition (PARTITIONS,) in a sample of the latest pulls of this version of the routing."""
        with self._lock:
            return self._recent.total()

    def begin_snapshot(self, *, all_rows: bool) -> SnapshotMoment:
        """Begin a snapshot of this moment; its rows are copied while training goes on.

        Raises ConnectionError at a newcomer that has not got its part yet, or not all of it.
        """
        with self._lock:
            if not self.version:
                raise ConnectionError("the server has not begun")
            reader = self.store.begin_snapshot(all_rows=all_rows)
            return SnapshotMoment(self.applied.groups(), self.dense.part(self.dense.start, self.dense.end), reader)

    def incoming(self, version: int) -> Incoming:
        """What takes in parts of a coming version."""
        return Incoming(self, version)

    def expect(self, version: int, sources: set[int], dense: slice, parts: Parts) -> None:
        """The next version begins, with this slice of the dense weights and these parts, once all sources have said
        that they are done; a source that goes on serving counts itself."""
        with self._lock:
            self._former = None
            self._coming = _Coming(version, self.dense.like(dense.start, dense.stop), parts, set(sources))
            self._begin_if_complete()

    def arrived(self, version: int, source: int) -> None:
        """A source is done."""
        with self._lock:
            if self._coming is not None and version == self._coming.version:
                self._coming.missing.discard(source)
                self._begin_if_complete()

    def freeze(self) -> None:
        """No exchange is served and no push applied until the next version begins."""
        with self._lock:
            self._frozen = True
            self.sync.break_off()

    def settle(self) -> None:
        """The change has succeeded: nobody goes back."""
        with self._lock:
            self._former = None

    def roll_back(self, version: int) -> None:
        """Begin `version` as before the change under way.

        The dense weights and the rows that were given away are as they were when the change began: what has been
        applied to them since is lost, and the account of what is applied says so.
        """
        with self._lock:
            if self._former is not None:
                self.dense, applied = self._former
                stayed = np.intersect1d(applied.parts, self.applied.parts)
                now = self.applied.keep(stayed[stayed < PARTITIONS])
                now.repeated = self.applied.repeated
                self.applied = applied.updated(now)
            self._former = self._coming = None
            self._begin(version)

    def begin(self, version: int) -> None:
        """Begin a version at once with the dense weights that are here: a change was called off, or, for a server
        that leaves, everything is elsewhere and all requests of the past are refused."""
        with self._lock:
            self._coming = None
            self._begin(version)

    @contextmanager
    def _coming_at(self, version: int) -> Iterator[_Coming]:
        with self._lock:
            if self._coming is None or self._coming.version != version:
                raise ConnectionError("this change of the routing was called off")
            yield self._coming

    def _begin_if_complete(self) -> None:
        coming = self._coming
        if coming is None or coming.missing:
            return
        if self.version:  # a newcomer has nothing to go back to
            self._former = self.dense, self.applied
        unknown = np.setdiff1d(coming.parts, coming.applied.parts)
        if len(unknown):  # nothing is left of them
            coming.applied.put(unknown, SampleRanges())
        coming.applied.repeated = self.applied.repeated
        self.dense, self.applied, self._coming = coming.dense, coming.applied, None
        self._begin(coming.version)

    def _begin(self, version: int) -> None:
        self.version = version
        self._recent.clear()
        self._frozen = False
        self.sync.break_off()
        self._changed.notify_all()

    def _check_belongs(self, worker: int) -> None:
        if worker in self._gone:
            raise ConnectionError("another worker has taken the place of this one")

    def _await_version(self, version: int) -> None:
        self._changed.wait_for(lambda: self._closed or (version <= self.version and not self._frozen))
        if self._closed:
            raise ConnectionError("the parameter server has closed")

    def _push(self, client: Client, request: Request) -> bool:
        """Whether the push is applied now; it is not where a round was broken off."""
        if len(request.push_keys):
            slots = self.store.locate(request.push_keys)
        else:
            slots = client.places.pop(request.push_tag, _NO_SLOTS)
            if len(slots) != len(request.row_grads):
                raise ConnectionError("this server does not know the pull whose rows are pushed")  # they come with keys
        tag, known = request.push_tag, request.push_tag <= self._last_tags.get(client.worker, 0)
        push = self._missing(slots, request)
        if request.flags & AGAIN or known:  # also what is known: its reply was lost on the way, and it lacks nothing
            self.sync.push_again(push, self._apply)
            done = True
        else:
            done = self.sync.push(client.worker, tag, push, self._apply)
        if done and not known:
            self.counters.pushes += 1
            self._last_tags[client.worker] = tag
        return done

    def _missing(self, slots: Slots, request: Request) -> Push:
        """What of a push is not applied yet."""
        samples = [(request.start, request.end)] if request.start < request.end else []
        dense_samples = [(int(a), int(b)) for a, b in request.dense_samples]
        has = self.applied.covered(samples, ROW_PARTS)
        dense_has = self.applied.covered(dense_samples, DENSE_PARTS)
        row_grads, dense, runs = request.row_grads, request.dense_grads, None
        if has is True:
            slots, row_grads = _NO_SLOTS, row_grads[:0]
        elif has is not False and len(slots):
            lacks = ~has[partition_of(self.store.keys_of(slots))]
            slots, row_grads = slots[lacks], row_grads[lacks]
        if dense_has is True:
            dense = NO_FLOATS
        elif dense_has is not False and dense.size:
            runs = self.dense.inside(dense_runs(~dense_has[DENSE_PARTS], self.dense.total))
        return Push(slots, row_grads, dense, samples, dense_samples, runs)

    def _apply(self, pushes: Sequence[Push]) -> None:
        mean = mean_push(pushes)
        if len(mean.slots):
            self.store.update(mean.slots, mean.row_grads)
        if mean.dense_grads.size:
            self.dense.update(mean.dense_grads, mean.dense_runs)
        for push in pushes:
            if push.samples == push.dense_samples:
                self.applied.add(push.samples, ALL_PARTS)
            else:
                self.applied.add(push.samples, ROW_PARTS)
                self.applied.add(push.dense_samples, DENSE_PARTS)

    def _pull(self, client: Client, request: Request) -> Reply:
        found = self.store.locate(request.keys)
        client.places[request.pull_tag] = found
        dense = self.dense.copy() if request.flags & WANT_DENSE else NO_FLOATS
        self.counters.exchanges += 1
        self.counters.lookups += len(found)
        self._recent.add(request.keys)
        return Reply(DONE, self.store.read(found), dense)


class Incoming:
    """Takes in parts of one coming version. Every method raises ConnectionError when that is not expected any more:
    what comes late, from a server that has died or for a change that was called off, must not replace what is there.
    """

    def __init__(self, ps: ParameterServer, version: int) -> None:
        self._ps, self._version = ps, version

    def insert(self, rows: Rows) -> None:
        """Rows that come from elsewhere."""
        with self._ps._coming_at(self._version):
            self._ps.store.insert(rows)

    def put_dense(self, start: int, weights: Floats, state: Floats) -> None:
        """A part of the coming slice of the dense weights."""
        with self._ps._coming_at(self._version) as coming:
            coming.dense.put(start, weights, state)

    def put_applied(self, parts: Parts, samples: SampleRanges) -> None:
        """Which samples are applied to coming parts."""
        with self._ps._coming_at(self._version) as coming:
            coming.applied.put(parts, samples)

    def arrived(self, version: int, source: int) -> None:
        """A source is done."""
        self._ps.arrived(version, source)
