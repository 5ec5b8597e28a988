from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_trials import PS_CPU, WORKER_CPU, small_job

from sizewright.recommender.grid import counts_between, make_grid, sizes_between
from sizewright.spec import Bounds, RoleBounds


@given(st.integers(1, 10_000), st.integers(0, 10_000))
def test_counts_hold_both_ends_and_nothing_outside(low: int, more: int) -> None:
    counts = counts_between(low, low + more)
    assert (counts[0], counts[-1]) == (low, low + more)
    assert counts == sorted(set(counts))
    assert all(count == int(count) for count in counts)
    assert len(counts) <= 64
    assert more >= 64 or counts == list(range(low, low + more + 1))


@given(st.floats(0.01, 500), st.floats(0, 500))
def test_sizes_hold_both_ends_and_nothing_outside(low: float, more: float) -> None:
    high = low + more
    sizes = sizes_between(low, high)
    assert (sizes[0], sizes[-1]) == (low, high)
    assert sizes == sorted(set(sizes))
    assert len(sizes) <= 18


@pytest.mark.parametrize(
    ("low", "high", "sizes"),
    [
        (0.5, 1.0, WORKER_CPU),
        (0.25, 0.5, PS_CPU),
        (1, 1, [1]),
        (1, 16, list(range(1, 17))),
        (0.2, 2, [0.2, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2]),
    ],
)
def test_sizes_go_in_even_steps(low: float, high: float, sizes: list[float]) -> None:
    assert sizes_between(low, high) == pytest.approx(sizes)


def test_the_grid_is_every_combination_once() -> None:
    grid = make_grid(small_job().bounds, 256)
    rows = set(zip(*(column.tolist() for column in vars(grid).values()), strict=True))
    assert len(rows) == len(grid)
    assert rows == set(itertools.product((1, 2, 3, 4), (1, 2, 3), WORKER_CPU, PS_CPU, (256,)))
    i = 100
    allocation = grid.allocation(i, 5.0, 7.0)
    assert (allocation.replicas("worker"), allocation.replicas("ps")) == (grid.workers[i], grid.ps[i])
    assert (allocation.worker[0].cpu, allocation.ps[0].cpu) == (grid.worker_cpu[i], grid.ps_cpu[i])
    assert (allocation.worker[0].memory_bytes, allocation.ps[0].memory_bytes) == (5, 7)


@given(low=st.integers(1, 10**6), factor=st.floats(1, 1000))
@settings(deadline=None)
def test_batch_sizes_double_from_the_least_to_the_greatest(low: int, factor: float) -> None:
    one = RoleBounds(replicas=(1, 1), cpu=(1, 1))
    high = int(low * factor)
    sizes = make_grid(Bounds(worker=one, ps=one, batch_size=(low, high)), 512).batch_size.tolist()
    assert (sizes[0], sizes[-1]) == (low, high)
    assert all(b == 2 * a for a, b in itertools.pairwise(sizes[:-1]))
    assert len(sizes) == 1 or sizes[-2] < high <= 2 * sizes[-2]
