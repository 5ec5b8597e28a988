"""What several tests of the engine need: a small job, a served parameter server, and rows read back."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch

from sizewright.datasets.batch import Batch
from sizewright.datasets.source import open_source
from sizewright.spec import Data, Job, Model, Optimizer, Tables, Training
from sizewright.training.cgroups import CgroupTree, find_cgroups
from sizewright.training.embedding import EmbeddingStore, make_keys
from sizewright.training.hash_index import Slots
from sizewright.training.networks import make_network
from sizewright.training.optimizers import Floats, make_rule
from sizewright.training.partition import dense_slices, make_lookup
from sizewright.training.ps import ParameterServer
from sizewright.training.ps_server import PsServer
from sizewright.training.wire import Request, connect, receive_into, receive_reply_head, send_request
from sizewright.training.worker import FlatWeights, Worker

torch.set_num_threads(1)  # the networks are small, and workers have threads of their own
TOKEN = bytes(range(32))
NO_FLOATS: Floats = np.empty(0, np.float32)


def small_job(
    *,
    family: str = "dlrm",
    optimizer: str = "adagrad",
    rate: float = 0.05,
    rows: tuple[int, ...] = (50, 200, 30, 500),
    dim: int = 4,
    batch_size: int = 64,
    sync: str = "async",
    dense_sync_steps: int = 1,
) -> Job:
    return Job(
        model=Model(
            family=family,
            dense_features=5,
            tables=Tables(count=len(rows), rows=rows, dim=dim),
            bottom_mlp=(16,),
            top_mlp=(16,),
            cross_layers=2,
            cin=(6, 3),
            optimizer=Optimizer(name=optimizer, learning_rate=rate),
        ),
        data=Data(zipf=1.0),
        training=Training(batch_size=batch_size, sync=sync, dense_sync_steps=dense_sync_steps),
    )


def make_ps(width: int = 2, *, name: str = "sgd", rate: float = 1.0, dense: int = 4, sync: int = 0) -> ParameterServer:
    rule = make_rule(Optimizer(name=name, learning_rate=rate))
    return ParameterServer(EmbeddingStore(width, rule), np.zeros(dense, np.float32), rule, sync_workers=sync)


def pull(keys: Sequence[int], tag: int = 1, *, want_dense: bool = False, width: int = 2) -> Request:
    """A request that only pulls."""
    none = np.empty((0, width), np.float32)
    return Request(0, none, NO_FLOATS, tag, np.array(keys, np.int64), want_dense)


def push(tag: int, grads: Floats, dense: Floats = NO_FLOATS) -> Request:
    """A request that only pushes."""
    return Request(tag, np.asarray(grads, np.float32), dense, tag + 1000, np.empty(0, np.int64), True)


@contextlib.contextmanager
def serving(job: Job, servers: int, workers: int) -> Iterator[list[PsServer]]:
    """Empty parameter servers for a job, dense weights as its network begins with."""
    dense = FlatWeights(make_network(job.model)).weights
    sync = workers if job.training.sync == "sync" else 0
    running = []
    for index, part in enumerate(dense_slices(dense.size, servers)):
        store = EmbeddingStore(job.model.row_width, make_rule(job.model.optimizer), seed=index)
        ps = ParameterServer(store, dense[part], make_rule(job.model.optimizer), sync_workers=sync)
        running.append(PsServer(ps, TOKEN))
    try:
        yield running
    finally:
        for server in running:
            server.close()


def make_worker(job: Job, servers: list[PsServer], index: int = 0, workers: int = 1) -> Worker:
    return Worker(
        make_network(job.model),
        job.model.row_width,
        open_source(job, shard=(index, workers)),
        [connect(server.address, TOKEN) for server in servers],
        sync=job.training.sync == "sync",
        dense_sync_steps=job.training.dense_sync_steps,
    )


def train(workers: list[Worker], steps: int) -> None:
    """Every worker in a thread of its own; an exception of any is raised here."""
    faults: list[BaseException] = []

    def run(worker: Worker) -> None:
        try:
            for _ in range(steps):
                worker.step()
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(worker,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a worker hangs"
    if faults:
        raise faults[0]


def read_reply(link: socket.socket, width: int) -> tuple[Floats, Floats]:
    rows, dense_size = receive_reply_head(link)
    values, dense = np.empty((rows, width), np.float32), np.empty(dense_size, np.float32)
    assert receive_into(link, values)
    assert receive_into(link, dense)
    return values, dense


def predict(job: Job, servers: list[PsServer], batch: Batch) -> Floats:
    """Logits of a batch with the rows and weights that the servers hold now, read over connections of our own."""
    width = job.model.row_width
    lookup = make_lookup(make_keys(batch.ids), len(servers))
    edges = np.cumsum([0, *lookup.counts])
    rows, dense = [], []
    for server, start, end in zip(servers, edges[:-1], edges[1:], strict=True):
        link = connect(server.address, TOKEN)
        send_request(link, pull(lookup.keys[start:end], want_dense=True, width=width))
        values, weights = read_reply(link, width)
        rows.append(values)
        dense.append(weights)
        link.close()
    network = make_network(job.model)
    FlatWeights(network).weights[:] = np.concatenate(dense)
    embedded = np.concatenate(rows)[lookup.inverse].reshape(*batch.ids.shape, width)
    with torch.no_grad():
        logits: Floats = network(torch.from_numpy(batch.dense), torch.from_numpy(embedded)).numpy()
    return logits


def own_group(name: str) -> CgroupTree:
    """A writable control group, or a skipped test."""
    tree = find_cgroups(f"szwtest-{os.getpid()}-{name}")
    if tree is None:
        pytest.skip("this host lets nobody make control groups here")
    return tree


def in_order(slots: Slots) -> list[int]:
    return [int(slot) for slot in slots]
