"""A parameter server, which holds the embedding rows of its partitions and one slice of the dense weights."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.ps.access_counts import AccessCounts
from sizewright.training.ps.applied import AppliedGroup, AppliedSamples
from sizewright.training.ps.dense import DenseSlice
from sizewright.training.ps.embedding import EmbeddingRows, EmbeddingStore, insert_rows
from sizewright.training.ps.hash_index import Keys, Slots
from sizewright.training.ps.optimizers import Floats
from sizewright.training.ps.routing import (
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
from sizewright.training.ps.sync import PendingPush, RowPush, UpdateSync, mean_push
from sizewright.training.transport.exchange import (
    AGAIN,
    DONE,
    LEAVE,
    NO_FLOATS,
    PUSH,
    STALE_REPLY,
    WANT_DENSE,
    ExchangeRequest,
    Reply,
)

MakeSync = Callable[[threading.Condition], UpdateSync]


@dataclass
class PsCounters:
    """Totals since the server began: exchanges served, pushes applied, busy seconds, rows looked up."""

    exchanges: int = 0
    pushes: int = 0
    busy_s: float = 0.0
    lookups: int = 0


@dataclass
class WorkerState:
    """The state of one worker at a server, independent of connections: the rows of its pulls until their push."""

    worker: int
    version: int = 0
    slots_by_tag: dict[int, list[Slots]] = field(default_factory=dict)
    """For each width, in the order of the stores."""


@dataclass
class _NextVersion:
    """The next version of the routing, whose parts are arriving."""

    version: int
    dense: DenseSlice
    parts: Parts
    missing_sources: set[int]
    applied: AppliedSamples = field(default_factory=AppliedSamples)


class SnapshotMoment(NamedTuple):
    """The applied samples and the dense weights when a snapshot began, and the reader of its rows."""

    applied: list[AppliedGroup]
    dense: tuple[int, Floats, Floats]
    reader: int


class ParameterServer:
    """Serves exchanges of any number of workers, split by the routing of its `version`.

    `stores` hold the rows, one store for each width, in the order of `Model.table_groups`.

    A change of the routing has three steps: `expect` announces what will arrive, `freeze` stops exchanges for the end
    of the transfer, and the new version begins once everything has arrived.

    `parts` are the parts held at the beginning, all by default. A new server of a running session begins at version 0
    without parts. `batch_ids` is the number of ids in a batch of one worker.
    """

    def __init__(
        self,
        stores: Sequence[EmbeddingStore],
        dense: DenseSlice,
        sync: MakeSync,
        *,
        version: int = 1,
        parts: Parts | None = None,
        batch_ids: float = 1.0,
    ) -> None:
        self.stores = stores
        self.dense = dense
        self.counters = PsCounters()
        self._access_counts = AccessCounts(batch_ids)  # of this version
        parts = np.arange(PARTS) if parts is None else parts
        self.applied = AppliedSamples([AppliedGroup(parts, SampleRanges())] if version else ())
        self._last_tags: dict[int, int] = {}  # the latest applied push of each worker
        self._worker_states: dict[int, WorkerState] = {}
        self._removed_workers: set[int] = set()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self.sync = sync(self._changed)
        self.version = version
        self._frozen = False
        self._closed = False
        self._next: _NextVersion | None = None
        self._previous: tuple[DenseSlice, AppliedSamples] | None = None

    def exchange(self, state: WorkerState, request: ExchangeRequest) -> Reply:
        """Apply the gradients of a request exactly once, even if it is repeated, then answer its pull.

        A request by an outdated routing is not served: the reply is `STALE_REPLY`. Raise ConnectionError once the
        server is closed, and for a worker that was replaced.
        """
        with self._lock:
            self._await_version(request.version)
            if request.version != self.version:
                return STALE_REPLY
            start, waited = time.perf_counter(), self.sync.waited_s
            if state.version != request.version:
                state.slots_by_tag.clear()
                state.version = request.version
            if not self._admit(state.worker, request):
                return STALE_REPLY
            push_done = not request.flags & PUSH or self._push(state, request)
            self._check_not_removed(state.worker)  # others may have gone on without it while it waited
            if request.flags & LEAVE and push_done:
                self.sync.drop(state.worker)
            if not push_done or self._frozen or request.version != self.version:
                return STALE_REPLY
            reply = self._pull(state, request)
            self.counters.busy_s += time.perf_counter() - start - (self.sync.waited_s - waited)
            return reply

    def worker_state(self, worker: int) -> WorkerState:
        """Return the state of a worker, new at its first call."""
        with self._lock:
            return self._worker_states.setdefault(worker, WorkerState(worker))

    def forget(self, worker: int) -> list[AppliedGroup]:
        """Remove a worker that has left or is replaced: nobody waits for it, and its requests are refused.

        Return the settled samples, which this worker can no longer change.
        """
        with self._lock:
            self._removed_workers.add(worker)
            self._last_tags.pop(worker, None)
            self._worker_states.pop(worker, None)
            self.sync.drop(worker)
            self._changed.notify_all()
            return self.applied.groups()

    def applied_groups(self) -> list[AppliedGroup]:
        """Return the settled samples: applied, or lost and written off."""
        with self._lock:
            return self.applied.groups()

    def write_off(self, samples: SampleRanges) -> None:
        """Record samples as settled that some parts have lost and that are not trained again."""
        with self._lock:
            for parts, applied in self.applied.groups():
                self.applied.put(parts, applied.union(samples))

    def join(self, workers: set[int]) -> None:
        """Make the workers of a running session members."""
        with self._lock:
            for worker in workers - self.sync.members:
                self.sync.join(worker)

    def close(self) -> None:
        """Refuse waiting and later workers; the stores are not touched any more."""
        with self._lock:
            self._closed = True
            self.sync.close()

    @contextmanager
    def locked(self) -> Iterator[Sequence[EmbeddingStore]]:
        """Yield the stores while no exchange is served."""
        with self._lock:
            yield self.stores

    def partition_lookups(self) -> Counts:
        """Return the look-ups of each partition (PARTITIONS,) in a sample of recent pulls of this version."""
        with self._lock:
            return self._access_counts.total()

    def begin_snapshot(self, *, all_rows: bool) -> SnapshotMoment:
        """Begin a snapshot of this moment; its rows are copied while training goes on.

        Raise ConnectionError if this is a new server whose parts have not arrived yet.
        """
        with self._lock:
            if not self.version:
                raise ConnectionError("the server has not begun")
            # All stores take turns alike, so they have the same reader.
            (reader,) = {store.begin_snapshot(all_rows=all_rows) for store in self.stores}
            return SnapshotMoment(self.applied.groups(), self.dense.part(self.dense.start, self.dense.end), reader)

    def incoming(self, version: int) -> Incoming:
        """Return a receiver for the parts of a coming version."""
        return Incoming(self, version)

    def expect(self, version: int, sources: set[int], dense: slice, parts: Parts) -> None:
        """Begin the next version, with these parts and this slice of the dense weights, once all sources are done.

        A source that continues to serve is its own source, too.
        """
        with self._lock:
            self._previous = None
            self._next = _NextVersion(version, self.dense.like(dense.start, dense.stop), parts, set(sources))
            self._begin_if_complete()

    def arrived(self, version: int, source: int) -> None:
        """Record that a source has sent everything."""
        with self._lock:
            if self._next is not None and version == self._next.version:
                self._next.missing_sources.discard(source)
                self._begin_if_complete()

    def freeze(self) -> None:
        """Serve no exchange and apply no push until the next version begins."""
        with self._lock:
            self._frozen = True
            self.sync.break_off()

    def drop_previous(self) -> None:
        """Give up the previous state, because the change has succeeded everywhere."""
        with self._lock:
            self._previous = None

    def roll_back(self, version: int) -> None:
        """Begin `version` with the state before the current change.

        The dense weights, and the rows that were handed over, are as they were when the change began. Updates that were
        applied to them since are lost, and are removed from the applied samples.
        """
        with self._lock:
            if self._previous is not None:
                self.dense, applied = self._previous
                kept_parts = np.intersect1d(applied.parts, self.applied.parts)
                current = self.applied.keep(kept_parts[kept_parts < PARTITIONS])
                current.repeated = self.applied.repeated
                self.applied = applied.updated(current)
            self._previous = self._next = None
            self._start_version(version)

    def start_version(self, version: int) -> None:
        """Begin a version at once with the current dense weights.

        This is for a change that was cancelled, and for a server that leaves: its rows are elsewhere, and all requests
        of earlier versions are refused.
        """
        with self._lock:
            self._next = None
            self._start_version(version)

    @contextmanager
    def _expected(self, version: int) -> Iterator[_NextVersion]:
        with self._lock:
            if self._next is None or self._next.version != version:
                raise ConnectionError("this change of the routing was cancelled")
            yield self._next

    def _begin_if_complete(self) -> None:
        new = self._next
        if new is None or new.missing_sources:
            return
        if self.version:  # a new server has nothing to go back to
            self._previous = self.dense, self.applied
        lost_parts = np.setdiff1d(new.parts, new.applied.parts)
        if len(lost_parts):
            new.applied.put(lost_parts, SampleRanges())
        new.applied.repeated = self.applied.repeated
        self.dense = new.dense
        self.applied = new.applied
        self._next = None
        self._start_version(new.version)

    def _start_version(self, version: int) -> None:
        self.version = version
        self._access_counts.clear()
        self._frozen = False
        self.sync.break_off()
        self._changed.notify_all()

    def _check_not_removed(self, worker: int) -> None:
        if worker in self._removed_workers:
            raise ConnectionError("this worker was removed from the session")

    def _await_version(self, version: int) -> None:
        self._changed.wait_for(lambda: self._closed or (version <= self.version and not self._frozen))
        if self._closed:
            raise ConnectionError("the parameter server has closed")

    def _admit(self, worker: int, request: ExchangeRequest) -> bool:
        """Make a new worker a member; return False if the routing has changed while it waited for a round to end.

        A request that is sent again is not part of a round, so its worker need not be a member. Raise ConnectionError
        if the worker was removed.
        """
        self._check_not_removed(worker)
        if worker in self.sync.members or request.flags & AGAIN:
            return True
        self.sync.join(worker)
        if not request.flags & PUSH:
            return True
        self.sync.await_membership(worker)
        self._check_not_removed(worker)
        self._await_version(request.version)
        return request.version == self.version

    def _push(self, state: WorkerState, request: ExchangeRequest) -> bool:
        """Apply a push; return False if its synchronous round was broken off."""
        if any(map(len, request.push_keys)):
            slots = self._locate(request.push_keys)
        else:
            slots = state.slots_by_tag.pop(request.push_tag, [])
            if sum(map(len, slots)) != sum(map(len, request.row_grads)):  # the worker sends it again with keys
                raise ConnectionError("this server does not know the pull whose rows are pushed")
        tag = request.push_tag
        is_new_step = tag > self._last_tags.get(state.worker, 0)
        # Applied at once, since no round waits for it: a push that is sent again by another routing, one of dense
        # gradients alone, whose tag is 0, and one that was applied already and whose reply was lost.
        outside_round = request.flags & AGAIN or not is_new_step
        push = self._not_yet_applied(slots, request)
        if outside_round:
            self.sync.push_outside_round(push, self._apply)
            applied = True
        else:
            applied = self.sync.push(state.worker, tag, push, self._apply)
        if applied and is_new_step:
            self.counters.pushes += 1
            self._last_tags[state.worker] = tag
        return applied

    def _locate(self, keys: Sequence[Keys]) -> list[Slots]:
        return [store.locate(of_width) for store, of_width in zip(self.stores, keys, strict=True)]

    def _not_yet_applied(self, slots: Sequence[Slots], request: ExchangeRequest) -> PendingPush:
        """Return the share of a push that was not applied yet, and count the samples that will be applied again."""
        samples = [(request.start, request.end)] if request.start < request.end else []
        dense_samples = [(int(a), int(b)) for a, b in request.dense_samples]
        rows = [RowPush(*each) for each in zip(slots, request.row_grads, strict=True)] if slots else []
        dense_grads = request.dense_grads
        runs = None
        self.applied.repeated += self.applied.count_partly_covered(samples, ROW_PARTS)
        self.applied.repeated += self.applied.count_partly_covered(dense_samples, DENSE_PARTS)
        rows_applied = self.applied.covered(samples, ROW_PARTS)
        if rows_applied is True:
            rows = []
        elif rows_applied is not False:
            keys = [store.keys_of(push.slots) for store, push in zip(self.stores, rows, strict=False)]
            missing = [~rows_applied[partition_of(of_width)] for of_width in keys]
            rows = [RowPush(push.slots[lacks], push.grads[lacks]) for push, lacks in zip(rows, missing, strict=True)]
        dense_applied = self.applied.covered(dense_samples, DENSE_PARTS)
        if dense_applied is True:
            dense_grads = NO_FLOATS
        elif dense_applied is not False and dense_grads.size:
            runs = self.dense.inside(dense_runs(~dense_applied[DENSE_PARTS], self.dense.total))
        return PendingPush(rows, dense_grads, samples, dense_samples, runs)

    def _apply(self, pushes: Sequence[PendingPush]) -> None:
        mean = mean_push(pushes)
        for store, rows in zip(self.stores, mean.rows, strict=False):
            if len(rows.slots):
                store.update(rows.slots, rows.grads)
        if mean.dense_grads.size:
            self.dense.update(mean.dense_grads, mean.dense_runs)
        for push in pushes:
            if push.samples == push.dense_samples:
                self.applied.add(push.samples, ALL_PARTS)
            else:
                self.applied.add(push.samples, ROW_PARTS)
                self.applied.add(push.dense_samples, DENSE_PARTS)

    def _pull(self, state: WorkerState, request: ExchangeRequest) -> Reply:
        slots = self._locate(request.keys) if request.keys else []
        state.slots_by_tag[request.pull_tag] = slots
        dense = self.dense.copy() if request.flags & WANT_DENSE else NO_FLOATS
        self.counters.exchanges += 1
        self.counters.lookups += sum(map(len, slots))
        self._access_counts.add(request.keys)
        rows = tuple(store.read(of_width) for store, of_width in zip(self.stores, slots, strict=False))
        return Reply(DONE, rows, dense)


class Incoming:
    """Receives the parts of one coming version of the routing.

    Every method raises ConnectionError if that version is no longer expected: late data, from a server that has died
    or for a cancelled change, must not replace current data.
    """

    def __init__(self, ps: ParameterServer, version: int) -> None:
        self._ps, self._version = ps, version

    def insert(self, rows: EmbeddingRows) -> None:
        """Write rows."""
        with self._ps._expected(self._version):
            insert_rows(self._ps.stores, rows)

    def put_dense(self, start: int, weights: Floats, state: Floats) -> None:
        """Write a part of the coming slice of the dense weights."""
        with self._ps._expected(self._version) as new:
            new.dense.put(start, weights, state)

    def put_applied(self, parts: Parts, samples: SampleRanges) -> None:
        """Set the applied samples of coming parts."""
        with self._ps._expected(self._version) as new:
            new.applied.put(parts, samples)

    def arrived(self, version: int, source: int) -> None:
        """Record that a source has sent everything."""
        self._ps.arrived(version, source)
