"""Replicas on servers: all or nothing, near to where they were, and never more than a server has."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.cluster.placement.placement import Placement, Replicas, Servers


def servers(*capacity: float, kinds: list[str] | None = None) -> Servers:
    rows = np.array(capacity, float)[:, None]
    return Servers([f"s{i}" for i in range(len(rows))], kinds or [""] * len(rows), rows)


def some(count: int, *need: float) -> Replicas:
    return Replicas(count, np.array(need or (1.0,)))


def where(placement: Placement, job: str) -> list[dict[int, int]]:
    return [held for _, held in placement.groups_of(job)]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), kinds=st.integers(1, 3), mixes=st.booleans())
def test_nothing_is_made_or_lost_whatever_comes_and_goes(seed: int, kinds: int, mixes: bool) -> None:
    rng = np.random.default_rng(seed)
    capacity = rng.integers(1, 9, (6, 2)).astype(float)
    names = [["", "a", "b"][i % kinds] for i in range(6)]
    placement = Placement(Servers([f"s{i}" for i in range(6)], names, capacity), mixes=mixes)
    for _ in range(40):
        job = str(rng.integers(8))
        if rng.random() < 0.3:
            placement.remove(job)
            continue
        groups = [Replicas(int(rng.integers(0, 5)), rng.choice([0.5, 1, 2], 2)) for _ in range(rng.integers(1, 3))]
        before, free = placement.groups_of(job), placement.free.copy()
        if placement.place(job, groups):
            assert [sum(held.values()) for held in where(placement, job)] == [group.count for group in groups]
            used = {names[s] for s in placement.servers_of(job)} - {""}
            assert mixes or len(used) <= 1
        else:
            assert placement.groups_of(job) == before
            assert np.allclose(placement.free, free)
        held = np.zeros_like(capacity)
        for name in placement.jobs:
            for group, servers_ in placement.groups_of(name):
                for server, count in servers_.items():
                    held[server] += count * group.need
        assert np.allclose(placement.free + held, capacity)
        assert (placement.free >= -1e-6).all()


def test_a_job_goes_whole_to_the_fullest_server_that_takes_it() -> None:
    placement = Placement(servers(8, 5, 4))
    assert placement.place("a", [some(4)])
    assert where(placement, "a") == [{2: 4}]
    assert placement.place("b", [some(5)])
    assert where(placement, "b") == [{1: 5}]


def test_one_that_fits_nowhere_whole_is_on_few_servers() -> None:
    placement = Placement(servers(3, 6, 2))
    assert placement.place("a", [some(8)])
    assert where(placement, "a") == [{1: 6, 2: 2}]


def test_large_replicas_are_placed_before_small_ones() -> None:
    placement = Placement(servers(4, 3))
    assert placement.place("a", [some(3), some(1, 4.0)])
    assert where(placement, "a") == [{1: 3}, {0: 1}]


def test_a_job_that_grows_or_shrinks_stays_where_it_is() -> None:
    placement = Placement(servers(4, 2, 4))
    placement.place("a", [some(2)])
    assert where(placement, "a") == [{1: 2}]
    assert placement.place("a", [some(4)])
    assert where(placement, "a")[0][1] == 2
    assert placement.place("a", [some(1)])
    assert where(placement, "a") == [{1: 1}]


def test_kinds_are_not_mixed_unless_they_may_be_and_servers_without_gpus_are_for_all() -> None:
    kinds = ["a100", "v100", ""]
    rows = np.array([[4.0, 8.0], [4.0, 8.0], [0.0, 8.0]])
    named = Servers(["x", "y", "z"], kinds, rows)
    workers, ps = Replicas(6, np.array([1.0, 1.0])), Replicas(2, np.array([0.0, 4.0]))
    assert not Placement(named).place("a", [workers])
    assert Placement(named, mixes=True).place("a", [workers])
    placement = Placement(named)
    assert placement.place("a", [Replicas(4, np.array([1.0, 1.0])), ps])
    assert where(placement, "a")[1] == {2: 2}


def test_closed_servers_take_nothing() -> None:
    placement = Placement(servers(4, 4))
    placement.open[0] = False
    assert placement.place("a", [some(4)])
    assert not placement.place("b", [some(1)])


def test_preferred_servers_come_first() -> None:
    placement = Placement(servers(4, 2))
    assert placement.place("a", [some(1)], lambda _: np.array([True, False]))
    assert where(placement, "a") == [{0: 1}]


@pytest.mark.parametrize("count", [0, 3])
def test_a_group_of_none_is_placed_anywhere(count: int) -> None:
    placement = Placement(servers(4))
    assert placement.place("a", [some(count), some(0)])
    assert where(placement, "a")[1] == {}
