"""A parameter server: the embedding rows of its partitions and one slice of the dense weights."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from sizewright.training.dense import DenseSlice
from sizewright.training.embedding import EmbeddingStore, Rows
from sizewright.training.exchange import (
    AGAIN,
    DONE,
    LEAVE,
    NO_FLOATS,
    PUSH,
    PUSHED_REPLY,
    STALE_REPLY,
    WANT_DENSE,
    Reply,
    Request,
)
from sizewright.training.hash_index import Slots
from sizewright.training.optimizers import Floats
from sizewright.training.pacing import Pacing, Push
from sizewright.training.recent_counts import RecentCounts
from sizewright.training.routing import Counts

MakePacing = Callable[[threading.Condition], Pacing]
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
    """What a server knows of one worker's connection: the places of its pulls until their push."""

    worker: int
    version: int = 0
    places: dict[int, Slots] = field(default_factory=dict)


class ParameterServer:
    """Serves exchanges of any number of workers, split by the routing of its `version`.

    A change of the routing has three parts: `expect` tells what will come, `freeze` stops exchanges for the last
    moment of a transfer, and the new version begins once everything has arrived.
    """

    def __init__(self, store: EmbeddingStore, dense: DenseSlice, pacing: MakePacing, *, version: int = 1) -> None:
        self.store = store
        self.dense = dense
        self.counters = PsCounters()
        self._recent = RecentCounts()  # of this version
        self.applied: dict[int, int] = {}  # the last push of each worker, by its tag
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self.pacing = pacing(self._changed)
        self.version = version
        self._frozen = False
        self._closed = False
        self._coming: DenseSlice | None = None
        self._coming_version = version
        self._missing: set[int] = set()
        self._former: tuple[DenseSlice, int] | None = None

    def exchange(self, client: Client, request: Request) -> Reply:
        """Apply the gradients of a request, then answer its pull; or do nothing when its routing is of the past.

        Raises ConnectionError once closed.
        """
        with self._lock:
            self._await_version(request.version)
            if request.version != self.version:
                return STALE_REPLY
            start, waited = time.perf_counter(), self.pacing.waited_s
            if client.version != request.version:
                client.places.clear()
                client.version = request.version
            if client.worker not in self.pacing.members and not request.flags & AGAIN:
                self.pacing.join(client.worker)
                self._await_version(request.version)
                if request.version != self.version:  # it changed while the worker waited for a round to end
                    return STALE_REPLY
            if request.flags & PUSH and not self._push(client, request):
                return STALE_REPLY
            if request.flags & LEAVE:
                self.pacing.drop(client.worker)
            if self._frozen or request.version != self.version:  # it changed while the worker waited for others
                return PUSHED_REPLY if request.flags & PUSH else STALE_REPLY
            reply = self._pull(client, request)
            self.counters.busy_s += time.perf_counter() - start - (self.pacing.waited_s - waited)
            return reply

    def leave(self, worker: int) -> None:
        """Nobody waits for this worker any more."""
        with self._lock:
            self.pacing.drop(worker)

    def forget(self, worker: int) -> int:
        """A worker that has died leaves; returns the tag of its last push that was applied."""
        with self._lock:
            self.pacing.drop(worker)
            return self.applied.pop(worker, 0)

    def join(self, workers: set[int]) -> None:
        """Members from the start: those of the servers that it joins."""
        with self._lock:
            for worker in workers - self.pacing.members:
                self.pacing.join(worker)

    def close(self) -> None:
        """Turn away workers that wait for others, and all later ones; the store is not touched any more."""
        with self._lock:
            self._closed = True
            self.pacing.close()

    @contextmanager
    def locked(self) -> Iterator[EmbeddingStore]:
        """The store, while no exchange is served."""
        with self._lock:
            yield self.store

    def partition_lookups(self) -> Counts:
        """Look-ups of each partition (PARTITIONS,) in a sample of the latest pulls of this version of the routing."""
        with self._lock:
            return self._recent.total()

    def insert(self, rows: Rows) -> None:
        """Rows that come from elsewhere."""
        with self._lock:
            self.store.insert(rows)

    def expect(self, version: int, sources: set[int], dense: slice) -> None:
        """The next version begins, with this slice of the dense weights, once all sources have said that they are
        done; a source that goes on serving counts itself."""
        with self._lock:
            self._former = None
            self._coming = self.dense.like(dense.start, dense.stop)
            self._coming_version = version
            self._missing = set(sources)
            self._begin_if_complete()

    def put_dense(self, start: int, weights: Floats, state: Floats) -> None:
        """A part of the coming slice of the dense weights. Raises ConnectionError when none is expected any more."""
        with self._lock:
            if self._coming is None:
                raise ConnectionError("this change of the routing was called off")
            self._coming.put(start, weights, state)

    def arrived(self, version: int, source: int) -> None:
        """A source is done."""
        with self._lock:
            if version == self._coming_version:
                self._missing.discard(source)
                self._begin_if_complete()

    def freeze(self) -> None:
        """No exchange is served and no push applied until the next version begins."""
        with self._lock:
            self._frozen = True
            self.pacing.break_off()

    def settle(self) -> None:
        """The change has succeeded: nobody goes back."""
        with self._lock:
            self._former = None

    def roll_back(self, version: int) -> int:
        """Begin `version` as before the change under way; returns the pushes that are lost by that."""
        with self._lock:
            lost = 0
            if self._former is not None:
                self.dense, pushes = self._former
                lost = self.counters.pushes - pushes
            self._former = self._coming = None
            self._missing = set()
            self._begin(version)
            return lost

    def begin(self, version: int) -> None:
        """Begin a version at once with the dense weights that are here: a change was called off, or, for a server
        that leaves, everything is elsewhere and all requests of the past are refused."""
        with self._lock:
            self._coming, self._missing = None, set()
            self._begin(version)

    def _begin_if_complete(self) -> None:
        if self._coming is not None and not self._missing:
            if self.version:  # a newcomer has nothing to go back to
                self._former = self.dense, self.counters.pushes
            self.dense, self._coming = self._coming, None
            self._begin(self._coming_version)

    def _begin(self, version: int) -> None:
        self.version = version
        self._recent.clear()
        self._frozen = False
        self.pacing.break_off()
        self._changed.notify_all()

    def _await_version(self, version: int) -> None:
        self._changed.wait_for(lambda: self._closed or (version <= self.version and not self._frozen))
        if self._closed:
            raise ConnectionError("the parameter server has closed")

    def _push(self, client: Client, request: Request) -> bool:
        if len(request.push_keys):
            slots = self.store.locate(request.push_keys)
        else:
            slots = client.places.pop(request.push_tag, _NO_SLOTS)
        push = Push(slots, request.row_grads, request.dense_grads)
        if request.flags & AGAIN:
            self.pacing.push_again(push, lambda part: self._apply(part, request.dense_start))
            done = True
        else:
            done = self.pacing.push(client.worker, request.push_tag, push, self._apply)
        if done:
            self.counters.pushes += 1
            if request.push_tag:  # else a leaver's gathered dense gradients alone
                self.applied[client.worker] = request.push_tag
        return done

    def _apply(self, push: Push, dense_start: int | None = None) -> None:
        if len(push.slots):
            self.store.update(push.slots, push.row_grads)
        if push.dense_grads.size:
            self.dense.update(push.dense_grads, dense_start)

    def _pull(self, client: Client, request: Request) -> Reply:
        found = self.store.locate(request.keys)
        if not request.flags & AGAIN:  # what was asked again is pushed with its keys
            client.places[request.pull_tag] = found
        dense = self.dense.copy() if request.flags & WANT_DENSE else NO_FLOATS
        self.counters.exchanges += 1
        self.counters.lookups += len(found)
        self._recent.add(request.keys)
        return Reply(DONE, self.store.read(found), dense)
