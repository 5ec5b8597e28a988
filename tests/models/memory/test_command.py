from __future__ import annotations

import numpy as np
import pytest

from sizewright.datasets.trials.trial import Trial
from sizewright.models.memory.command import CommandMemory
from sizewright.spec import Job

MIB = 1 << 20
JOB = Job.model_validate({"command": {"run": "x", "rendezvous": "hosts"}, "training": {"batch_size": 100}})


def trial(ps: int, worker_mib: float, ps_mib: float, batch: int = 100) -> Trial:
    return Trial(
        workers=2, ps=ps, throughput=1.0, batch_size=batch,
        worker_memory_bytes=int(worker_mib * MIB), ps_memory_bytes=int(ps_mib * MIB),
    )  # fmt: skip


def columns(*values: float) -> np.ndarray:
    return np.array(values, float)


def test_fit_separates_shared_from_constant_memory() -> None:
    memory = CommandMemory.fit(JOB, [trial(1, 300, 1100), trial(2, 300, 600), trial(4, 300, 350)])
    assert memory.ps_bytes(columns(8), columns(1))[0] == pytest.approx(225 * MIB, rel=0.01)
    assert memory.worker_bytes(columns(100))[0] == pytest.approx(300 * MIB, rel=0.01)


def test_no_measured_peak_lies_above_the_forecast() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        peaks = [(int(p), 500 / p + 100 * rng.random(), 200 + 50 * rng.random()) for p in rng.integers(1, 5, 6)]
        memory = CommandMemory.fit(JOB, [trial(p, w, m) for p, m, w in peaks])
        for ps, ps_mib, worker_mib in peaks:
            assert memory.ps_bytes(columns(ps), columns(2))[0] >= ps_mib * MIB - 1
            assert memory.worker_bytes(columns(100))[0] >= worker_mib * MIB - 1
            assert memory.ps_request_bytes(columns(ps), columns(2))[0] >= 1.15 * ps_mib * MIB - 2


def test_a_request_is_never_below_the_measured_sum_by_share() -> None:
    memory = CommandMemory.fit(JOB, [trial(4, 300, 500)])
    assert memory.ps_request_bytes(columns(2), columns(2))[0] >= 1000 * MIB


def test_request_without_ps_is_zero() -> None:
    memory = CommandMemory.fit(JOB, [trial(1, 300, 500).model_copy(update={"ps": 0, "ps_memory_bytes": None})])
    assert memory.ps_request_bytes(columns(0), columns(2))[0] == 0
