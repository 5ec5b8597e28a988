"""Assignments have a small largest load, keep to the memory, and their bounds are true."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizewright.recommender.table_placement.assignment import assign, lower_bound

LOADS = st.lists(st.integers(1, 60), min_size=1, max_size=7)


def best_peak(loads: list[int], sizes: list[int], servers: int, capacity: float) -> float:
    """Return the smallest largest load, by trying all assignments; infinite if none fits."""
    best = np.inf
    for server in itertools.product(range(servers), repeat=len(loads)):
        if np.bincount(server, sizes, servers).max() <= capacity:
            best = min(best, np.bincount(server, loads, servers).max())
    return float(best)


@given(LOADS, st.integers(1, 4))
def test_small_problems_are_solved_to_the_optimum(loads: list[int], servers: int) -> None:
    found = assign(np.array(loads, float), np.zeros(len(loads)), servers, np.inf)
    assert found is not None
    peak = np.bincount(found.server, loads, servers).max()
    assert peak == pytest.approx(best_peak(loads, [0] * len(loads), servers, np.inf), rel=0.003)


@given(LOADS, st.integers(1, 4), st.integers(10, 80))
def test_memory_is_kept_and_bounds_are_true(loads: list[int], servers: int, capacity: int) -> None:
    sizes = [1 + (7 * load) % 30 for load in loads]
    best = best_peak(loads, sizes, servers, capacity)
    found = assign(np.array(loads, float), np.array(sizes, float), servers, float(capacity))
    assert (found is None) == np.isinf(best), "HiGHS settles small problems"
    if found is None:
        return
    assert np.bincount(found.server, sizes, servers).max() <= capacity
    assert np.bincount(found.server, loads, servers).max() >= best
    assert found.bound <= best * (1 + 1e-6)


@given(LOADS, st.integers(1, 4))
def test_lower_bound_is_below_the_optimum(loads: list[int], servers: int) -> None:
    assert lower_bound(np.array(loads, float), servers) <= best_peak(loads, [0] * len(loads), servers, np.inf) + 1e-9


def test_known_bound_of_parts_that_share_a_server() -> None:
    """Of five equal parts, one of two servers has three."""
    assert lower_bound(np.ones(5), 2) == 3


def test_lpt_example_of_graham_is_improved() -> None:
    """The longest parts first give 11 for 5, 5, 4, 4, 3, 3, 3 on three servers; 9 is possible."""
    found = assign(np.array([5, 5, 4, 4, 3, 3, 3.0]), np.zeros(7), 3, np.inf)
    assert found is not None
    assert np.bincount(found.server, [5, 5, 4, 4, 3, 3, 3], 3).max() == 9


def test_parts_that_do_not_fit_have_no_assignment() -> None:
    assert assign(np.ones(3), np.array([6.0, 6.0, 6.0]), 2, 10.0) is None


def test_result_is_repeatable() -> None:
    loads = np.random.default_rng(3).uniform(1, 10, 60)
    first, second = (assign(loads, loads, 7, 80.0, seconds=0.0) for _ in range(2))
    assert first is not None
    assert second is not None
    assert np.array_equal(first.server, second.server)


@pytest.mark.parametrize(
    ("sizes", "servers", "capacity"),
    [
        ([3, 3, 2, 2, 2], 2, 6),  # the largest first do not fit, on the server with the most room
        ([60, 5, 20, 15, 9, 16, 53, 22, 5, 76, 5, 14], 3, 100),  # no order of packing fits; HiGHS finds it
    ],
)
def test_tight_memory_that_fits_in_one_way_is_used(sizes: list[int], servers: int, capacity: float) -> None:
    found = assign(np.ones(len(sizes)), np.array(sizes, float), servers, capacity)
    assert found is not None
    assert np.bincount(found.server, sizes, servers).max() <= capacity


@given(st.integers(2, 4), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_parts_that_were_cut_from_full_servers_are_placed(servers: int, parts: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cuts = [np.sort(rng.choice(np.arange(1, 100), parts - 1, replace=False)) for _ in range(servers)]
    sizes = np.concatenate([np.diff(np.r_[0, each, 100]) for each in cuts]).astype(float)
    found = assign(rng.uniform(1, 9, sizes.size), rng.permutation(sizes), servers, 100.0)
    assert found is not None, sizes
