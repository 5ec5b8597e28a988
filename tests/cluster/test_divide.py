"""A capacity divided over jobs whose replicas have to fit on servers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from sizewright.cluster.allocators.registry import get_allocator
from sizewright.cluster.divide import divide, servers_of
from sizewright.cluster.placement import Placement, Replicas, Servers
from sizewright.cluster.tables import JobTable, JobTables, needs_of, tables_of
from sizewright.spec import Allocation, Candidate, Cluster, Group

SIZES = (1, 2, 4, 6, 8, 12, 16)
JOBS = {"ranking": (9000, 0.75), "ads": (14000, 0.6), "feed": (7000, 0.92)}


def table(name: str, least: int = 0) -> JobTable:
    speed, power = JOBS[name]
    candidates = tuple(
        Candidate(
            allocation=Allocation(
                worker=(Group(replicas=w, cpu=4, memory_bytes=2**33),),
                ps=(Group(replicas=min(max(w // 2, 1), 4), cpu=2, memory_bytes=2**34),), batch_size=512,
            ),
            throughput=speed * w**power,
        )
        for w in SIZES[least:]
    )  # fmt: skip
    return JobTable(name, candidates, 1e9, 1e9)


def hosts() -> Servers:
    sizes = [("large", 32, "128Gi"), ("large", 32, "128Gi"), ("small", 16, "64Gi"), ("small", 16, "64Gi")]
    return servers_of(Cluster.model_validate({"hosts": [{"kind": k, "cpu": c, "memory": m} for k, c, m in sizes]}))


def made(least: int = 0) -> JobTables:
    capacity = hosts().capacity.sum(axis=0)
    return tables_of([table(name, least) for name in JOBS], ["cpu", "memory_bytes"], capacity, capacity)


def can_be_placed(tables: JobTables, choice: tuple[int, ...]) -> bool:
    placement = Placement(hosts())
    allocations = {job: tables.allocation(job, column) for job, column in enumerate(choice)}
    order = sorted(allocations, key=lambda job: -float(tables.problem.share[job, choice[job]]))
    for job in order:
        allocation = allocations[job]
        groups = allocation.groups if allocation else ()
        replicas = [
            Replicas(
                group.replicas,
                needs_of(Allocation(worker=(group,), batch_size=1), ["cpu", "memory_bytes"]) / group.replicas,
            )
            for _, group in groups
        ]
        if allocation and not placement.place(str(job), replicas):
            return False
    return True


@pytest.mark.parametrize("policy", ["default", "mip", "lagrangian"])
def test_what_is_left_of_the_servers_is_given_away(policy: str) -> None:
    tables = made()
    answer, places = divide(tables, hosts(), get_allocator(policy), 10.0)
    assert (answer.choice > 0).all()
    assert sorted(places) == [0, 1, 2]
    columns = [range(tables.problem.shape[1])] * 3
    best = max(answer.total(np.array(c)) for c in itertools.product(*columns) if can_be_placed(tables, c))
    assert best * 0.95 <= answer.value <= answer.bound


def test_a_job_that_finds_no_room_waits_and_it_is_said() -> None:
    tables = made(least=6)  # 16 workers or nothing
    answer, places = divide(tables, hosts(), get_allocator("default"), 10.0)
    assert (answer.choice > 0).sum() == len(places) == 1
    assert answer.full


def test_a_baseline_gives_no_more_than_is_asked_for() -> None:
    answer, _ = divide(made(), hosts(), get_allocator("fifo"), 10.0)
    assert not answer.full
