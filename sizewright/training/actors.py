"""Ray actors: one parameter server or one worker each, held to its cores and memory."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from typing import Any

import numpy as np

from sizewright.datasets.allocator import keep_freed_memory
from sizewright.errors import TrialTimeoutError
from sizewright.spec import Job, ReplicaMetrics, Role
from sizewright.training.cgroups import CgroupTree
from sizewright.training.embedding import TABLE_SHIFT, EmbeddingStore
from sizewright.training.limits import ReplicaLimits
from sizewright.training.optimizers import Floats, make_rule
from sizewright.training.partition import dense_slices, owner_of
from sizewright.training.ps import ParameterServer
from sizewright.training.ps_server import PsServer

_HALT_TIMEOUT_S = 30.0


class Replica:
    """What both roles share: limits and the metrics that come from outside the training."""

    role: Role

    def __init__(self, tree: CgroupTree | None, index: int) -> None:
        self.limits = ReplicaLimits(tree, f"{self.role}-{index}")
        self.index = index
        keep_freed_memory()

    def pid(self) -> int:
        """Its process."""
        return os.getpid()

    def set_cpu(self, cores: float | None, first_core: int = 0) -> None:
        """Hold to `cores`, or let go."""
        self.limits.set_cpu(cores, first_core)

    def fault(self) -> str | None:
        """Why it stopped doing its part, if it did by itself."""
        raise NotImplementedError

    def observe(self) -> ReplicaMetrics:
        """Its sums so far."""
        usage = self.limits.usage()
        return ReplicaMetrics(
            role=self.role,
            index=self.index,
            **asdict(usage),
            limited_by=self.limits.limited_by,
            cfs_period_ms=self.limits.period_ms,
            **self._counters(),
        )

    def _counters(self) -> dict[str, Any]:
        raise NotImplementedError


class PsActor(Replica):
    """One parameter server."""

    role: Role = "ps"

    def __init__(self, tree: CgroupTree | None, index: int) -> None:
        super().__init__(tree, index)
        self._ps: ParameterServer | None = None
        self._server: PsServer | None = None
        self._store: EmbeddingStore | None = None
        self._filled: object = None

    def prepare(
        self, job: Job, scale: float, servers: int, workers: int, dense: Floats, token: bytes, memory_bytes: int
    ) -> tuple[str, int]:
        """Fill the partition to its occupancy at `scale` and listen; returns the address."""
        self.close()
        partition = (job.model.tables, job.model.row_width, job.model.optimizer, scale, servers)
        if self._filled != partition:
            self._store = self._filled = None
        self.limits.set_memory(memory_bytes)
        self.limits.reset_peaks()
        if self._store is None:
            self._store = self._fill(job, scale, servers)
            self._filled = partition
        shard = dense[dense_slices(dense.size, servers)[self.index]]
        sync_workers = workers if job.training.sync == "sync" else 0
        self._ps = ParameterServer(self._store, shard, make_rule(job.model.optimizer), sync_workers=sync_workers)
        self._server = PsServer(self._ps, token)
        return self._server.address

    def _fill(self, job: Job, scale: float, servers: int) -> EmbeddingStore:
        sizes = job.model.tables.sizes(scale)
        rule, expected = make_rule(job.model.optimizer), sum(sizes) // servers
        store = EmbeddingStore(job.model.row_width, rule, expected_rows=expected, seed=self.index)
        for table, rows in enumerate(sizes):
            keys = np.arange(rows, dtype=np.int64) + (table << TABLE_SHIFT)
            store.fill(keys[owner_of(keys, servers) == self.index])
        return store

    def close(self) -> None:
        """Stop serving; the rows stay, in case the next trial needs the same partition."""
        if self._server:
            self._server.close()
        self._server = self._ps = None

    def fault(self) -> str | None:
        """What broke an exchange."""
        return self._server.fault if self._server else None

    def _counters(self) -> dict[str, Any]:
        if self._ps is None:
            return {}
        store = self._ps.store
        sizes = {"rows": store.rows, "embedding_bytes": store.embedding_bytes, "index_bytes": store.index_bytes}
        return asdict(self._ps.counters) | sizes


class WorkerActor(Replica):
    """One worker, its loop in a thread of its own."""

    role: Role = "worker"

    def __init__(self, tree: CgroupTree | None, index: int) -> None:
        super().__init__(tree, index)
        # One thread for all trials: a new one each would leave its malloc arena, full of freed batches, behind.
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._training: Future[None] | None = None
        self._stop = threading.Event()
        self._fault: str | None = None
        self._worker: Any = None
        self._sync = False

    def load(self, job: Job, memory_bytes: int) -> Floats:
        """Load libraries and build the network; returns its dense weights, the same in every worker."""
        self.limits.set_memory(memory_bytes)
        from sizewright.training.networks import make_network
        from sizewright.training.worker import FlatWeights

        self.limits.reset_peaks()
        return FlatWeights(make_network(job.model)).weights

    def start(
        self, job: Job, scale: float, workers: int, addresses: list[tuple[str, int]], token: bytes, cpu: float
    ) -> None:
        """Connect and train until halted."""
        import torch

        from sizewright.datasets.source import open_source
        from sizewright.training.networks import make_network
        from sizewright.training.wire import connect
        from sizewright.training.worker import Worker

        self._sync = job.training.sync == "sync"
        torch.set_num_threads(max(1, int(np.ceil(cpu))))
        self._worker = Worker(
            make_network(job.model),
            job.model.row_width,
            open_source(job, scale=scale, shard=(self.index, workers)),
            [connect(address, token) for address in addresses],
            sync=self._sync,
            dense_sync_steps=job.training.dense_sync_steps,
        )
        self._stop = threading.Event()
        self._fault = None
        self._training = self._pool.submit(self._train, self._stop)

    def halt(self) -> None:
        """Stop after the step at hand; in synchronous training amid it, since others may never join its round.

        Raises TrialTimeoutError when it does not end.
        """
        self._stop.set()
        if self._training and not self._sync:
            wait([self._training], timeout=_HALT_TIMEOUT_S)
        if self._worker:
            self._worker.close()
        if self._training and wait([self._training], timeout=_HALT_TIMEOUT_S).not_done:
            raise TrialTimeoutError(f"Worker {self.index} did not end its step.", "Give it more cores.")
        self._training = self._worker = None

    def fault(self) -> str | None:
        """Why the loop ended, if it ended by itself."""
        return self._fault

    def _train(self, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                self._worker.step()
        except Exception as error:
            if not stop.is_set():
                self._fault = f"{type(error).__name__}: {error}"

    def _counters(self) -> dict[str, Any]:
        return self._worker.counters.reading() if self._worker else {}
