from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from sizewright.errors import InputError
from sizewright.models.memory.embedding import EmbeddingMemory, exceeding, forecast, peak_rows
from sizewright.models.memory.memory_model import row_bytes
from sizewright.models.memory.row_growth import RowGrowth
from sizewright.spec import Job, Model, Optimizer, Tables
from tests.models.memory.test_row_growth import growth, stream


def job(count: int = 2, dim: int = 16) -> Job:
    return Job(model=Model(tables=Tables(count=count, rows=1000, dim=dim), optimizer=Optimizer(name="adagrad")))


def tables(count: int = 2) -> list[RowGrowth]:
    return [RowGrowth(seed=s).fit(*growth(stream(20_000, 1.05, s, 100_000), 0.2)) for s in range(count)]


def test_bytes_at_the_end_are_those_of_the_rows_at_the_end() -> None:
    memory = forecast(job(), tables(), 100_000, 1, reserved_rows=1e5)
    rows = sum(len(np.unique(stream(20_000, 1.05, s, 100_000))) for s in range(2))
    assert memory.value == pytest.approx(rows * row_bytes(job())[0] + 4 * 2**18 + 9 * rows, rel=0.1)
    low, high = memory.interval(0.9)
    assert low < memory.value < high


def test_more_ps_hold_less_each_and_growing_holds_more() -> None:
    grown = tables()
    one, four = (forecast(job(), grown, 100_000, ps).value for ps in (1, 4))
    assert one / 4 < four < one / 3
    assert forecast(job(), grown, 100_000, 1, reserved_rows=3e4).value < one
    assert forecast(job(), grown, 100_000, 1, base_bytes=1e9).value == pytest.approx(one + 1e9)


def test_the_probability_of_breaking_a_limit_falls_with_the_limit() -> None:
    memory = forecast(job(), tables(), 100_000, 1)
    limits = memory.value * np.array([0.5, 0.9, 1.0, 1.1, 2.0])
    probabilities = [memory.oom_probability(limit) for limit in limits]
    assert probabilities == sorted(probabilities, reverse=True)
    assert probabilities[0] > 0.99
    assert 0.3 < probabilities[2] < 0.7
    assert probabilities[-1] < 0.01


def test_the_probability_is_right_for_a_known_distribution() -> None:
    rng = np.random.default_rng(0)
    memory = EmbeddingMemory(rng.lognormal(np.log(1e9), 0.1, 20_000))
    assert memory.oom_probability(1e9 * np.exp(0.1)) == pytest.approx(0.1587, abs=0.01)
    assert exceeding(np.full(5, 1e9), 2e9) < 1e-9


def test_tables_of_another_job_are_refused() -> None:
    with pytest.raises(InputError, match="has 2 tables, got the growth of 1"):
        forecast(job(), tables(1), 1e6, 1)


def test_growing_beyond_the_arrays_peaks_as_counted() -> None:
    """The engine's arrays, copied once into twice as many rows: weights and state one after the other."""
    code = """
import numpy as np
from sizewright.training.ps.optimizers import RULES
from sizewright.training.ps.row_arrays import HostRows
def peak():
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]) * 1024
rows, width = 400_000, 64
base = peak()
arrays = HostRows(width, RULES["adagrad"](0.1), rows)
slots = np.arange(rows)
for part in np.array_split(slots, 100):
    arrays.put(part, np.ones((len(part), width), np.float32), np.ones((len(part), width), np.float32))
full = peak() - base
arrays.grow(2 * rows)
print(full, peak() - base)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    full, peak = map(int, done.stdout.split())
    assert full == pytest.approx(400_000 * 64 * 8, rel=0.1)
    assert peak == pytest.approx(peak_rows(np.array([400_001.0]), 400_000.0, 0.5)[0] * 64 * 8, rel=0.1)


def test_invalid_limits_and_servers_are_refused() -> None:
    memory = forecast(job(), tables(), 1e6, 1)
    for limit in (0, -1, float("nan")):
        with pytest.raises(InputError, match="limit_bytes must be above 0"):
            memory.oom_probability(limit)
    with pytest.raises(InputError, match="ps must be 1 or more, got 0"):
        forecast(job(), tables(), 1e6, 0)
    with pytest.raises(InputError, match="must lie between 0 and 1"):
        memory.interval(90)
