from __future__ import annotations

import numpy as np
import pytest
import torch

from sizewright.datasets.clicks.synthetic import SyntheticLog
from sizewright.datasets.trial_bank.shapes import bank_jobs
from sizewright.models.memory.memory_model import table_bytes
from sizewright.models.prior.work import distinct_rows, network_work, scale_of, work_of
from sizewright.spec import Job, Model, Tables


@pytest.mark.parametrize(
    ("rows", "zipf", "draws"), [(100, 1.05, 512), (40_000, 0.9, 1024), (5_000, 1.2, 256), (7, 0, 9)]
)
def test_distinct_rows_match_a_synthetic_log(rows: int, zipf: float, draws: int) -> None:
    log = SyntheticLog([rows], dense_features=1, zipf=zipf)
    batches = log.batches(draws)
    counted_rows = [len(np.unique(next(batches).ids)) for _ in range(60)]
    assert distinct_rows(rows, zipf, draws) == pytest.approx(np.mean(counted_rows), rel=0.03)


def test_distinct_rows_never_exceed_draws_or_rows_and_grow_with_both() -> None:
    counts = [distinct_rows(1000, 1.0, draws) for draws in (1, 10, 100, 1000, 1e6)]
    assert counts == sorted(counts)
    assert counts[0] == pytest.approx(1.0)
    assert counts[-1] <= 1000
    assert distinct_rows(1000, 1.05, 512) < distinct_rows(100_000, 1.05, 512) < 512


@pytest.mark.parametrize("dim", [8, (8, 4, 16, 8, 8, 4)])
@pytest.mark.parametrize("family", ["dlrm", "wide_deep", "dcn", "xdeepfm"])
def test_operations_match_those_of_the_network(family: str, dim: int | tuple[int, ...]) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    from sizewright.training.worker.networks import make_network

    model = Model(
        family=family, tables=Tables(count=6, rows=50, dim=dim), bottom_mlp=(32,), top_mlp=(64, 16), cin=(12, 5)
    )
    network, batch = make_network(model), 4
    groups = model.table_groups
    embedded = [torch.zeros(batch, len(group.tables), group.width, requires_grad=True) for group in groups]
    counter = FlopCounterMode(display=False)
    with counter:
        network(torch.zeros(batch, 13), embedded).sum().backward()
    counted = counter.get_total_flops() / batch
    assert network_work(model)[0] == pytest.approx(counted, rel=0.25)


def test_work_of_rows_is_counted_table_by_table() -> None:
    """Two tables of 3 and 1 ids a sample, whose rows are all looked up in a large batch."""
    tables = Tables(count=2, rows=(40, 10), dim=(4, 32), pooling=(3, 1))
    job = Job(model=Model(family="wide_deep", tables=tables, optimizer="rowwise_adagrad"), data={"zipf": 0})
    work = work_of(job, np.array([1000.0]), np.array([1.0]))
    assert work.ids[0] == 4000
    assert work.id_floats[0] == 1000 * (3 * 5 + 1 * 33)
    assert work.rows[0] == pytest.approx(50)
    assert work.row_floats[0] == pytest.approx(40 * 5 + 10 * 33)
    assert work.row_state[0] == pytest.approx(50)
    assert work.embedding_bytes[0] == table_bytes(job) == 40 * 4 * (5 + 1) + 10 * 4 * (33 + 1)


def test_work_is_counted_once_for_each_batch_and_share_of_the_rows() -> None:
    job = Job()
    work = work_of(job, np.array([512.0, 256.0, 512.0]), np.array([1.0, 1.0, 0.25]))
    assert list(work.samples) == [512, 256, 512]
    assert work.flops[0] == 2 * work.flops[1] == work.flops[2]
    assert work.rows[2] < work.rows[0]
    assert work.embedding_bytes[0] == table_bytes(job)
    assert all(np.isfinite(column).all() for column in work)


def test_the_share_of_rows_follows_from_bytes() -> None:
    job, size = Job(), table_bytes(Job())
    assert list(scale_of(job, np.array([size, size / 4, np.nan, 0.0, 2.0 * size]))) == [1.0, 0.25, 1.0, 1.0, 1.0]


def test_all_jobs_of_the_bank_have_work() -> None:
    for bank_job in bank_jobs():
        batch = np.array([float(bank_job.job.training.batch_size)])
        work = work_of(bank_job.job, batch, np.array([bank_job.table_scale]))
        assert work.flops[0] > 0
        assert 0 < work.rows[0] <= work.ids[0]


def test_large_outer_products_are_counted() -> None:
    job = next(b.job for b in bank_jobs() if b.job.name == "xdeepfm-wide-a")
    work = work_of(job, np.array([512.0, 1024.0]), np.array([1.0, 1.0]))
    assert work.large_floats[0] == 0
    assert work.large_floats[1] == work.outer_floats[1] == 1024 * (32 * 32 + 48 * 32) * 8
