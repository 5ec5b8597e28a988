from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.training.ps.routing import PARTITIONS, Loads, Routing, Server, likely_loads, partition_of


def servers(*ids: int) -> tuple[Server, ...]:
    return tuple(Server(i, ("host", i)) for i in ids)


def shares(routing: Routing) -> list[int]:
    return np.bincount(routing.owners, minlength=len(routing.servers)).tolist()


@settings(max_examples=60, deadline=None)
@given(sets=st.lists(st.lists(st.integers(0, 12), unique=True, min_size=1, max_size=9), min_size=1, max_size=8))
def test_shares_stay_even_with_minimal_moves(sets: list[list[int]]) -> None:
    routing = Routing.even(servers(*sets[0]), 1000)
    for ids in sets[1:]:
        before = {p: routing.servers[o].id for p, o in enumerate(routing.owners)}
        had = dict(zip((s.id for s in routing.servers), shares(routing), strict=True))
        after = routing.with_servers(servers(*ids))
        assert after.version == routing.version + 1
        assert sum(shares(after)) == PARTITIONS
        assert max(shares(after)) - min(shares(after)) <= 1
        assert after.edges[0] == 0
        assert after.edges[-1] == 1000
        stay = set(ids) & set(had)
        moved = sum(before[p] != after.servers[o].id for p, o in enumerate(after.owners))
        necessary = sum(had[i] for i in had if i not in stay)
        necessary += sum(max(0, had[i] - PARTITIONS // len(ids) - 1) for i in stay)
        assert moved <= necessary + len(ids) + len(had)
        routing = after


def test_replacement_takes_over_exactly_the_old_servers_partitions() -> None:
    routing = Routing.even(servers(1, 2, 3), 90)
    after = routing.with_servers(servers(1, 9, 3))
    np.testing.assert_array_equal(after.partitions_of(9), routing.partitions_of(2))
    np.testing.assert_array_equal(after.partitions_of(3), routing.partitions_of(3))
    assert after.dense_of(9) == routing.dense_of(2) == slice(30, 60)


@settings(max_examples=50, deadline=None)
@given(keys=st.lists(st.integers(0, 2**60), min_size=1, max_size=200), count=st.integers(1, 7))
def test_look_ups_are_grouped_by_owner(keys: list[int], count: int) -> None:
    routing = Routing.even(servers(*range(count)), 10)
    requested = np.array(keys, np.int64)
    lookup = routing.lookup(requested)
    np.testing.assert_array_equal(lookup.keys[lookup.inverse], requested)
    assert len(set(lookup.keys.tolist())) == len(lookup.keys) == sum(lookup.counts)
    owners = routing.owners[partition_of(lookup.keys)]
    np.testing.assert_array_equal(owners, np.repeat(np.arange(count), lookup.counts))
    order, counts = routing.split(lookup.keys)
    assert counts == lookup.counts
    np.testing.assert_array_equal(order, np.arange(len(order)))


def test_keys_spread_evenly() -> None:
    keys = np.concatenate([np.arange(50_000, dtype=np.int64) + (table << 40) for table in range(4)])
    counts = Routing.even(servers(0, 1, 2), 1).lookup(keys).counts
    assert max(counts) / min(counts) < 1.05


def loads_of(kind: str, seed: int) -> Loads:
    rng = np.random.default_rng(seed)
    if kind == "few":  # of most partitions none is looked up
        return np.where(rng.random(PARTITIONS) < 0.02, rng.integers(1, 1000, PARTITIONS), 0)
    return {
        "alike": rng.poisson(60, PARTITIONS),
        "heavy": (100 * rng.pareto(1.2, PARTITIONS)).astype(np.int64),
        "half": np.where(np.arange(PARTITIONS) < PARTITIONS // 3, 90, 30),
        "one": np.where(np.arange(PARTITIONS) == seed % PARTITIONS, 100_000, 10),
        "none": np.zeros(PARTITIONS, np.int64),
    }[kind]


KINDS = ["few", "alike", "heavy", "half", "one", "none"]
IDS = st.lists(st.integers(0, 9), unique=True, min_size=1, max_size=7)


@settings(max_examples=80, deadline=None)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 2**16), before=IDS, after=IDS)
def test_shares_are_even_by_loads(kind: str, seed: int, before: list[int], after: list[int]) -> None:
    loads = loads_of(kind, seed)
    routing = Routing.even(servers(*before), 100).with_servers(servers(*after), loads)
    assert routing.owners.shape == (PARTITIONS,)
    assert set(routing.owners.tolist()) == set(range(len(after)))
    mean = max(loads.sum() / len(after), 1)
    assert np.bincount(routing.owners, loads).max() <= mean + max(loads.max(), 0.04 * mean)
    again = routing.with_servers(servers(*after), loads)
    np.testing.assert_array_equal(again.owners, routing.owners)


def test_few_partitions_move_and_only_from_the_most_loaded() -> None:
    routing = Routing.even(servers(1, 2, 3), 90)
    loads = np.where(np.arange(PARTITIONS) % 50 == 0, 1000, 10)
    loads[routing.partitions_of(1)[::10]] = 1000
    after = routing.with_servers(servers(1, 2, 3), loads)
    moved = np.flatnonzero(after.owners != routing.owners)
    assert 0 < len(moved) < 50
    np.testing.assert_array_equal(routing.owners[moved], 0)
    assert after.edges == routing.edges


def test_equal_loads_give_the_default_routing() -> None:
    routing = Routing.even(servers(1, 2, 3), 90)
    for ids in ((1, 2, 3), (1, 2), (1, 4, 3), (1, 2, 3, 5, 6)):
        equal = routing.with_servers(servers(*ids), np.full(PARTITIONS, 7))
        np.testing.assert_array_equal(equal.owners, routing.with_servers(servers(*ids)).owners)


def test_new_servers_get_their_share_of_partitions() -> None:
    """However few of them are hot: each holds rows."""
    routing = Routing.even(servers(1, 2), 90)
    loads = np.where(np.arange(PARTITIONS) < 300, 500, 10)
    after = routing.with_servers(servers(1, 2), loads).with_servers(servers(1, 2, 3, 4), loads)
    assert min(shares(after)[2:]) > 0.6 * PARTITIONS / 4


def test_load_estimates_shrink_to_the_server_for_small_counts() -> None:
    owners, rng = Routing.even(servers(1, 2), 1).owners, np.random.default_rng(1)
    true = np.where(owners == 0, 2.0, 1.0)
    few = likely_loads(rng.poisson(true), owners)
    np.testing.assert_allclose(few, true, rtol=0.35)
    true[::7] *= 1000
    np.testing.assert_allclose(likely_loads(rng.poisson(50 * true), owners)[::7], 50 * true[::7], rtol=0.02)
    assert not likely_loads(np.zeros(PARTITIONS, np.int64), owners).any()
