"""A worker's loop: take a batch, pull its rows, compute, push gradients; phases timed apart as busy seconds."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from sizewright.datasets.batch import Batch
from sizewright.training.embedding import make_keys
from sizewright.training.optimizers import Floats
from sizewright.training.partition import Lookup, dense_slices, make_lookup
from sizewright.training.wire import REPLY_HEAD_BYTES, Request, receive_into, receive_reply_head, send_request

_NOTHING = np.empty(0, np.float32)


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
    network_bytes: int = 0
    loss: float = 0.0

    def reading(self) -> dict[str, float]:
        """The sums as plain numbers."""
        return asdict(self)


class _Step(NamedTuple):
    """A batch on its way: pulled, or to be pushed."""

    tag: int
    batch: Batch
    lookup: Lookup
    row_grads: Floats


class FlatWeights:
    """All dense weights of a network in one vector, and their gradients in another."""

    def __init__(self, network: nn.Module) -> None:
        parameters = list(network.parameters())
        size = sum(p.numel() for p in parameters)
        self._weights, self._grads = torch.zeros(size), torch.zeros(size)
        start = 0
        for p in parameters:
            end = start + p.numel()
            self._weights[start:end] = p.data.flatten()
            p.data = self._weights[start:end].view_as(p)
            p.grad = self._grads[start:end].view_as(p)
            start = end
        self.weights: Floats = self._weights.numpy()
        self.grads: Floats = self._grads.numpy()


class Worker:
    """Trains one network against parameter servers.

    Asynchronous: rows of the next batch travel while this one computes, so they lack its gradient
    (a staleness of one step of its own). Synchronous: nothing overlaps, and the PS merge the workers' pushes.
    """

    def __init__(
        self,
        network: nn.Module,
        row_width: int,
        batches: Iterator[Batch],
        links: list[socket.socket],
        *,
        sync: bool = False,
        dense_sync_steps: int = 1,
    ) -> None:
        self.counters = WorkerCounters()
        self._network = network
        self._width = row_width
        self._batches = batches
        self._links = links
        self._sync = sync
        self._dense_every = dense_sync_steps
        self._flat = FlatWeights(network)
        self._slices = dense_slices(self._flat.weights.size, len(links))
        self._loss = nn.BCEWithLogitsLoss()
        self._tag = 0
        self._ready: tuple[_Step, Floats] | None = None
        self._done: _Step | None = None

    def step(self) -> None:
        """Train one batch. Raises ConnectionError when a parameter server has gone."""
        if self._ready is None:
            self._ready = self._receive(self._ask())
        step, rows = self._ready
        if self._sync:
            self._done = self._compute(step, rows)
            self._ready = self._receive(self._ask())
        else:
            asked = self._ask()
            self._done = self._compute(step, rows)
            self._ready = self._receive(asked)
        self._count(len(step.batch.labels))

    def _count(self, samples: int) -> None:
        counters = self.counters
        counters.steps += 1
        counters.samples += samples
        counters.last_step_at_s = time.perf_counter()

    def close(self) -> None:
        """Drop the connections; a step that waits on one ends with ConnectionError."""
        for link in self._links:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()

    def _ask(self) -> _Step:
        """Send the last gradients and ask for the rows of the next batch."""
        clock = [time.perf_counter()]
        batch = next(self._batches)
        clock.append(time.perf_counter())
        lookup = make_lookup(make_keys(batch.ids), len(self._links))
        self._tag += 1
        asked = _Step(self._tag, batch, lookup, _NOTHING)
        clock.append(time.perf_counter())
        self._send(asked)
        clock.append(time.perf_counter())
        counters = self.counters
        counters.data_s += clock[1] - clock[0]
        counters.pull_s += clock[2] - clock[1]
        counters.push_s += clock[3] - clock[2]
        counters.unique_rows += len(lookup.keys)
        return asked

    def _send(self, asked: _Step) -> None:
        done, dense_due = self._done, self._tag % self._dense_every == 0
        grads_at = keys_at = 0
        for i, link in enumerate(self._links):
            rows = done.lookup.counts[i] if done else 0
            grads = done.row_grads[grads_at : grads_at + rows] if done else np.empty((0, self._width), np.float32)
            dense = self._flat.grads[self._slices[i]] if done and dense_due else _NOTHING
            keys = asked.lookup.keys[keys_at : keys_at + asked.lookup.counts[i]]
            request = Request(done.tag if done else 0, grads, dense, asked.tag, keys, dense_due)
            self.counters.network_bytes += send_request(link, request)
            grads_at += rows
            keys_at += len(keys)
        if dense_due:
            self._flat.grads.fill(0)

    def _receive(self, asked: _Step) -> tuple[_Step, Floats]:
        counters = self.counters
        rows = np.empty((len(asked.lookup.keys), self._width), np.float32)
        at = 0
        for link, part in zip(self._links, self._slices, strict=True):
            start = time.perf_counter()
            count, dense_size = receive_reply_head(link)
            arrived = time.perf_counter()
            whole = receive_into(link, rows[at : at + count])
            if dense_size:
                whole &= receive_into(link, self._flat.weights[part])
            if not whole:
                raise ConnectionError("the parameter server closed the connection")
            at += count
            counters.wait_s += arrived - start
            counters.pull_s += time.perf_counter() - arrived
            counters.network_bytes += REPLY_HEAD_BYTES + count * self._width * 4 + dense_size * 4
        return asked, rows

    def _compute(self, step: _Step, rows: Floats) -> _Step:
        start = time.perf_counter()
        pulled = torch.from_numpy(rows).requires_grad_()
        shape = (len(step.batch.labels), step.batch.ids.shape[1], self._width)
        embedded = nn.functional.embedding(torch.from_numpy(step.lookup.inverse), pulled).view(shape)
        logits = self._network(torch.from_numpy(step.batch.dense), embedded)
        loss = self._loss(logits, torch.from_numpy(step.batch.labels))
        loss.backward()
        assert pulled.grad is not None
        self.counters.compute_s += time.perf_counter() - start
        self.counters.loss += float(loss.detach())
        return step._replace(row_grads=pulled.grad.numpy())
