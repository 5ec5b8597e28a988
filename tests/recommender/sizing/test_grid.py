from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sizewright.datasets.trials.trial import Trial
from sizewright.recommender.sizing.evaluate_grid import measured_ranges
from sizewright.recommender.sizing.grid import counts_between, finer, make_grid, sizes_between
from sizewright.spec import Bounds, RoleBounds
from tests.helpers.synthetic_trials import small_job

ONE = RoleBounds(replicas=(1, 1), cpu=(1, 1))


@given(st.integers(1, 10_000), st.integers(0, 10_000))
def test_counts_include_both_bounds_and_nothing_outside(low: int, more: int) -> None:
    counts = counts_between(low, low + more)
    assert (counts[0], counts[-1]) == (low, low + more)
    assert counts == sorted(set(counts))
    assert all(count == int(count) for count in counts)
    assert len(counts) <= 64
    assert more >= 64 or counts == list(range(low, low + more + 1))


@given(st.floats(0.01, 500), st.floats(0, 500))
def test_sizes_include_both_bounds_and_nothing_outside(low: float, more: float) -> None:
    high = low + more
    sizes = sizes_between(low, high)
    assert (sizes[0], sizes[-1]) == (low, high)
    assert sizes == sorted(set(sizes))
    assert all(b <= 1.26 * a for a, b in itertools.pairwise(sizes))


@pytest.mark.parametrize(
    ("low", "high", "sizes"),
    [
        (0.5, 1.0, [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]),
        (1, 1, [1]),
        (1.1, 4, [1.1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4]),
        (9, 20, [9, 10, 12.5, 15, 17.5, 20]),
    ],
)
def test_sizes_are_plain_numbers_in_nearly_even_ratios(low: float, high: float, sizes: list[float]) -> None:
    assert sizes_between(low, high) == pytest.approx(sizes)


def test_grid_contains_every_combination_once() -> None:
    grid = make_grid(small_job().bounds, 256)
    rows = set(map(tuple, grid.rows.tolist()))
    assert len(rows) == len(grid)
    worker_cpu, ps_cpu = sizes_between(0.5, 1.0), sizes_between(0.25, 0.5)
    assert rows == set(itertools.product((1, 2, 3, 4), (1, 2, 3), worker_cpu, ps_cpu, (256,), (0,), (-1,)))
    i = 100
    allocation = grid.allocation(i, 5.0, 7.0)
    assert (allocation.replicas("worker"), allocation.replicas("ps")) == (grid.workers[i], grid.ps[i])
    assert (allocation.worker[0].cpu, allocation.ps[0].cpu) == (grid.worker_cpu[i], grid.ps_cpu[i])
    assert (allocation.worker[0].memory_bytes, allocation.ps[0].memory_bytes) == (5, 7)


def pairs(minimum: float, maximum: float) -> st.SearchStrategy[tuple[float, float]]:
    numbers = st.floats(minimum, maximum).map(lambda number: round(number, 2))
    return st.tuples(numbers, numbers).map(lambda pair: (min(pair), max(pair)))


