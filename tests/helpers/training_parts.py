"""Parts for tests of the engine: a small job, parameter servers with a routing, and workers."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pytest
import torch

from sizewright.datasets.clicks.batch import Batch
from sizewright.datasets.clicks.samples import SampleSource, open_samples
from sizewright.spec import Data, Job, Model, Optimizer, Tables, Training
from sizewright.training.host.cgroups import CgroupTree, find_cgroups
from sizewright.training.leases.batch_source import LeasedBatch
from sizewright.training.program import BuiltIn
from sizewright.training.ps.dense import DenseSlice, dense_rule
from sizewright.training.ps.embedding import EmbeddingStore, make_keys
from sizewright.training.ps.hash_index import Keys, Slots
from sizewright.training.ps.optimizers import Floats, make_rule
from sizewright.training.ps.parameter_server import ParameterServer
from sizewright.training.ps.routing import Lookup, Routing, Server
from sizewright.training.ps.sync import AsyncUpdates, SyncRounds
from sizewright.training.transport.exchange import NO_FLOATS, PUSH, WANT_DENSE, ExchangeRequest
from sizewright.training.transport.links import TcpTransport
from sizewright.training.transport.listeners import PsServer
from sizewright.training.worker.network_step import NetworkStep
from sizewright.training.worker.networks import make_network
from sizewright.training.worker.ps_client import DensePush, OutgoingPush, PsClient, Pull
from sizewright.training.worker.weights import FlatWeights
from sizewright.training.worker.worker import Worker

torch.set_num_threads(1)  # the networks are small, and each worker has its own thread
TOKEN = bytes(range(32))
_SAMPLE_NUMBERS = itertools.count(1 << 40)
_READER_NUMBERS = itertools.count(1000)
"""Worker numbers with which tests read."""


def new_sample() -> tuple[int, int]:
    """Return the start and end of a sample that no other caller got, in any thread."""
    start = next(_SAMPLE_NUMBERS)  # a generator may run in one thread only
    return start, start + 1


def small_job(
    *,
    family: str = "dlrm",
    optimizer: str = "adagrad",
    rate: float = 0.05,
    rows: tuple[int, ...] = (50, 200, 30, 500),
    dim: int | tuple[int, ...] = 4,
    pooling: int | tuple[int, ...] = 1,
    batch_size: int = 64,
    sync: str = "async",
    dense_sync_steps: int = 1,
    **training: object,
) -> Job:
    return Job(
        model=Model(
            family=family,
            dense_features=5,
            tables=Tables(count=len(rows), rows=rows, dim=dim, pooling=pooling),
            bottom_mlp=(16,),
            top_mlp=(16,),
            cross_layers=2,
            cin=(6, 3),
            optimizer=Optimizer(name=optimizer, learning_rate=rate),
        ),
        data=Data(zipf=1.0),
        training=Training(batch_size=batch_size, sync=sync, dense_sync_steps=dense_sync_steps, **training),
    )


def make_ps(
    width: int | Sequence[int] = 2,
    *,
    name: str = "sgd",
    rate: float = 1.0,
    dense: Floats | int = 4,
    start: int = 0,
    sync: bool = False,
    staleness: int | None = None,
    version: int = 1,
    seed: int = 0,
    init_scale: float = 1.0,
    total: int | None = None,
) -> ParameterServer:
    optimizer = Optimizer(name=name, learning_rate=rate)
    weights = np.zeros(dense, np.float32) if isinstance(dense, int) else dense
    row_widths = [width] if isinstance(width, int) else width
    return ParameterServer(
        [EmbeddingStore(each, make_rule(optimizer), seed=seed, init_scale=init_scale) for each in row_widths],
        DenseSlice(start, weights, dense_rule(optimizer), total=total),
        lambda changed: SyncRounds(changed) if sync else AsyncUpdates(changed, staleness),
        version=version,
    )


def request(
    *,
    keys: Sequence[int] = (),
    tag: int = 0,
    push_tag: int | None = None,
    grads: object = (),
    push_keys: Sequence[int] = (),
    dense: object = (),
    flags: int = 0,
    version: int = 1,
    width: int = 2,
    samples: tuple[int, int] | None = None,
) -> ExchangeRequest:
    """Return an exchange that pulls `keys`, and pushes if `push_tag` is given (of new samples by default)."""
    start, end = samples or new_sample()
    dense = np.array(dense, np.float32)
    return ExchangeRequest(
        version,
        flags | (0 if push_tag is None else PUSH),
        push_tag or 0,
        start,
        end,
        (np.array(push_keys, np.int64),),
        (np.array(grads, np.float32).reshape(-1, width),),
        np.array([(start, end)] if dense.size else [], np.int64).reshape(-1, 2),
        dense,
        tag,
        (np.array(keys, np.int64),),
    )


def servers_for(running: Sequence[PsServer], first: int = 1) -> tuple[Server, ...]:
    return tuple(Server(first + i, server.address) for i, server in enumerate(running))


class Cluster:
    """Empty parameter servers of a job behind TCP, with the initial dense weights of its network and a routing."""

    def __init__(self, job: Job, servers: int) -> None:
        self.job = job
        self.dense = FlatWeights(make_network(job.model)).weights
        optimizer, training = job.model.optimizer, job.training
        self.running: list[PsServer] = []
        plan = Routing.even(tuple(Server(i + 1, ("", 0)) for i in range(servers)), self.dense.size)
        for i, part in enumerate(plan.slices()):
            ps = make_ps(
                widths(job), name=optimizer.name, rate=optimizer.learning_rate, dense=self.dense[part],
                start=part.start, sync=training.sync == "sync", staleness=training.max_staleness, seed=i,
                total=self.dense.size,
            )  # fmt: skip
            self.running.append(PsServer(ps, TOKEN))
        self.routing = plan._replace(servers=servers_for(self.running))

    def router(self, worker: int) -> PsClient:
        return PsClient(TcpTransport(TOKEN), worker, self.routing, widths(self.job), patience_s=20)

    def read(self, *keys: Keys) -> tuple[list[Floats], Floats]:
        """Return rows of keys of each width (new keys get a row) and all dense weights; no round waits for it."""
        reader = next(_READER_NUMBERS)
        router = self.router(reader)
        try:
            return pull_all(router, keys, self.dense.size)
        finally:
            router.close()
            for server in self.running:
                server._ps.forget(reader)

    def predict(self, batch: Batch) -> Floats:
        """Return the logits of a batch for the current weights of the servers."""
        keys = keys_by_width(self.job, batch)
        rows, dense = self.read(*(of_width.ravel() for of_width in keys))
        network = make_network(self.job.model)
        FlatWeights(network).weights[:] = dense
        of_ids = [torch.from_numpy(r.reshape(*k.shape, -1)) for r, k in zip(rows, keys, strict=True)]
        with torch.no_grad():
            logits: Floats = network(torch.from_numpy(batch.dense), pooled(self.job, of_ids)).numpy()
        return logits

    def worker(self, feed: ListSource, number: int = 1) -> Worker:
        training = self.job.training
        return Worker(
            NetworkStep(self.job.model, make_network(self.job.model), BuiltIn().loss),
            feed,
            self.router(number),
            sync=training.sync == "sync",
            dense_sync_steps=training.dense_sync_steps,
        )

    def close(self) -> None:
        for server in self.running:
            server.close()


@contextlib.contextmanager
def serving(job: Job, servers: int) -> Iterator[Cluster]:
    cluster = Cluster(job, servers)
    try:
        yield cluster
    finally:
        cluster.close()


def pull(router: PsClient, keys: Keys, dense: int = 0) -> tuple[Floats, Floats]:
    """Return rows in the order of the keys, and the dense weights."""
    (rows,), weights = pull_all(router, [keys], dense)
    return rows, weights


def pull_all(router: PsClient, keys: Sequence[Keys], dense: int = 0) -> tuple[list[Floats], Floats]:
    """Return rows of each width in the order of the keys, and the dense weights."""
    lookups = [router.routing.lookup(some) for some in keys]
    rows, weights = router.empty_rows(lookups), np.zeros(dense, np.float32)
    router.send(None, Pull(1, lookups), DensePush(), WANT_DENSE if dense else 0)
    router.receive(rows, weights)
    return [of_width[lookup.inverse] for of_width, lookup in zip(rows, lookups, strict=True)], weights


def widths(job: Job) -> list[int]:
    """Return the widths of a job's rows."""
    return [group.width for group in job.model.table_groups]


