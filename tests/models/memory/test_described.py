"""Tables that are described beside a command: their bytes, and who holds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizewright.datasets.trials.trial import Trial
from sizewright.errors import JobError
from sizewright.formatting import GIB, MIB
from sizewright.models.memory.described import DescribedMemory
from sizewright.models.memory.memory_model import MARGIN, table_bytes
from sizewright.models.memory.report import report
from sizewright.spec import Cluster, Gpu, HostKind, Job

TABLES = {"count": 3, "rows": [4_000_000, 1_000_000, 1000], "dim": 64, "optimizer": "rowwise_adagrad"}


def command(tables: dict[str, Any] = TABLES, **change: Any) -> Job:
    bounds = {"worker": {"replicas": [1, 8], "memory": [0, "64Gi"]}}
    description = {"command": {"run": "python train.py"}, "model": {"tables": tables}, "bounds": bounds}
    return Job.model_validate(description | change)


def with_ps(tables: dict[str, Any] = TABLES) -> Job:
    return command(tables, command={"run": "python train.py", "rendezvous": "tf_config"}, bounds={})


@given(st.integers(1, 10**7), st.integers(1, 200), st.sampled_from(["float32", "float16", "int8"]), st.integers(1, 64))
def test_replicas_hold_all_rows_together(rows: int, dim: int, dtype: str, replicas: int) -> None:
    tables = {"count": 2, "rows": rows, "dim": dim, "dtype": dtype}
    count, batch = np.array([float(replicas)]), np.array([512.0])
    workers = DescribedMemory(command(tables), worker_base_bytes=0.0)
    alone = workers.worker_bytes(batch, count) - DescribedMemory(with_ps(tables), worker_base_bytes=0.0).worker_bytes(
        batch, count
    )
    assert replicas * alone[0] == pytest.approx(table_bytes(command(tables)), abs=replicas)
    assert replicas * workers.worker_table_bytes(count)[0] == pytest.approx(table_bytes(command(tables)))
    ps = DescribedMemory(with_ps(tables), ps_base_bytes=0.0)
    assert replicas * ps.ps_bytes(count)[0] == pytest.approx(ps.ps_bytes(np.ones(1))[0])
    assert ps.ps_bytes(np.ones(1))[0] >= table_bytes(with_ps(tables))


def test_workers_without_ps_share_the_tables() -> None:
    answer = report(command(), [])
    assert answer.servers == ()
    assert answer.index_bytes == 0
    assert [option.workers for option in answer.workers] == list(range(1, 9))
    assert answer.workers[0].table_bytes == answer.embedding_bytes == 5_001_000 * (256 + 4)
    assert answer.least_workers == 1
    assert answer.fits
    needs = [option.memory_bytes for option in answer.workers]
    assert needs == sorted(needs, reverse=True)
    assert needs[3] >= (1 + MARGIN) * answer.embedding_bytes / 4


def test_ps_hold_the_tables_where_there_are_some() -> None:
    answer = report(with_ps(), [])
    assert answer.workers == ()
    assert answer.servers[0].memory_bytes > (1 + MARGIN) * answer.embedding_bytes
    assert answer.least_ps == 1
    assert answer.worker_memory_bytes < answer.embedding_bytes


def test_peaks_that_exceed_the_description_are_added_to_it() -> None:
    trials = [Trial(workers=2, ps=0, throughput=1.0, batch_size=512, worker_memory_bytes=30 * GIB)]
    answer = report(command(), trials)
    assert answer.workers[1].memory_bytes == pytest.approx((1 + MARGIN) * 30 * GIB, abs=64 * MIB)
    assert answer.rests_on == "1 trial with measured peaks"


def test_tables_on_gpus_are_compared_with_their_memory() -> None:
    job = command(training={"device": "cuda"})
    on_host, on_gpus = report(command(), []).workers[0], report(job, []).workers[0]
    assert on_gpus.memory_bytes + on_gpus.table_bytes <= on_host.memory_bytes
    host = HostKind(
        kind="a", count=8, cpu=8, memory_bytes=64 * GIB, gpu=Gpu(count=1), gpu_memory_bytes=on_gpus.table_bytes // 2 - 1
    )
    answer = report(job, [], Cluster(hosts=(host,)))
    assert answer.least_workers == 3, "a GPU has a byte less than half of the tables"
    assert answer.workers[0].reason == "more than the GPUs of a worker hold"
    assert report(command(), [], Cluster(hosts=(host,))).least_workers == 1


@pytest.mark.parametrize(
    ("kind", "gpus", "fits_from"),
    [(None, None, 1), ("a100", 8, 1), ("a100", 2, 2), ("a100", 1, 4), ("h100", 8, None), ("a100", 16, None)],
)
def test_a_worker_has_the_memory_of_its_own_gpus(kind: str | None, gpus: int | None, fits_from: int | None) -> None:
    worker: dict[str, Any] = {"replicas": [1, 4], "memory": [0, "64Gi"]}
    if kind:
        worker["gpu"] = {"kind": kind, "count": gpus}
    job = command(training={"device": "cuda"}, bounds={"worker": worker})
    of_a_gpu = 5_001_000 * (256 + 4) // 4 + 1
    sizes = {"count": 8, "cpu": 8, "memory_bytes": 64 * GIB}
    hosts = (
        HostKind(kind="a", gpu=Gpu(kind="a100", count=8), gpu_memory_bytes=of_a_gpu, **sizes),
        HostKind(kind="t", gpu=Gpu(kind="t4", count=16), gpu_memory_bytes=MIB, **sizes),
    )
    answer = report(job, [], Cluster(hosts=hosts))
    assert answer.least_workers == fits_from
    if fits_from is None:
        assert {option.reason for option in answer.workers} == {"no host has the GPUs of a worker"}


def test_peaks_of_gpus_are_added_to_the_tables_on_them() -> None:
    job = command(training={"device": "cuda"}, bounds={"worker": {"replicas": [1, 2], "gpu": 1}})
    tables = table_bytes(job)
    host = HostKind(
        kind="a", count=2, cpu=8, memory_bytes=64 * GIB, gpu=Gpu(count=1), gpu_memory_bytes=tables + 2 * GIB
    )
    trials = [
        Trial(workers=1, ps=0, throughput=1.0, worker_gpu=1, batch_size=512, device_memory_bytes=tables + extra * MIB)
        for extra in (1000, 2300)
    ]
    assert report(job, trials[:1], Cluster(hosts=(host,))).least_workers == 1
    assert report(job, trials, Cluster(hosts=(host,))).least_workers == 2
    assert "What a GPU needs beyond its tables is as 2 trials measured it." in report(job, trials).assumptions


def test_tables_that_fit_on_no_number_of_workers() -> None:
    bounds = {"worker": {"replicas": [1, 2], "memory": [0, "512Mi"]}}
    answer = report(command(bounds=bounds), [])
    assert not answer.fits
    assert {option.reason for option in answer.workers} == {"more than bounds.worker.memory"}


def test_data_types_of_rows_are_told() -> None:
    assert (
        "Rows are float16, their optimizer state is float32"
        in report(command(TABLES | {"dtype": "float16"}), []).assumptions[1]
    )
    mixed = report(command(TABLES | {"dtype": ["float32", "int8", "float32"]}), []).assumptions[1]
    assert mixed.startswith("Rows are float32 or int8, a row of int8 has a scale and an offset of 4 bytes each, their")
    assert report(command(), []).assumptions[1].startswith("Rows and their optimizer state are float32")


def test_mean_ids_of_a_description_may_be_decimals() -> None:
    assert report(command(TABLES | {"pooling": [2.5, 1, 0.5]}), []).tables[0].pooling == 2.5
    built_in = Job.model_validate({"model": {"tables": TABLES | {"pooling": 2.5}}})
    assert report(built_in, []).tables[0].pooling == 2.5
    with pytest.raises(
        JobError, match=r"model.tables.pooling 2.5, but the built-in engine only trains .* whole numbers"
    ):
        built_in.check_trainable()
    whole = Job.model_validate({"model": {"tables": {"count": 3, "rows": 10, "pooling": "2.0"}}})
    assert whole.hash == Job.model_validate({"model": {"tables": {"count": 3, "rows": 10, "pooling": 2}}}).hash
    whole.check_trainable()
