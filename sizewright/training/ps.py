"""A parameter server: one partition of the embedding rows and one shard of the dense weights."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import numpy as np

from sizewright.training.embedding import EmbeddingStore
from sizewright.training.hash_index import Slots
from sizewright.training.optimizers import Floats, UpdateRule
from sizewright.training.wire import Reply, Request


@dataclass
class PsCounters:
    """Sums since the server began: exchanges served, seconds busy with them, rows looked up."""

    exchanges: int = 0
    busy_s: float = 0.0
    lookups: int = 0


class ParameterServer:
    """Serves exchanges of any number of workers; `sync_workers` above 0 merges one push of each into one update."""

    def __init__(self, store: EmbeddingStore, dense: Floats, dense_rule: UpdateRule, *, sync_workers: int = 0) -> None:
        self.store = store
        self.counters = PsCounters()
        self._dense = dense.reshape(1, -1).copy()
        self._dense_state = np.zeros((1, dense_rule.state_width(dense.size)), np.float32)
        self._dense_rule = dense_rule
        self._sync_workers = sync_workers
        self._lock = threading.Lock()
        self._round_done = threading.Condition(self._lock)
        self._round = 0
        self._round_pushes: list[tuple[Slots, Floats, Floats]] = []
        self._closed = False

    def exchange(self, request: Request, places: dict[int, Slots]) -> Reply:
        """Apply the gradients of a request, then answer its pull.

        `places` belongs to the worker's connection and remembers the rows of its pulls until their push.
        Raises ConnectionError once closed.
        """
        with self._lock:
            self._refuse_if_closed()
            start = time.perf_counter()
            slots = places.pop(request.push_tag, None)
            if slots is not None and self._sync_workers:
                start += self._join_round(slots, request)
            elif slots is not None:
                self._apply(slots, request.row_grads, request.dense_grads)
            found = self.store.locate(request.keys)
            places[request.pull_tag] = found
            dense = self._dense[0].copy() if request.want_dense else np.empty(0, np.float32)
            reply = Reply(self.store.read(found), dense)
            self.counters.exchanges += 1
            self.counters.lookups += len(found)
            self.counters.busy_s += time.perf_counter() - start
            return reply

    def close(self) -> None:
        """Turn away workers that wait for others, and all later ones; the store is not touched any more."""
        with self._lock:
            self._closed = True
            self._round_done.notify_all()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ConnectionError("the parameter server has closed")

    def _apply(self, slots: Slots, row_grads: Floats, dense_grads: Floats) -> None:
        self.store.update(slots, row_grads)
        if dense_grads.size:
            self._dense_rule.update(self._dense, self._dense_state, dense_grads.reshape(1, -1))

    def _join_round(self, slots: Slots, request: Request) -> float:
        """Add a push to the round; the last of the round applies the mean. Returns the seconds spent waiting."""
        mine = self._round
        self._round_pushes.append((slots, request.row_grads, request.dense_grads))
        if len(self._round_pushes) >= self._sync_workers:
            self._apply(*_mean_push(self._round_pushes, self._sync_workers))
            self._round_pushes = []
            self._round += 1
            self._round_done.notify_all()
            return 0.0
        waiting = time.perf_counter()
        self._round_done.wait_for(lambda: self._round != mine or self._closed)
        self._refuse_if_closed()
        return time.perf_counter() - waiting


def _mean_push(pushes: list[tuple[Slots, Floats, Floats]], workers: int) -> tuple[Slots, Floats, Floats]:
    slots, inverse = np.unique(np.concatenate([push[0] for push in pushes]), return_inverse=True)
    grads: Floats = np.zeros((len(slots), pushes[0][1].shape[1]), np.float32)
    np.add.at(grads, inverse, np.concatenate([push[1] for push in pushes]))
    dense: Floats = np.stack([push[2] for push in pushes]).sum(axis=0)
    grads /= np.float32(workers)
    dense /= np.float32(workers)
    return slots.astype(np.int64), grads, dense
