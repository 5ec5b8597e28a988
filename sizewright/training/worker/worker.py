"""A worker's loop: take a batch, pull its rows, compute, push gradients; phases timed apart as busy seconds."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.batch import Batch
from sizewright.training.embedding import make_keys
from sizewright.training.leases.batch_source import BatchSource, LeasedBatch
from sizewright.training.optimizers import Floats
from sizewright.training.routing import Lookup
from sizewright.training.transport.exchange import LEAVE, NO_FLOATS, WANT_DENSE
from sizewright.training.worker.ps_client import DensePush, PsClient, Pull, Push

_KEPT_STEPS = 8192


@dataclass
class WorkerCounters:
    """Sums since the worker began; `last_step_at_s` is its own clock at the end of its last step."""

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
        """The sums as plain numbers."""
        return asdict(self)


class Computes(Protocol):
    """Gathers the gradients of the dense weights `weights` (d,), and returns those of the rows of a batch."""

    weights: Floats

    def gradients(self, batch: Batch, inverse: NDArray[np.int64], rows: Floats) -> tuple[Floats, float]:
        """See NetworkStep.gradients."""

    def take_grads(self) -> Floats:
        """The gradients (d,) gathered since the last call, which begin anew."""

    def put_weights(self) -> None:
        """After `weights` has been written."""


class _Step(NamedTuple):
    """A batch on its way: asked for, or computed and to be pushed."""

    tag: int
    version: int
    leased: LeasedBatch
    lookup: Lookup
    row_grads: Floats


class Worker:
    """Trains against parameter servers.

    Asynchronous: rows of the next batch travel while this one computes, so they lack its gradient
    (a staleness of one step of its own). Synchronous: nothing overlaps, and the servers merge the workers' pushes.
    """

    def __init__(
        self,
        computes: Computes,
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
        self._fresh = True  # no dense weights have been pulled yet
        self._ready: tuple[_Step, Floats] | None = None
        self._done: _Step | None = None
        self._sent: _Step | None = None
        self._untold: list[LeasedBatch] = []  # their rows are pushed, and their dense gradients not yet
        self._dense_pushed = False

    def step(self) -> bool:
        """Train one batch; False when there is none at present, and then everything has been pushed.

        Raises ConnectionError when a parameter server has gone and no routing without it came in time.
        """
        if self._ready is None:
            asked = self._ask()
            if asked is None:
                self.leave()
                return False
            self._ready = asked, self._receive(asked)
        step, rows = self._ready
        if self._sync:
            self._done = self._compute(step, rows)
            asked = self._ask()
        else:
            asked = self._ask()
            if asked is None:
                self._flush(WANT_DENSE if self._apart() or self._dense_every == 1 else 0)
            self._done = self._compute(step, rows)
        self._ready = (asked, self._receive(asked)) if asked else None
        self._count(len(step.leased.batch.labels))
        return True

    def leave(self) -> None:
        """Push what is computed, give back what is not, and let nobody wait for this worker."""
        self._ready = None
        self._flush(LEAVE)
        self._source.hand_back()
        self._fresh = True

    def dense_weights(self) -> Floats:
        """A copy of the dense weights (d,)."""
        return self._computes.weights.copy()

    def _count(self, samples: int) -> None:
        counters = self.counters
        counters.steps += 1
        counters.samples += samples
        counters.last_step_at_s = time.perf_counter()
        counters.bytes_sent, counters.bytes_received = self._client.sent_bytes, self._client.received_bytes
        self.step_times.append(time.monotonic())

    def _ask(self) -> _Step | None:
        """Send the last gradients and ask for the rows of the next batch; None, and nothing sent, without a batch."""
        clock = [time.perf_counter()]
        leased = self._source.next()
        clock.append(time.perf_counter())
        self.counters.data_s += clock[1] - clock[0]
        if leased is None:
            return None
        lookup = self._client.routing.lookup(make_keys(leased.batch.ids))
        self._tag += 1
        asked = _Step(self._tag, self._client.routing.version, leased, lookup, NO_FLOATS)
        clock.append(time.perf_counter())
        due = self._fresh or self._tag % self._dense_every == 0 or self._apart(asked)
        self._send(asked, WANT_DENSE if due else 0)
        clock.append(time.perf_counter())
        self.counters.pull_s += clock[2] - clock[1]
        self.counters.push_s += clock[3] - clock[2]
        self.counters.unique_rows += len(lookup.keys)
        return asked

    def _apart(self, asked: _Step | None = None) -> bool:
        """Whether the dense gradients of the batch just computed, or of the one to be computed next, must not be
        summed up with others: some servers have applied it already. The next is the one asked for in rounds, where
        nothing is asked for in advance."""
        following = asked if self._sync else self._ready[0] if self._ready else None
        return any(step is not None and step.leased.again for step in (self._done, following))

    def _send(self, asked: _Step | None, flags: int) -> None:
        self._sent, self._done = self._done, None
        if self._sent is not None:
            self._untold.append(self._sent.leased)
        self._dense_pushed = bool(self._untold) and bool(flags & (WANT_DENSE | LEAVE))
        push, pull, dense = None, Pull(asked.tag, asked.lookup) if asked else None, DensePush()
        if (sent := self._sent) is not None:
            start, end = sent.leased.start, sent.leased.until
            push = Push(sent.tag, sent.version, sent.lookup, sent.row_grads, start, end)
        if self._dense_pushed:
            samples = np.array([(each.start, each.until) for each in self._untold], np.int64).reshape(-1, 2)
            dense = DensePush(self._computes.take_grads(), samples)
        self._client.send(push, pull, dense, flags)
        self._fresh &= asked is None

    def _flush(self, flags: int) -> None:
        """Push without a pull."""
        if self._done is None and not flags:
            return
        self._send(None, flags)
        self._collect(np.empty((0, self._client.width), np.float32))

    def _receive(self, asked: _Step) -> Floats:
        rows = np.empty((len(asked.lookup.keys), self._client.width), np.float32)
        self._collect(rows)
        return rows

    def _collect(self, rows: Floats) -> None:
        waited, read = self._client.receive(rows, self._computes.weights)
        self.counters.wait_s += waited
        self.counters.pull_s += read
        self._computes.put_weights()
        self._sent = None
        if self._dense_pushed:
            for leased in self._untold:
                self._source.trained(leased)
            self._untold.clear()

    def _compute(self, step: _Step, rows: Floats) -> _Step:
        start = time.perf_counter()
        grads, loss = self._computes.gradients(step.leased.batch, step.lookup.inverse, rows)
        self.counters.compute_s += time.perf_counter() - start
        self.counters.loss += loss
        return step._replace(row_grads=grads)
