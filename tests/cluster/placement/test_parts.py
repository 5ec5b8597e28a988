"""A large cluster is divided into parts; many jobs are placed at once by the rule by which one is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.cluster.placement.parts import number_of_parts, waves
from sizewright.cluster.placement.placement import Placement, Replicas, Servers

NO_PART = np.zeros(1, dtype=np.intp)


def random_servers(rng: np.random.Generator, count: int) -> Servers:
    kinds = [["", "a", "b"][i] for i in rng.integers(0, 3, count)]
    capacity = rng.integers(1, 9, (count, 3)).astype(float)
    capacity[:, 0] *= [kind == "a" for kind in kinds]
    return Servers([f"s{i}" for i in range(count)], kinds, capacity)


def random_groups(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return counts (1, G) and needs (1, G, R)."""
    need = rng.choice([0.5, 1.0, 2.0], (1, 2, 3))
    need[0, :, 0] *= rng.random(2) < 0.3
    return rng.integers(0, 6, (1, 2)), need


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), mixes=st.booleans())
def test_many_jobs_at_once_follow_the_rule_of_one(seed: int, mixes: bool) -> None:
    """One job at a time, the fast form for many jobs does exactly what the plain form does."""
    rng = np.random.default_rng(seed)
    servers = random_servers(rng, 7)
    plain, fast = Placement(servers, mixes=mixes), Placement(servers, mixes=mixes)
    for _ in range(25):
        job = str(rng.integers(6))
        count, need = random_groups(rng)
        groups = [Replicas(int(c), row) for c, row in zip(count[0], need[0], strict=True)]
        fits = plain.place(job, groups)
        assert fast.place_each([job], count, need, NO_PART, 1).tolist() == [fits]
        assert [where for _, where in fast.groups_of(job)] == [where for _, where in plain.groups_of(job)]
        assert np.allclose(fast.free, plain.free)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), parts=st.sampled_from([1, 2, 8]))
def test_jobs_of_a_wave_stay_in_their_parts_and_within_the_servers(seed: int, parts: int) -> None:
    rng = np.random.default_rng(seed)
    servers = random_servers(rng, 40)
    placement = Placement(servers, parts=8)
    for number in range(4):
        drawn = [random_groups(rng) for _ in range(parts)]
        count, need = np.concatenate([c for c, _ in drawn]), np.concatenate([n for _, n in drawn])
        jobs = [f"{number}-{i}" for i in range(parts)]
        dry = placement.place_each(jobs, count, need, np.arange(parts), parts, dry_run=True)
        fits = placement.place_each(jobs, count, need, np.arange(parts), parts)
        assert dry.tolist() == fits.tolist()
        for part, job in enumerate(jobs):
            assert [sum(where.values()) for _, where in placement.groups_of(job)] == (
                count[part].tolist() if fits[part] else []
            )
            on = placement.servers_of(job)
            assert (placement.part_of_slot(placement.slot[on], parts) == part).all()
            assert len({servers.kinds[server] for server in on} - {""}) <= 1
    used = np.zeros_like(servers.capacity)
    for job in placement.jobs:
        for group, where in placement.groups_of(job):
            for server, replicas in where.items():
                used[server] += replicas * group.need
    assert np.allclose(placement.free + used, servers.capacity)
    assert (placement.free >= -1e-6).all()
    assert np.allclose(placement.free_in(parts).sum(axis=0), placement.free.sum(axis=0))


def test_parts_have_a_like_share_of_each_kind_of_server() -> None:
    kinds = ["a"] * 100 + [""] * 156 + ["b"] * 3
    capacity = np.where(np.array(kinds) == "a", 4.0, 9.0)[:, None]
    placement = Placement(Servers([f"s{i}" for i in range(len(kinds))], kinds, capacity), parts=4)
    part = placement.part_of_slot(placement.slot, 4)
    for kind, numbers in (("a", [25] * 4), ("", [39] * 4)):
        assert np.bincount(part[np.array(kinds) == kind], minlength=4).tolist() == numbers
    assert np.bincount(part[-3:], minlength=4).max() == 1


@pytest.mark.parametrize(("servers", "parts"), [(0, 1), (1000, 1), (1001, 8), (100_000, 1024)])
def test_small_clusters_are_not_divided(servers: int, parts: int) -> None:
    assert number_of_parts(servers) == parts


def test_each_job_gets_one_turn_and_large_jobs_larger_parts() -> None:
    placement = Placement(Servers([f"s{i}" for i in range(512)], [""] * 512, np.full((512, 1), 8.0)), parts=64)
    count = np.array([[4096], [512], *[[n % 5 + 1] for n in range(300)]])
    need = np.ones((*count.shape, 1))
    turns = list(waves(placement, count, need, np.full(len(count), -1)))
    assert sorted(int(row) for wave in turns for row in wave.rows) == list(range(len(count)))
    assert [wave.parts for wave in turns if {0, 1} & set(wave.rows.tolist())] == [1, 1]
    assert all(len(set(wave.in_part.tolist())) == len(wave.rows) for wave in turns)


def test_jobs_that_no_part_has_room_for_are_in_no_wave() -> None:
    rng = np.random.default_rng(0)
    placement = Placement(random_servers(rng, 40), parts=8)
    count, need = np.array([[1, 0]] * 3), np.full((3, 2, 3), 0.1)
    home = np.full(3, -1)
    assert len(list(waves(placement, count, need, home, np.zeros((3, 3))))) == 1
    assert list(waves(placement, count, need, home, np.full((3, 3), 1e9))) == []
