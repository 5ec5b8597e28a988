"""A training loop without elasticity: one worker, one fixed PS, no routing, leases, applied-sample records or versions.

The session's loop is compared with this one. As a script it trains for some seconds with the given cores and prints
samples/s: `python -m benchmarks._plain_loop JOB SECONDS WORKER_CORES PS_CORES`.
"""

from __future__ import annotations

import multiprocessing
import socket
import struct
import sys
import time

import numpy as np
import torch
from torch import nn

from sizewright.datasets.malloc import keep_freed_memory
from sizewright.spec import Job
from sizewright.training.host.cgroups import CgroupTree
from sizewright.training.host.limits import ReplicaLimits
from sizewright.training.program import BuiltIn
from sizewright.training.ps.embedding import TABLE_SHIFT, EmbeddingStore, make_keys
from sizewright.training.ps.optimizers import make_rule
from sizewright.training.ray.node_agent import NodeAgent
from sizewright.training.transport.wire import receive_bytes, receive_into, send_arrays
from sizewright.training.worker.networks import make_network
from sizewright.training.worker.weights import FlatWeights

_HEAD = struct.Struct("<3I")


def serve(listener: socket.socket, job: Job, cores: float, tree: CgroupTree | None) -> None:
    """Serve one worker as its only PS."""
    limits = ReplicaLimits(tree, "plain-ps")
    keep_freed_memory()
    rule, width = make_rule(job.model.optimizer), job.model.row_widths[0]
    sizes = job.model.tables.sizes()
    store = EmbeddingStore(width, rule, expected_rows=sum(sizes))
    for table, rows in enumerate(sizes):
        store.fill(np.arange(rows, dtype=np.int64) + (table << TABLE_SHIFT))
    dense = FlatWeights(make_network(job.model)).weights.reshape(1, -1)
    state = np.zeros((1, rule.state_width(dense.size)), np.float32)
    link, _ = listener.accept()
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    limits.set_cpu(cores)
    last = np.empty(0, np.int64)
    pending: list[np.ndarray] = []
    while (head := receive_bytes(link, _HEAD.size)) is not None:
        count, pushed, due = _HEAD.unpack(head)
        grads, keys = np.empty((pushed, width), np.float32), np.empty(count, np.int64)
        dense_grads = np.empty((1, dense.size if due and pushed else 0), np.float32)
        if not all(receive_into(link, array) for array in (grads, dense_grads, keys)):
            break
        if pushed:
            store.update(pending.pop(0), grads)
            if due:
                rule.update(dense, state, dense_grads)
        last = store.locate(keys)
        pending.append(last)
        send_arrays(link, b"", store.read(last), dense if due else dense[:, :0])


def train(address: tuple[str, int], job: Job, seconds: float, cores: float, tree: CgroupTree | None) -> float:
    """Train as the only worker and return samples/s."""
    limits = ReplicaLimits(tree, "plain-worker")
    keep_freed_memory()
    torch.set_num_threads(1)
    network, width = make_network(job.model), job.model.row_widths[0]
    flat, every, loss_of = FlatWeights(network), job.training.dense_sync_steps, nn.BCEWithLogitsLoss()
    source, size = BuiltIn().samples(job, 1.0), job.training.batch_size
    link = socket.create_connection(address)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    limits.set_cpu(cores)
    at, tag, grads = 0, 0, np.empty((0, width), np.float32)
    ready = None
    steps, start = -15, 0.0
    while True:
        batch = source.read(at, size)
        at += size
        keys, inverse = np.unique(make_keys(batch.ids), return_inverse=True)
        tag += 1
        due = tag % every == 0 or tag == 1
        send_arrays(
            link, _HEAD.pack(len(keys), len(grads), due), grads, flat.grads if due and len(grads) else grads[:0], keys
        )
        if due:
            flat.grads.fill(0)
        if ready is not None:
            grads = _compute(network, loss_of, *ready)
            steps += 1
        rows = np.empty((len(keys), width), np.float32)
        receive_into(link, rows)
        if due:
            receive_into(link, flat.weights)
        ready = batch, inverse, rows
        if steps == 0:
            start = time.perf_counter()
        if steps > 0 and time.perf_counter() - start > seconds:
            return steps * size / (time.perf_counter() - start)


def _compute(network: nn.Module, loss_of: nn.Module, batch, inverse, rows) -> np.ndarray:  # type: ignore[no-untyped-def]
    pulled = torch.from_numpy(rows).requires_grad_()
    embedded = nn.functional.embedding(torch.from_numpy(inverse), pulled).view(*batch.ids.shape, -1)
    loss = loss_of(network(torch.from_numpy(batch.dense), embedded), torch.from_numpy(batch.labels))
    loss.backward()
    float(loss.detach())
    assert pulled.grad is not None
    return pulled.grad.numpy()


def main() -> None:
    job, seconds = Job.load(sys.argv[1]), float(sys.argv[2])
    node_agent = NodeAgent(f"plain-{time.time_ns()}")
    listener = socket.create_server(("127.0.0.1", 0))
    server = multiprocessing.Process(target=serve, args=(listener, job, float(sys.argv[4]), node_agent.tree))
    server.start()
    try:
        print(train(listener.getsockname(), job, seconds, float(sys.argv[3]), node_agent.tree))
    finally:
        if node_agent.tree:
            node_agent.tree.below("plain-worker").set_cpu(None)
        server.kill()
        server.join()
        if node_agent.tree:  # this process is in one of its groups
            CgroupTree(node_agent.tree.version, {k: f.parent for k, f in node_agent.tree.folders.items()}).join()
        node_agent.close()


if __name__ == "__main__":
    main()
