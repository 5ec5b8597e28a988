"""The training loop of a worker: take a batch, pull its rows, compute, and push gradients, with timed phases."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.clicks.batch import Batch
from sizewright.training.leases.batch_source import BatchSource, LeasedBatch
from sizewright.training.ps.hash_index import Keys
from sizewright.training.ps.optimizers import Floats
from sizewright.training.ps.routing import Lookup
from sizewright.training.transport.exchange import LEAVE, WANT_DENSE
from sizewright.training.worker.ps_client import DensePush, OutgoingPush, PsClient, Pull

_KEPT_STEPS = 8192


@dataclass
class WorkerCounters:
    """Totals since the worker began; `last_step_at_s` is the time of its own clock at the end of its last step."""

    steps: int = 0
    samples: int = 0
    last_step_at_s: float = 0.0
    data_s: float = 0.0
    pull_s: float = 0.0
    compute_s: float = 0.0
    push_s: float = 0.0
    wait_s: float = 0.0
    unique_rows: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    loss: float = 0.0

    def reading(self) -> dict[str, float]:
        """Return the totals as plain numbers."""
        return asdict(self)


class GradientComputer(Protocol):
    """Computes the gradients of a batch, and accumulates those of the dense weights `weights` (d,)."""

    weights: Floats

    def keys(self, batch: Batch) -> list[Keys]:
        """See `NetworkStep.keys`."""

    def gradients(
        self, batch: Batch, inverses: Sequence[NDArray[np.int64]], rows: Sequence[Floats]
    ) -> tuple[list[Floats], float]:
        """See `NetworkStep.gradients`."""

    def take_grads(self) -> Floats:
        """Return the dense gradients (d,) accumulated since the last call, and reset them."""

    def put_weights(self) -> None:
        """Take over `weights` after they have been written."""


class _Step(NamedTuple):
    """One training step: its rows are requested, or its gradients are computed and not pushed yet."""

    tag: int
    version: int
    leased: LeasedBatch
    lookups: list[Lookup]
    row_grads: Sequence[Floats]


class Worker:
    """Trains against parameter servers.

    Row gradients go out every step; dense gradients are summed over `dense_sync_steps` steps. A batch is trained only
    once both have arrived at the servers.

    Asynchronous: the rows of the next batch are pulled while this one computes, so they lack its gradient (a staleness
    of one step). Synchronous: nothing overlaps, and the servers merge the workers' pushes.
    """

    def __init__(
        self,
        computes: GradientComputer,
        source: BatchSource,
        client: PsClient,
        *,
        sync: bool = False,
        dense_sync_steps: int = 1,
    ) -> None:
        self.counters = WorkerCounters()
        self.step_times: deque[float] = deque(maxlen=_KEPT_STEPS)
        self._source = source
        self._client = client
        self._sync = sync
        self._dense_every = dense_sync_steps
        self._computes = computes
        self._tag = 0
        self._needs_dense = True  # no dense weights have been pulled yet
        self._pulled: tuple[_Step, list[Floats]] | None = None  # the next step and its rows
        self._computed: _Step | None = None  # the last step, whose gradients are not pushed yet
        self._without_dense: list[LeasedBatch] = []  # batches whose rows are pushed and whose dense gradients are not
        self._dense_pushed = False

    def step(self) -> bool:
        """Compute the gradients of one batch; they are pushed together with the next request for rows.

        Return False if there is no batch now; by then everything has been pushed. Raise ConnectionError if a parameter
        server has died and no routing without it came in time.
        """
        if self._pulled is None:
            following = self._request_next()
            if following is None:
                self.leave()
                return False
            self._pulled = following, self._receive(following)
        step, rows = self._pulled
        if self._sync:
            self._computed = self._compute(step, rows)
            following = self._request_next()
        else:
            following = self._request_next()
            if following is None:
                push_dense = self._must_push_dense() or self._dense_every == 1
                self._flush(WANT_DENSE if push_dense else 0, push_dense=push_dense)
            self._computed = self._compute(step, rows)
        self._pulled = (following, self._receive(following)) if following else None
        self._count(len(step.leased.batch.labels))
        return True

    def leave(self) -> None:
        """Push computed gradients, hand back untrained samples, and leave, so that nobody waits for this worker."""
        self._pulled = None
        self._flush(LEAVE, push_dense=True)
        self._source.hand_back()
        self._needs_dense = True

    def dense_weights(self) -> Floats:
        """Return a copy of the dense weights (d,)."""
        return self._computes.weights.copy()

    def _count(self, samples: int) -> None:
        counters = self.counters
        counters.steps += 1
        counters.samples += samples
        counters.last_step_at_s = time.perf_counter()
        counters.bytes_sent = self._client.sent_bytes
        counters.bytes_received = self._client.received_bytes
        self.step_times.append(time.monotonic())

    def _request_next(self) -> _Step | None:
        """Push the last gradients and request the rows of the next batch; without one, send nothing and return None."""
        started = time.perf_counter()
        leased = self._source.next()
        read = time.perf_counter()
        self.counters.data_s += read - started
        if leased is None:
            return None
        lookups = [self._client.routing.lookup(keys) for keys in self._computes.keys(leased.batch)]
        self._tag += 1
        step = _Step(self._tag, self._client.routing.version, leased, lookups, ())
        split = time.perf_counter()
        push_dense = self._needs_dense or self._tag % self._dense_every == 0 or self._must_push_dense(step)
        want_dense = push_dense  # the dense weights are pulled as often as their gradients are pushed
        self._send(step, WANT_DENSE if want_dense else 0, push_dense=push_dense)
        sent = time.perf_counter()
        self.counters.pull_s += split - read
        self.counters.push_s += sent - split
        self.counters.unique_rows += sum(len(lookup.keys) for lookup in lookups)
        return step

    def _must_push_dense(self, requested: _Step | None = None) -> bool:
        """Return whether dense gradients must be pushed now, before or after a batch that was partly applied.

        Some parts of the dense weights have applied such a batch already, and skip it. A sum with other batches cannot
        be divided: it would be applied there twice, or the others would be lost. So the batch is pushed by itself. This
        concerns the batch just computed and the one computed next, which in synchronous rounds is the requested one.
        """
        following = requested if self._sync else self._pulled[0] if self._pulled else None
        return any(step is not None and step.leased.partly_applied for step in (self._computed, following))

    def _send(self, requested: _Step | None, flags: int, *, push_dense: bool) -> None:
        """Push the gradients of the computed step, with `push_dense` also the dense ones, and request rows."""
        computed, self._computed = self._computed, None
        push = None
        if computed is not None:
            self._without_dense.append(computed.leased)
            start, end = computed.leased.start, computed.leased.until
            push = OutgoingPush(computed.tag, computed.version, computed.lookups, computed.row_grads, start, end)
        pull = Pull(requested.tag, requested.lookups) if requested else None
        dense = DensePush()
        self._dense_pushed = push_dense and bool(self._without_dense)
        if self._dense_pushed:
            samples = np.array([(each.start, each.until) for each in self._without_dense], np.int64).reshape(-1, 2)
            dense = DensePush(self._computes.take_grads(), samples)
        self._client.send(push, pull, dense, flags)
        if requested is not None:
            self._needs_dense = False

    def _flush(self, flags: int, *, push_dense: bool) -> None:
        """Push without a pull."""
        if self._computed is None and not flags:
            return
        self._send(None, flags, push_dense=push_dense)
        self._receive_into(self._client.empty_rows())

    def _receive(self, requested: _Step) -> list[Floats]:
        rows = self._client.empty_rows(requested.lookups)
        self._receive_into(rows)
        return rows

    def _receive_into(self, rows: Sequence[Floats]) -> None:
        waited, read = self._client.receive(rows, self._computes.weights)
        self.counters.wait_s += waited
        self.counters.pull_s += read
        self._computes.put_weights()
        if self._dense_pushed:
            for leased in self._without_dense:
                self._source.trained(leased)
            self._without_dense.clear()

    def _compute(self, step: _Step, rows: Sequence[Floats]) -> _Step:
        start = time.perf_counter()
        inverses = [lookup.inverse for lookup in step.lookups]
        grads, loss = self._computes.gradients(step.leased.batch, inverses, rows)
        self.counters.compute_s += time.perf_counter() - start
        self.counters.loss += loss
        return step._replace(row_grads=grads)
