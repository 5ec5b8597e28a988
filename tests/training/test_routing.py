from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.training.routing import PARTITIONS, Routing, Server, partition_of


def servers(*ids: int) -> tuple[Server, ...]:
    return tuple(Server(i, ("host", i)) for i in ids)


def shares(routing: Routing) -> list[int]:
    return np.bincount(routing.owners, minlength=len(routing.servers)).tolist()


@settings(max_examples=60, deadline=None)
@given(sets=st.lists(st.lists(st.integers(0, 12), unique=True, min_size=1, max_size=9), min_size=1, max_size=8))
def test_shares_stay_even_and_little_moves(sets: list[list[int]]) -> None:
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
        least = sum(had[i] for i in had if i not in stay)
        least += sum(max(0, had[i] - PARTITIONS // len(ids) - 1) for i in stay)
        assert moved <= least + len(ids) + len(had)
        routing = after


def test_a_replacement_takes_over_exactly_what_the_old_one_held() -> None:
    routing = Routing.even(servers(1, 2, 3), 90)
    after = routing.with_servers(servers(1, 9, 3))
    np.testing.assert_array_equal(after.partitions_of(9), routing.partitions_of(2))
    np.testing.assert_array_equal(after.partitions_of(3), routing.partitions_of(3))
    assert after.dense_of(9) == routing.dense_of(2) == slice(30, 60)


@settings(max_examples=50, deadline=None)
@given(keys=st.lists(st.integers(0, 2**60), min_size=1, max_size=200), count=st.integers(1, 7))
def test_look_ups_are_grouped_by_owner(keys: list[int], count: int) -> None:
    routing = Routing.even(servers(*range(count)), 10)
    asked = np.array(keys, np.int64)
    lookup = routing.lookup(asked)
    np.testing.assert_array_equal(lookup.keys[lookup.inverse], asked)
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
