"""The memory of one GPU: what trials measured of it, and its share of the tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizewright.datasets.trials.trial import Trial
from sizewright.formatting import GIB, MIB
from sizewright.models.memory.device import DeviceMemory
from sizewright.models.memory.memory_model import table_bytes
from sizewright.spec import Gpu, HostKind, Job


def job(tables: dict[str, Any] | None = None, **change: Any) -> Job:
    fields: dict[str, Any] = {
        "command": {"run": "python t.py --batch {batch_size}", "rendezvous": "torchrun", "processes": "gpu"},
        "training": {"device": "cuda", "batch_size": 512},
        "bounds": {"worker": {"gpu": [1, 8]}},
    }
    if tables:
        fields["model"] = {"tables": tables}
    return Job.model_validate(fields | change)


def trial(workers: int, gpus: int, batch: int, memory: float) -> Trial:
    sizes = {"workers": workers, "ps": 0, "worker_gpu": gpus, "batch_size": batch}
    return Trial(**sizes, throughput=1.0, device_memory_bytes=int(memory))


def columns(*sizes: float) -> list[np.ndarray]:
    return [np.array([float(size)]) for size in sizes]


def predicted(memory: DeviceMemory, workers: int, gpus: int, batch: int) -> float:
    return float(memory.gpu_bytes(*columns(workers, gpus, batch))[0])


@given(
    base=st.floats(0, 1e10), per_sample=st.floats(0, 1e6), tables=st.floats(0, 1e11),
    sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 8), st.sampled_from([256, 1024, 4096])), min_size=1),
)  # fmt: skip
def test_no_peak_lies_above_the_prediction(
    base: float, per_sample: float, tables: float, sizes: list[tuple[int, int, int]]
) -> None:
    peaks = {(w, g, b): base + per_sample * b + tables / (w * g) + 1 for w, g, b in sizes}
    for each in (job(), job({"count": 2, "rows": 10_000, "dim": 16})):
        memory = DeviceMemory.fit(each, [trial(*size, peak) for size, peak in peaks.items()])
        for size, peak in peaks.items():
            assert predicted(memory, *size) >= peak * (1 - 1e-6) - 2


def test_a_line_over_the_batch_and_a_share_of_the_tables_are_found() -> None:
    sizes = [(1, 1, 256), (1, 2, 256), (1, 1, 1024), (2, 2, 512), (1, 4, 2048)]
    trials = [trial(w, g, b, GIB + MIB * b + 8 * GIB / (w * g)) for w, g, b in sizes]
    memory = DeviceMemory.fit(job(), trials)
    assert memory.trials == 5
    assert predicted(memory, 2, 8, 4096) == pytest.approx(GIB + 4096 * MIB + GIB / 2, rel=1e-3)
    assert predicted(memory, 1, 1, 4096) == pytest.approx(GIB + 4096 * MIB + 8 * GIB, rel=1e-3)


def test_described_tables_are_the_least_and_shared_by_all_gpus() -> None:
    described = job({"count": 4, "rows": 1_000_000, "dim": 64})
    memory = DeviceMemory.fit(described, [])
    assert memory.known
    assert memory.trials == 0
    assert predicted(memory, 2, 4, 512) == pytest.approx(table_bytes(described) / 8)
    measured = DeviceMemory.fit(described, [trial(1, 1, 512, table_bytes(described) + GIB)])
    assert predicted(measured, 2, 4, 512) == pytest.approx(table_bytes(described) / 8 + GIB)


@pytest.mark.parametrize(
    "change",
    [
        {"training": {"device": "cpu"}, "command": {"run": "python t.py"}},
        {"command": {"run": "python t.py", "rendezvous": "tf_config"}},
    ],
)
def test_tables_that_do_not_lie_on_gpus_are_not_counted(change: dict[str, Any]) -> None:
    assert not DeviceMemory.fit(job({"count": 4, "rows": 1_000_000, "dim": 64}, **change), []).known


def test_ranks_that_share_a_gpu_have_all_their_samples_on_it() -> None:
    command = {"run": "python t.py", "rendezvous": "torchrun", "processes": 4}
    trials = [trial(1, 1, batch, GIB + MIB * 4 * batch) for batch in (256, 512)]
    memory = DeviceMemory.fit(job(command=command), trials)
    assert predicted(memory, 1, 1, 1024) == pytest.approx(GIB + 4096 * MIB, rel=1e-3)
    assert predicted(memory, 1, 4, 1024) == pytest.approx(GIB + 1024 * MIB, rel=1e-3)


def test_workers_whose_gpus_nobody_names_have_those_of_their_host() -> None:
    described = job({"count": 4, "rows": 1_000_000, "dim": 64}, bounds={}, command={"run": "python t.py"})
    memory = DeviceMemory.fit(described, [])
    host = HostKind(
        kind="a", cpu=8, memory_bytes=GIB, gpu=Gpu(count=4), gpu_memory_bytes=table_bytes(described) // 4 + 1
    )
    assert memory.fits(host, *columns(1, 0, 512))[0]
    assert not memory.fits(host, *columns(1, 2, 512))[0]
    assert memory.fits(host.model_copy(update={"gpu_memory_bytes": None}), *columns(1, 1, 512))[0]