@given(
    workers=pairs(1, 500), ps=pairs(1, 60), worker_cpu=pairs(0.1, 128), ps_cpu=pairs(0.1, 64),
    factor=st.floats(0.5, 1), seed=st.integers(0, 99), gpus=st.sampled_from([(None,), (0, 1), (2,)]),
)  # fmt: skip
@example(
    workers=(1.0, 28.0), ps=(1.0, 16.0), worker_cpu=(1.0, 31.0), ps_cpu=(0.25, 11.0), factor=1.0, seed=0, gpus=(0, 1)
)
@settings(max_examples=60, deadline=None)
def test_grid_contains_trials_and_bounds_with_fine_steps_between(
    workers: Any, ps: Any, worker_cpu: Any, ps_cpu: Any, factor: float, seed: int, gpus: tuple[int | None, ...]
) -> None:
    counts = [tuple(int(end) for end in pair) for pair in (workers, ps)]
    bounds = Bounds(
        worker=RoleBounds(replicas=counts[0], cpu=worker_cpu), ps=RoleBounds(replicas=counts[1], cpu=ps_cpu)
    )
    rng = np.random.default_rng(seed)
    rows = [
        Trial(
            workers=int(rng.integers(*counts[0], endpoint=True)),
            ps=int(rng.integers(*counts[1], endpoint=True)),
            worker_cpu=float(rng.uniform(*worker_cpu)),
            ps_cpu=float(rng.uniform(*ps_cpu)) * (1 if i else factor),  # the first may lie outside
            worker_gpu=gpus[i % len(gpus)],
            batch_size=512,
            throughput=1.0,
        )
        for i in range(6)
    ]
    grid = make_grid(bounds, 512, trials=rows, supported_ranges=measured_ranges(rows))
    assert len(grid) <= 30_100
    grid_rows = set(map(tuple, grid.rows.tolist()))
    for t in rows:
        if ps_cpu[0] <= t.ps_cpu <= ps_cpu[1]:
            place = (t.workers, t.ps, t.worker_cpu, t.ps_cpu, 512.0, float(t.worker_gpu or 0), -1.0)
            assert tuple(np.round(place, 9)) in grid_rows
    for column, ends in zip(vars(grid).values(), [*counts, worker_cpu, ps_cpu], strict=False):
        assert column.min() == pytest.approx(ends[0])
        assert column.max() == pytest.approx(ends[1])
    assert set(grid.worker_gpu) == {float(count or 0) for count in gpus}
    cores = np.array([t.worker_cpu for t in rows])
    minimum, maximum = max(cores.min() / 2, worker_cpu[0]), min(cores.max() * 2, worker_cpu[1])
    inside = np.unique(grid.worker_cpu[(grid.worker_cpu >= minimum - 1e-9) & (grid.worker_cpu <= maximum + 1e-9)])
    assert (inside[1:] <= 3.4 * inside[:-1]).all()


def test_finer_rows_lie_between_the_neighbours_of_the_best_and_are_new() -> None:
    grid = make_grid(small_job().bounds, 256)
    start = int(np.flatnonzero((grid.rows[:, :4] == (2, 2, 0.7, 0.4)).all(axis=1))[0])
    more = finer(grid, [start])
    assert not set(map(tuple, more.rows.tolist())) & set(map(tuple, grid.rows.tolist()))
    assert set(more.worker_cpu) == {0.65, 0.7, 0.75}
    assert set(more.workers) == {2.0}
    assert not len(finer(make_grid(Bounds(worker=ONE, ps=ONE), 512), [0]))


@given(low=st.integers(1, 10**6), factor=st.floats(1, 1000))
@settings(deadline=None)
def test_batch_sizes_double_from_minimum_to_maximum(low: int, factor: float) -> None:
    one = RoleBounds(replicas=(1, 1), cpu=(1, 1))
    high = int(low * factor)
    sizes = make_grid(Bounds(worker=one, ps=one, batch_size=(low, high)), 512).batch_size.tolist()
    assert (sizes[0], sizes[-1]) == (low, high)
    assert all(b == 2 * a for a, b in itertools.pairwise(sizes[:-1]))
    assert len(sizes) == 1 or sizes[-2] < high <= 2 * sizes[-2]


@given(total=st.integers(1, 5000).map(lambda n: 4 * n), low=st.integers(1, 4), high=st.integers(4, 400))
@settings(max_examples=30, deadline=None)
def test_all_rows_share_a_global_batch_evenly(total: int, low: int, high: int) -> None:
    bounds = Bounds(worker=RoleBounds(replicas=(low, high), cpu=(0.5, 4)), ps=RoleBounds(replicas=(1, 4)))
    shared = {workers: total // workers for workers in range(low, high + 1) if total % workers == 0}
    trials = [Trial(workers=workers, ps=1, worker_cpu=1, ps_cpu=1, throughput=1) for workers in (1, 2, 3, 4)]
    grid = make_grid(bounds, total, trials=trials, shared_batch=shared)
    more = finer(grid, [0, len(grid) - 1], shared)
    for each in (grid, more):
        assert (each.workers * each.batch_size == total).all()
        assert set(each.workers) <= set(shared)
    assert {min(shared), max(shared)} <= set(grid.workers)
    assert len(shared) > 16 or set(grid.workers) == set(shared)
    assert not set(map(tuple, more.rows.tolist())) & set(map(tuple, grid.rows.tolist()))
