from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from sizewright.datasets.clicks.batch import Batch
from sizewright.models.memory.memory_model import dense_floats
from sizewright.spec import Job
from sizewright.training.worker.networks import FAMILIES, make_network
from sizewright.training.worker.worker import Worker
from tests.helpers.training_parts import (
    Cluster,
    ListSource,
    held_out,
    in_threads,
    keys_by_width,
    pooled,
    serving,
    small_job,
    stream,
    train,
    widths,
)

REQUEST_BYTES, REPLY_BYTES = 40, 12


def auc(job: Job, cluster: Cluster) -> float:
    batch = held_out(job, 4000)
    return float(roc_auc_score(batch.labels, cluster.predict(batch)))


def workers_of(job: Job, cluster: Cluster, workers: int, count: int | None = None) -> list[Worker]:
    """Each with every `workers`-th batch, and all of them members of all rounds from the start."""
    for server in cluster.running:
        server._ps.join(set(range(1, workers + 1)))
    return [cluster.worker(ListSource(stream(job, i, workers, count)), i + 1) for i in range(workers)]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
def test_one_worker_learns(family: str, optimizer: str) -> None:
    job = small_job(family=family, optimizer=optimizer, rate=0.02 if optimizer == "adagrad" else 0.003)
    with serving(job, 1) as cluster:
        untrained = auc(job, cluster)
        (worker,) = workers_of(job, cluster, 1)
        losses = []
        for _ in range(4):
            before = worker.counters.loss
            train([worker], 100)
            losses.append((worker.counters.loss - before) / 100)
        worker.leave()
        assert np.isfinite(losses).all()
        assert losses[-1] < losses[0]
        assert auc(job, cluster) > max(0.6, untrained + 0.03)


@pytest.mark.parametrize(("sync", "bound"), [("async", None), ("async", 0), ("sync", None)])
@pytest.mark.parametrize(("servers", "workers"), [(2, 2), (3, 3)])
def test_several_workers_learn_together(sync: str, bound: int | None, servers: int, workers: int) -> None:
    job = small_job(sync=sync, max_staleness=bound)
    with serving(job, servers) as cluster:
        untrained = auc(job, cluster)
        trained = workers_of(job, cluster, workers)
        train(trained, 200)
        in_threads(*(worker.leave for worker in trained))
        assert auc(job, cluster) > max(0.6, untrained + 0.03)


@pytest.mark.parametrize("sync", ["async", "sync"])
def test_dense_weights_may_be_exchanged_every_few_steps(sync: str) -> None:
    """Each exchange of them carries 4 bytes a weight; what gathers meanwhile goes with the next."""
    often, seldom = (small_job(sync=sync, dense_sync_steps=steps) for steps in (1, 5))
    sent, received = [], []
    for job in (often, seldom):
        with serving(job, 2) as cluster:
            workers = workers_of(job, cluster, 2)
            train(workers, 249)
            assert auc(job, cluster) > 0.6
            sent.append(workers[0].counters.bytes_sent)
            received.append(workers[0].counters.bytes_received)
    # weights come with 250 exchanges, or with the first and 50 others; gradients with each push, or 50 times
    size = 4 * dense_floats(often)
    assert sent[0] - sent[1] == ((249 if sync == "sync" else 248) - 50) * size
    assert received[0] - received[1] == (250 - 51) * size


MIXED = {"dim": (4, 8, 4, 12), "pooling": (1, 3, 2, 1)}


