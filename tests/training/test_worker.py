from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from training_parts import TOKEN, make_worker, predict, pull, read_reply, serving, small_job, train

from sizewright.datasets.source import open_source
from sizewright.models.memory import dense_floats
from sizewright.spec import Job
from sizewright.training.embedding import make_keys
from sizewright.training.networks import FAMILIES, make_network
from sizewright.training.partition import make_lookup
from sizewright.training.ps_server import PsServer
from sizewright.training.wire import connect, send_request
from sizewright.training.worker import FlatWeights


def auc(job: Job, servers: list[PsServer]) -> float:
    """On samples of a stream that no worker takes."""
    held_out = next(open_source(job, shard=(50, 51), batch_size=4000))
    return float(roc_auc_score(held_out.labels, predict(job, servers, held_out)))


def test_flat_weights_are_the_networks_own() -> None:
    network = make_network(small_job().model)
    before = [p.detach().clone() for p in network.parameters()]
    flat = FlatWeights(network)
    np.testing.assert_array_equal(flat.weights, np.concatenate([p.numpy().ravel() for p in before]))
    flat.weights[:] = 0.25
    assert all((p == 0.25).all() for p in network.parameters())


def test_flat_gradients_add_up_as_torchs_do() -> None:
    model = small_job().model
    ours, theirs = make_network(model), make_network(model)
    flat, torch_grads = FlatWeights(ours), []
    for step in range(2):
        torch.manual_seed(step)
        inputs = torch.randn(4, model.dense_features), torch.randn(4, model.tables.count, model.row_width)
        ours(*inputs).sum().backward()
        theirs(*inputs).sum().backward()
        torch_grads = [p.grad.numpy().ravel() for p in theirs.parameters() if p.grad is not None]
        np.testing.assert_allclose(flat.grads, np.concatenate(torch_grads), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
def test_one_worker_learns(family: str, optimizer: str) -> None:
    job = small_job(family=family, optimizer=optimizer, rate=0.02 if optimizer == "adagrad" else 0.003)
    with serving(job, 1, 1) as servers:
        untrained = auc(job, servers)
        worker = make_worker(job, servers)
        losses = []
        for _ in range(4):
            before = worker.counters.loss
            train([worker], 100)
            losses.append((worker.counters.loss - before) / 100)
        assert np.isfinite(losses).all()
        assert losses[-1] < losses[0]
        assert auc(job, servers) > max(0.6, untrained + 0.03)
        worker.close()


@pytest.mark.parametrize("sync", ["async", "sync"])
@pytest.mark.parametrize(("servers", "workers"), [(2, 2), (3, 3)])
def test_several_workers_learn_together(sync: str, servers: int, workers: int) -> None:
    job = small_job(sync=sync)
    with serving(job, servers, workers) as running:
        untrained = auc(job, running)
        trained = [make_worker(job, running, i, workers) for i in range(workers)]
        train(trained, 250)
        assert auc(job, running) > max(0.6, untrained + 0.03)
        for worker in trained:
            worker.close()


@pytest.mark.parametrize("sync", ["async", "sync"])
def test_dense_weights_may_travel_every_few_steps(sync: str) -> None:
    often, seldom = (small_job(sync=sync, dense_sync_steps=steps) for steps in (1, 5))
    sent = []
    for job in (often, seldom):
        with serving(job, 2, 2) as servers:
            workers = [make_worker(job, servers, i, 2) for i in range(2)]
            train(workers, 249)
            assert auc(job, servers) > 0.6
            sent.append(workers[0].counters.network_bytes)
            for worker in workers:
                worker.close()
    # weights come with 250 exchanges, or with 50; gradients go with those, but the first ones have none yet
    times = [250 + (249 if sync == "sync" else 248), 50 + 50]
    assert sent[0] - sent[1] == (times[0] - times[1]) * 4 * dense_floats(often)


@pytest.mark.parametrize("servers", [1, 2])
def test_synchronous_sgd_is_plain_sgd_over_the_joint_batch(servers: int) -> None:
    """The same steps in torch alone, over the workers' batches put together, end at the same weights."""
    steps, workers, rate = 5, 2, 0.1
    job = small_job(optimizer="sgd", rate=rate, sync="sync")
    held_out = next(open_source(job, shard=(50, 51), batch_size=500))
    with serving(job, servers, workers) as running:
        streams = [open_source(job, shard=(i, workers)) for i in range(workers)]
        batches = [[next(stream) for stream in streams] for _ in range(steps)]
        keys = np.unique(np.concatenate([make_keys(b.ids) for b in [held_out, *itertools.chain(*batches)]]))
        table = torch.from_numpy(read_rows(job, running, keys)).requires_grad_()
        trained = [make_worker(job, running, i, workers) for i in range(workers)]
        train(trained, steps)
        got = predict(job, running, held_out)
        for worker in trained:
            worker.close()

    network = make_network(job.model)
    optimizer = torch.optim.SGD([*network.parameters(), table], lr=rate)

    def logits(ids: np.ndarray, dense: np.ndarray) -> torch.Tensor:
        places = np.searchsorted(keys, make_keys(ids)).reshape(ids.shape)
        return network(torch.from_numpy(dense), table[torch.from_numpy(places)])

    for joint in batches:
        optimizer.zero_grad()
        ids, dense = (np.concatenate([getattr(b, name) for b in joint]) for name in ("ids", "dense"))
        labels = torch.from_numpy(np.concatenate([b.labels for b in joint]))
        torch.nn.functional.binary_cross_entropy_with_logits(logits(ids, dense), labels).backward()
        optimizer.step()
    expected = logits(held_out.ids, held_out.dense).detach().numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


def read_rows(job: Job, servers: list[PsServer], keys: np.ndarray) -> np.ndarray:
    """Rows of sorted distinct keys; those that are new appear."""

    lookup = make_lookup(keys, len(servers))
    parts = np.split(lookup.keys, np.cumsum(lookup.counts)[:-1])
    rows = []
    for server, part in zip(servers, parts, strict=True):
        with connect(server.address, TOKEN) as link:
            send_request(link, pull(part.tolist(), width=job.model.row_width))
            rows.append(read_reply(link, job.model.row_width)[0])
    return np.concatenate(rows)[lookup.inverse]


@pytest.mark.parametrize("sync", ["async", "sync"])
def test_it_counts_what_it_did(sync: str) -> None:
    job = small_job(sync=sync, batch_size=32)
    steps, width = 6, job.model.row_width
    with serving(job, 2, 1) as servers:
        worker = make_worker(job, servers)
        train([worker], steps)
        counters = worker.counters
        stream = open_source(job)
        rows = [len(np.unique(make_keys(next(stream).ids))) for _ in range(steps + 1)]
        exchanges = steps + 1  # the rows of the next step are there already
        pushes = steps if sync == "sync" else steps - 1
        dense = dense_floats(job)
        assert (counters.steps, counters.samples) == (steps, 32 * steps)
        assert counters.unique_rows == sum(rows)
        asked = exchanges * (2 * 24 + 2 * 8) + 8 * sum(rows) + 4 * width * sum(rows) + 4 * dense * exchanges
        assert counters.network_bytes == asked + 4 * width * sum(rows[:pushes]) + 4 * dense * pushes
        for name in ("data_s", "pull_s", "compute_s", "push_s", "wait_s", "loss", "last_step_at_s"):
            assert getattr(counters, name) > 0, name
        assert set(counters.reading()) >= {"steps", "samples", "loss", "network_bytes"}
        worker.close()


@pytest.mark.parametrize("sync", ["async", "sync"])
def test_a_server_that_goes_ends_the_step(sync: str) -> None:
    job = small_job(sync=sync)
    with serving(job, 2, 1) as servers:
        worker = make_worker(job, servers)
        train([worker], 3)
        servers[1].close()
        with pytest.raises(OSError):  # noqa: PT011 (reset, broken pipe or closed, as it happens)
            train([worker], 3)
        worker.close()


def test_closing_ends_a_step_that_waits_for_another_worker() -> None:
    job = small_job(sync="sync")
    with serving(job, 1, 2) as servers:
        lonely = make_worker(job, servers, 0, 2)
        faults: list[Exception] = []

        def run() -> None:
            try:
                lonely.step()
            except OSError as fault:
                faults.append(fault)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(1.0)
        assert thread.is_alive()
        lonely.close()
        thread.join(10)
        assert not thread.is_alive()
        assert len(faults) == 1