def keys_by_width(job: Job, batch: Batch) -> list[Keys]:
    """Return the keys (n, columns) of a batch's ids for each width of rows."""
    tables = np.array(job.model.tables.id_columns)
    keys = make_keys(batch.ids, tables).reshape(batch.ids.shape)
    return [keys[:, np.isin(tables, group.tables)] for group in job.model.table_groups]


def pooled(job: Job, rows: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return embedded tables (n, tables, width) of the rows (n, columns, width) of each width."""
    poolings = job.model.tables.poolings
    return [
        torch.stack([part.sum(1) for part in of_width.split([poolings[i] for i in group.tables], dim=1)], 1)
        for of_width, group in zip(rows, job.model.table_groups, strict=True)
    ]


def push(router: PsClient, tag: int, lookup: Lookup, version: int, grads: Floats, dense: Floats = NO_FLOATS) -> None:
    """Push gradients of new samples without a pull."""
    start, end = new_sample()
    dense_push = DensePush(dense, np.array([(start, end)])) if dense.size else DensePush()
    router.send(OutgoingPush(tag, version, [lookup], [grads], start, end), None, dense_push, 0)
    router.receive(router.empty_rows(), NO_FLOATS)


class ListSource:
    """A batch source over a list or a stream that remembers the reported and handed-back batches."""

    def __init__(self, batches: Iterable[Batch | None]) -> None:
        self.finished = False
        self.reported: list[int] = []
        self.handed_back = 0
        self._batches = iter(batches)
        self._count = 0

    def next(self) -> LeasedBatch | None:
        batch = next(self._batches, None)
        if batch is None:
            return None
        self._count += 1
        start, end = new_sample()
        return LeasedBatch(batch, self._count, start, end)

    def trained(self, batch: LeasedBatch) -> None:
        self.reported.append(batch.lease)

    def hand_back(self) -> None:
        self.handed_back += 1


def stream(job: Job, index: int = 0, workers: int = 1, count: int | None = None) -> Iterator[Batch]:
    """Yield every `workers`-th batch of the job's samples."""
    source: SampleSource = open_samples(job)
    size, number = job.training.batch_size, 0
    while count is None or number < count:
        yield source.read((number * workers + index) * size, size)
        number += 1


def held_out(job: Job, count: int) -> Batch:
    """Return samples that no test trains."""
    return open_samples(job).read(50_000_000, count)


def in_threads(*calls: Callable[[], object], timeout_s: float = 60) -> None:
    """Run each call in its own thread, and raise the first exception."""
    faults: list[BaseException] = []

    def run(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout_s)
        assert not thread.is_alive(), f"a thread hangs; faults so far: {faults}"
    if faults:
        raise faults[0]


def train(workers: Sequence[Worker], steps: int) -> None:
    """Let each worker take `steps` steps."""
    in_threads(*(lambda worker=worker: [worker.step() for _ in range(steps)] for worker in workers))


def writable_group(name: str) -> CgroupTree:
    """Return a writable control group, or skip the test."""
    tree = find_cgroups(f"szwtest-{os.getpid()}-{name}")
    if tree is None:
        pytest.skip("control groups cannot be created on this host")
    return tree


def as_list(slots: Slots) -> list[int]:
    return [int(slot) for slot in slots]