@pytest.mark.parametrize("tables", [{}, MIXED, {"pooling": (2, 1, 1, 3)}, {"dim": (4, 8, 8, 4)}])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("servers", [1, 2])
def test_synchronous_sgd_is_plain_sgd_over_the_joint_batch(servers: int, family: str, tables: dict[str, Any]) -> None:
    """The same steps in torch alone, over the workers' batches put together, end at the same weights."""
    steps, workers, rate = 5, 2, 0.1
    job = small_job(family=family, optimizer="sgd", rate=rate, sync="sync", **tables)
    last = held_out(job, 500)
    batches = list(zip(*(stream(job, i, workers, steps) for i in range(workers)), strict=True))
    by_batch = [keys_by_width(job, batch) for batch in [last, *itertools.chain(*batches)]]
    keys = [np.unique(np.concatenate([each.ravel() for each in of_width])) for of_width in zip(*by_batch, strict=True)]
    with serving(job, servers) as cluster:
        rows = [torch.from_numpy(each).requires_grad_() for each in cluster.read(*keys)[0]]
        trained = workers_of(job, cluster, workers, steps)
        train(trained, steps)
        in_threads(*(worker.leave for worker in trained))
        got = cluster.predict(last)

    network = make_network(job.model)
    optimizer = torch.optim.SGD([*network.parameters(), *rows], lr=rate)

    def logits(batch: Batch) -> torch.Tensor:
        places = [np.searchsorted(*each) for each in zip(keys, keys_by_width(job, batch), strict=True)]
        of_ids = [of_width[torch.from_numpy(at)] for of_width, at in zip(rows, places, strict=True)]
        outputs: torch.Tensor = network(torch.from_numpy(batch.dense), pooled(job, of_ids))
        return outputs

    for joint in batches:
        optimizer.zero_grad()
        together = Batch(*(np.concatenate(parts) for parts in zip(*joint, strict=True)))
        labels = torch.from_numpy(together.labels)
        torch.nn.functional.binary_cross_entropy_with_logits(logits(together), labels).backward()
        optimizer.step()
    expected = logits(last).detach().numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("tables", [{}, MIXED])
@pytest.mark.parametrize("sync", ["async", "sync"])
def test_worker_counts_its_steps_and_transfers(sync: str, tables: dict[str, Any]) -> None:
    job = small_job(sync=sync, batch_size=32, **tables)
    steps, request_bytes = 6, REQUEST_BYTES + 12 * len(job.model.table_groups)
    with serving(job, 2) as cluster:
        (worker,) = workers_of(job, cluster, 1)
        train([worker], steps)
        counters = worker.counters
        distinct = [[len(np.unique(k)) for k in keys_by_width(job, batch)] for batch in stream(job, count=steps + 1)]
        floats = [int(np.dot(counts, widths(job))) for counts in distinct]
        rows = [sum(counts) for counts in distinct]
        exchanges = steps + 1  # the rows of the next step are there already
        pushes = steps if sync == "sync" else steps - 1
        dense = dense_floats(job)
        assert (counters.steps, counters.samples, len(worker.step_times)) == (steps, 32 * steps, steps)
        assert counters.unique_rows == sum(rows)
        # dense gradients, and the samples that they are of, go with each push
        requested = (
            exchanges * 2 * request_bytes + 8 * sum(rows) + 4 * sum(floats[:pushes]) + (4 * dense + 2 * 16) * pushes
        )
        assert counters.bytes_sent == requested
        assert counters.bytes_received == exchanges * (2 * REPLY_BYTES + 4 * dense) + 4 * sum(floats)
        for name in ("data_s", "pull_s", "compute_s", "push_s", "wait_s", "loss", "last_step_at_s"):
            assert getattr(counters, name) > 0, name
        assert counters.reading()["bytes_sent"] == requested
        assert sum(server.received_bytes for server in cluster.running) == requested


@pytest.mark.parametrize("sync", ["async", "sync"])
@pytest.mark.parametrize("servers", [1, 2])
def test_batches_are_reported_in_order_after_their_push(sync: str, servers: int) -> None:
    job = small_job(sync=sync, batch_size=16)
    with serving(job, servers) as cluster:
        feed = ListSource(stream(job, count=5))
        worker = cluster.worker(feed)
        while worker.step():
            pushes = {server._ps.counters.pushes for server in cluster.running}
            assert pushes == {len(feed.reported)}
        assert feed.reported == [1, 2, 3, 4, 5]
        assert feed.handed_back == 1
        assert worker.counters.steps == 5
        for server in cluster.running:
            assert server._ps.counters.pushes == 5
            assert sum(group.samples.total for group in server._ps.applied_groups()) == 5
            assert not server._ps.sync.members


