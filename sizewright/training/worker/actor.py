"""The process of one worker in a session; the training loop runs in a thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sizewright.errors import TrialTimeoutError
from sizewright.spec import Job, Role
from sizewright.training.host.device import check_device
from sizewright.training.program import Program
from sizewright.training.ps.optimizers import Floats
from sizewright.training.ps.routing import Address, Routing
from sizewright.training.replicas.replica import Health, Replica, Trees
from sizewright.training.transport.links import Transport

if TYPE_CHECKING:
    from sizewright.training.leases.batch_source import LeasedBatches
    from sizewright.training.worker.ps_client import PsClient
    from sizewright.training.worker.worker import Worker

_LEAVE_TIMEOUT_S, _ANSWER_S = 60.0, 5.0
_WARM_UP_STEPS = 2
_NO_DATA_REST_S = 0.02


class WorkerSetup(NamedTuple):
    """The configuration with which a worker joins; `number` is new each time that it joins."""

    job: Job
    program: Program
    scale: float
    number: int
    routing: Routing
    transport: Transport
    leases: Address
    token: bytes
    cpu: float
    first_core: int


class WorkerActor(Replica):
    """Runs one worker, which is loaded once and may join and leave any number of times."""

    role: Role = "worker"

    def __init__(self, trees: Trees, index: int) -> None:
        super().__init__(trees, index)
        # One thread serves all trials: each new thread would leave a malloc arena full of freed batches behind.
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._training: Future[None] | None = None
        self._stop = threading.Event()
        self._halted = False
        self._fault: str | None = None
        self._loaded_for: object = None
        self._dense: Floats = np.empty(0, np.float32)
        self._worker: Worker | None = None
        self._client: PsClient | None = None
        self._source: LeasedBatches | None = None

    def load(self, job: Job, program: Program) -> Floats:
        """Load libraries, warm up the network on zeros, and return its first dense weights."""
        if self._loaded_for != (job.model, job.training.batch_size):
            self._dense = self._pool.submit(_warm_up, job, program).result()
            self._loaded_for = (job.model, job.training.batch_size)
        return self._dense

    def start(self, setup: WorkerSetup) -> None:
        """Connect, limit the CPU to the setup's cores, and train until `leave` is called."""
        import torch

        from sizewright.training.leases.batch_source import LeasedBatches
        from sizewright.training.transport.wire import Caller, Hello, connect
        from sizewright.training.worker.network_step import NetworkStep
        from sizewright.training.worker.ps_client import PsClient
        from sizewright.training.worker.worker import Worker

        job = setup.job
        self.limits.reset_peaks()
        torch.set_num_threads(max(1, int(np.ceil(setup.cpu))))
        samples = setup.program.samples(job, setup.scale)

        def open_leases() -> socket.socket:
            return connect(setup.leases, setup.token, Hello(Caller.worker, setup.number), _ANSWER_S)

        widths = [group.width for group in job.model.table_groups]
        self._source = LeasedBatches(open_leases, samples, job.training.batch_size)
        self._client = PsClient(setup.transport, setup.number, setup.routing, widths)
        self._worker = Worker(
            NetworkStep(job.model, setup.program.network(job), setup.program.loss, job.training.device),
            self._source,
            self._client,
            sync=job.training.sync == "sync",
            dense_sync_steps=job.training.dense_sync_steps,
        )
        self._stop = threading.Event()
        self._fault = None
        self._halted = False
        self.limits.set_cpu(setup.cpu, setup.first_core)
        self._training = self._pool.submit(self._train, self._worker, self._source, self._stop)

    def leave(self) -> None:
        """Finish the current batch, push it, and hand back other samples; `training` is False once that is done."""
        self._stop.set()

    def end(self) -> None:
        """Become idle after `leave`."""
        if self._training and wait([self._training], timeout=_LEAVE_TIMEOUT_S).not_done:
            raise TrialTimeoutError(
                f"Worker {self.index} did not finish its step within {_LEAVE_TIMEOUT_S:g} s.", "Give it more cores."
            )
        self._end()

    def halt(self) -> None:
        """Stop in the middle of a step, for a session that ends."""
        self._halted = True
        self._stop.set()
        if self._client:
            self._client.close()
        if self._training:
            wait([self._training], timeout=_LEAVE_TIMEOUT_S)
        self._end()

    def announce(self, routing: Routing, gone: Collection[int] = ()) -> None:
        """Call `PsClient.announce`."""
        if self._client:
            self._client.announce(routing, gone)

    def set_batch_size(self, batch_size: int) -> None:
        """Set the batch size from the next batch on."""
        if self._source:
            self._source.batch_size = batch_size

    def dense_weights(self) -> Floats | None:
        """Return this worker's copy of the dense weights, or None if it does not train."""
        return self._worker.dense_weights() if self._worker else None

    def step_times(self) -> list[float]:
        """Return the times at which the last steps ended, on this host's monotonic clock."""
        return list(self._worker.step_times) if self._worker else []

    def training(self) -> bool:
        """Return whether the training loop runs."""
        return self._training is not None and not self._training.done()

    def is_idle(self) -> bool:
        """Return whether the training loop has ended, and not by an error."""
        return not self.training() and self._fault is None

    def fault(self) -> str | None:
        """Return the error that ended the training loop, if any."""
        return self._fault

    def health(self) -> Health:  # noqa: D102
        connections = [each for each in (self._client, self._source) if each is not None]
        cuts = sum(connection.cuts for connection in connections)
        return Health(self._fault, cuts, sum(connection.cut_s for connection in connections))

    def _end(self) -> None:
        if self._client:
            self._client.close()
        if self._source:
            self._source.close()
        self._training = self._worker = self._client = self._source = None
        self.limits.set_cpu(None)

    def _train(self, worker: Worker, source: LeasedBatches, stop: threading.Event) -> None:
        try:
            while not stop.is_set() and not source.finished:
                if not worker.step() and not source.finished:
                    stop.wait(_NO_DATA_REST_S)
            worker.leave()
        except Exception as error:
            if not self._halted:
                self._fault = f"{type(error).__name__}: {error}"

    def _counters(self) -> dict[str, Any]:
        if self._worker is None:
            return {}
        return self._worker.counters.reading() | {"device_memory_bytes": _device_peak()}


def _warm_up(job: Job, program: Program) -> Floats:
    """Train two steps on zeros and return the first dense weights.

    The first steps of a process take several times as long as later ones, so they are taken before it joins.
    """
    import torch

    from sizewright.datasets.clicks.batch import Batch
    from sizewright.training.worker.network_step import NetworkStep
    from sizewright.training.worker.weights import FlatWeights

    check_device(job)
    torch.set_num_threads(1)
    network = program.network(job).to(job.training.device)
    first = FlatWeights(network).weights.copy()
    step = NetworkStep(job.model, network, program.loss, job.training.device)
    samples, columns = job.training.batch_size, job.model.tables.id_columns
    batch = Batch(
        np.zeros(samples, np.float32),
        np.zeros((samples, job.model.dense_features), np.float32),
        np.zeros((samples, len(columns)), np.int64),
    )
    looked_up = [np.unique(keys, return_inverse=True) for keys in step.keys(batch)]
    rows = [
        np.zeros((len(keys), group.width), np.float32)
        for (keys, _), group in zip(looked_up, job.model.table_groups, strict=True)
    ]
    for _ in range(_WARM_UP_STEPS):
        step.gradients(batch, [inverse for _, inverse in looked_up], rows)
    return first


def _device_peak() -> int:
    import torch

    return int(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else 0
