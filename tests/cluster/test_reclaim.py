"""Reclaim policies are compared with the smallest possible number of preemptions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.cluster.reclaim import RECLAIMS, Base, exact, least_cost, preempted, smallest_count


def drawn(seed: int, servers: int = 9, jobs: int = 12) -> Base:
    rng = np.random.default_rng(seed)
    return {f"job-{j}": frozenset(rng.choice(servers, rng.integers(1, 4), replace=False).tolist()) for j in range(jobs)}


def lost(name: str, seed: int, count: int) -> int:
    base, rng = drawn(seed), np.random.default_rng(seed)
    return len(preempted(base, RECLAIMS[name](range(9), base, count, rng)))


@pytest.mark.parametrize("name", sorted(RECLAIMS))
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(0, 12))
def test_requested_number_of_distinct_servers_is_reclaimed(name: str, seed: int, count: int) -> None:
    gone = RECLAIMS[name](range(9), drawn(seed), count, np.random.default_rng(seed))
    assert len(gone) == len(set(gone)) == min(count, 9)
    assert set(gone) <= set(range(9))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 5))
def test_exact_reclaim_preempts_the_fewest_jobs(seed: int, count: int) -> None:
    base = drawn(seed, servers=7, jobs=6)
    gone = exact(range(7), base, count, np.random.default_rng(0))
    fewest = min(len(preempted(base, some)) for some in itertools.combinations(range(7), count))
    assert len(preempted(base, gone)) == fewest


def test_least_cost_reclaim_is_close_to_the_fewest_preemptions() -> None:
    sums = {name: sum(lost(name, seed, 4) for seed in range(60)) for name in RECLAIMS}
    assert sums["exact"] <= sums["least-cost"] <= sums["smallest-count"] < sums["random"]
    assert sums["least-cost"] <= 1.1 * sums["exact"]


def test_servers_of_flexible_replicas_are_reclaimed_first() -> None:
    base = {"a": frozenset({0}), "b": frozenset({1, 2})}
    assert set(least_cost(range(5), base, 2, np.random.default_rng(0))) == {3, 4}


def test_least_cost_counts_a_job_once_and_updates_costs() -> None:
    base = {"wide": frozenset({0, 1, 2}), "one": frozenset({3}), "two": frozenset({4})}
    gone = least_cost(range(5), base, 3, np.random.default_rng(0))
    assert preempted(base, gone) == ["wide"]
    assert set(gone) == {0, 1, 2}


def test_smallest_count_reclaims_by_number_of_jobs() -> None:
    base = {"a": frozenset({0, 1}), "b": frozenset({0, 2}), "c": frozenset({3})}
    assert smallest_count(range(4), base, 1, np.random.default_rng(0)) == [1]