@pytest.mark.parametrize("sync", ["async", "sync"])
def test_pause_of_data_pushes_everything_before_training_resumes(sync: str) -> None:
    """Without data a worker leaves the rounds, so that others need not wait; with data it is back."""
    job = small_job(sync=sync, batch_size=16)
    batches = list(stream(job, count=4))
    with serving(job, 2) as cluster:
        feed = ListSource([*batches[:2], None, None, None, *batches[2:]])
        worker = cluster.worker(feed)
        outcomes = [worker.step() for _ in range(9)]
        assert outcomes.count(True) == 4
        assert feed.reported == [1, 2, 3, 4]
        assert feed.handed_back == outcomes.count(False)
        for server in cluster.running:
            assert server._ps.counters.pushes == 4


def test_leaving_worker_hands_back_untrained_batches() -> None:
    job = small_job(batch_size=16, dense_sync_steps=50)
    with serving(job, 1) as cluster:
        feed = ListSource(stream(job))
        worker = cluster.worker(feed)
        train([worker], 3)
        worker.leave()
        assert feed.reported == [1, 2, 3]  # the fourth batch was pulled only
        assert feed.handed_back == 1
        dense = cluster.running[0]._ps.dense
        weights = dense.copy()
        worker.leave()  # again is fine
        np.testing.assert_array_equal(dense.copy(), weights)
        dense.put(0, 2 * weights, dense.part(0, dense.end)[2])  # others go on meanwhile
        train([worker], 1)
        np.testing.assert_array_equal(worker.dense_weights(), 2 * weights)  # it begins with what the servers have


@pytest.mark.parametrize("sync", ["async", "sync"])
def test_leaving_worker_pushes_its_accumulated_dense_gradients(sync: str) -> None:
    """With SGD the weights move by all gradients, whether they go every step, or with the last one."""
    moved = []
    for every in (1, 50):
        job = small_job(sync=sync, batch_size=16, optimizer="sgd", rate=1e-4, dense_sync_steps=every)
        with serving(job, 2) as cluster:
            worker = cluster.worker(ListSource(stream(job, count=6)))
            while worker.step():
                pass
            after = np.concatenate([server._ps.dense.copy() for server in cluster.running])
            moved.append(after - cluster.dense)
    assert np.abs(moved[0]).max() > 0
    np.testing.assert_allclose(moved[1], moved[0], rtol=0.05, atol=1e-2 * np.abs(moved[0]).max())


def test_one_worker_without_overlap_pulls_its_own_writes() -> None:
    """A synchronous worker's dense weights are those of the servers before each step; its copy is its own."""
    job = small_job(sync="sync")
    with serving(job, 2) as cluster:
        (worker,) = workers_of(job, cluster, 1)
        for _ in range(3):
            worker.step()
            for server in cluster.running:
                dense = server._ps.dense
                np.testing.assert_array_equal(worker.dense_weights()[dense.start : dense.end], dense.copy())
        worker.dense_weights()[:] = 0
        assert worker.dense_weights().any()


@pytest.mark.parametrize("sync", ["async", "sync"])
def test_lost_server_without_replacement_ends_the_step(sync: str) -> None:
    job = small_job(sync=sync)
    with serving(job, 2) as cluster:
        (worker,) = workers_of(job, cluster, 1)
        worker._client._patience_s = 0.05
        train([worker], 3)
        cluster.running[1].close()
        with pytest.raises(ConnectionError, match="nobody took its place"):
            train([worker], 3)


def test_closing_the_client_ends_a_waiting_step() -> None:
    job = small_job(sync="sync")
    with serving(job, 1) as cluster:
        lonely, _ = workers_of(job, cluster, 2)
        ps = cluster.running[0]._ps

        def run() -> None:
            with pytest.raises(ConnectionError):
                lonely.step()

        def close() -> None:
            while not ps.sync._pushes:  # type: ignore[attr-defined]
                threading.Event().wait(0.005)
            lonely._client.close()

        in_threads(run, close)
        assert ps.counters.pushes == 0
