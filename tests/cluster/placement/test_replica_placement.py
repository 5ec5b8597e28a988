"""A job is placed completely or not at all, near its old servers, and within the resources of each server."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.cluster.placement.placement import Placement, Replicas, Servers


def servers(*capacity: float, kinds: list[str] | None = None) -> Servers:
    rows = np.array(capacity, float)[:, None]
    return Servers([f"s{i}" for i in range(len(rows))], kinds or [""] * len(rows), rows)


def replicas_of(count: int, *need: float) -> Replicas:
    return Replicas(count, np.array(need or (1.0,)))


def counts_on_servers(placement: Placement, job: str) -> list[dict[int, int]]:
    return [counts for _, counts in placement.groups_of(job)]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), kinds=st.integers(1, 3), mixes=st.booleans())
def test_free_and_placed_resources_add_up_after_any_changes(seed: int, kinds: int, mixes: bool) -> None:
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
            assert [sum(placed.values()) for placed in counts_on_servers(placement, job)] == [
                group.count for group in groups
            ]
            used = {names[s] for s in placement.servers_of(job)} - {""}
            assert mixes or len(used) <= 1
        else:
            assert placement.groups_of(job) == before
            assert np.allclose(placement.free, free)
        placed = np.zeros_like(capacity)
        for name in placement.jobs:
            for group, servers_ in placement.groups_of(name):
                for server, count in servers_.items():
                    placed[server] += count * group.need
        assert np.allclose(placement.free + placed, capacity)
        assert (placement.free >= -1e-6).all()


def test_job_goes_to_the_fullest_server_that_fits_all_of_it() -> None:
    placement = Placement(servers(8, 5, 4))
    assert placement.place("a", [replicas_of(4)])
    assert counts_on_servers(placement, "a") == [{2: 4}]
    assert placement.place("b", [replicas_of(5)])
    assert counts_on_servers(placement, "b") == [{1: 5}]


def test_job_too_large_for_one_server_uses_few_servers() -> None:
    placement = Placement(servers(3, 6, 2))
    assert placement.place("a", [replicas_of(8)])
    assert counts_on_servers(placement, "a") == [{1: 6, 2: 2}]


def test_large_replicas_are_placed_before_small_ones() -> None:
    placement = Placement(servers(4, 3))
    assert placement.place("a", [replicas_of(3), replicas_of(1, 4.0)])
    assert counts_on_servers(placement, "a") == [{1: 3}, {0: 1}]


def test_resized_job_stays_on_its_server() -> None:
    placement = Placement(servers(4, 2, 4))
    placement.place("a", [replicas_of(2)])
    assert counts_on_servers(placement, "a") == [{1: 2}]
    assert placement.place("a", [replicas_of(4)])
    assert counts_on_servers(placement, "a")[0][1] == 2
    assert placement.place("a", [replicas_of(1)])
    assert counts_on_servers(placement, "a") == [{1: 1}]


def test_gpu_kinds_mix_only_if_allowed_and_cpu_servers_serve_all() -> None:
    kinds = ["a100", "v100", ""]
    rows = np.array([[4.0, 8.0], [4.0, 8.0], [0.0, 8.0]])
    named = Servers(["x", "y", "z"], kinds, rows)
    workers, ps = Replicas(6, np.array([1.0, 1.0])), Replicas(2, np.array([0.0, 4.0]))
    assert not Placement(named).place("a", [workers])
    assert Placement(named, mixes=True).place("a", [workers])
    placement = Placement(named)
    assert placement.place("a", [Replicas(4, np.array([1.0, 1.0])), ps])
    assert counts_on_servers(placement, "a")[1] == {2: 2}


def test_closed_servers_take_nothing() -> None:
    placement = Placement(servers(4, 4))
    placement.open[0] = False
    assert placement.place("a", [replicas_of(4)])
    assert not placement.place("b", [replicas_of(1)])


def test_preferred_servers_come_first() -> None:
    placement = Placement(servers(4, 2))
    assert placement.place("a", [replicas_of(1)], lambda _: np.array([True, False]))
    assert counts_on_servers(placement, "a") == [{0: 1}]


@pytest.mark.parametrize("count", [0, 3])
def test_empty_group_is_always_placed(count: int) -> None:
    placement = Placement(servers(4))
    assert placement.place("a", [replicas_of(count), replicas_of(0)])
    assert counts_on_servers(placement, "a")[1] == {}
