from __future__ import annotations

import pytest

from sizewright.cluster.problem.candidates import JobTable
from sizewright.cluster.shared_cluster import SharedCluster
from sizewright.errors import InputError
from sizewright.formatting import GIB
from sizewright.spec import Allocation, Candidate, Cluster, HostKind, Quota

HOSTS = (HostKind(kind="host", cpu=8.0, memory_bytes=64 * GIB),)


def at(workers: int) -> Allocation:
    return Allocation.of(workers, 0, 1.0, 0.0, 512)


def table(name: str, *workers: int, power: float = 0.8) -> JobTable:
    candidates = tuple(Candidate(allocation=at(n), throughput=100.0 * n**power) for n in workers)
    return JobTable(name, candidates, samples_left=1e6, samples=1e6)


def test_rounds_are_due_at_arrivals_and_ends_and_after_the_interval() -> None:
    shared = SharedCluster(Cluster(hosts=HOSTS), every_s=300.0)
    assert shared.is_due(0.0, ["a"])
    shared.divide([table("a", 1, 2)], 0.0)
    assert not shared.is_due(299.0, ["a"])
    assert shared.is_due(300.0, ["a"])
    assert shared.is_due(1.0, ["a", "b"])
    assert shared.is_due(1.0, [])


def test_cores_go_to_those_who_gain_most() -> None:
    jobs = [table("scales", 1, 2, 4, 6, power=1.0), table("hardly", 1, 2, 4, 6, power=0.1)]
    got = SharedCluster(Cluster(hosts=HOSTS)).divide(jobs).allocations()
    assert got["scales"] == at(6)
    assert got["hardly"] in (at(1), at(2))


def test_a_quota_limits_each_job_and_the_capacity_all_of_them() -> None:
    shared = SharedCluster(Cluster(hosts=HOSTS, quota=Quota(cpu=2.0)))
    got = shared.divide([table("a", 1, 2, 4)]).allocations()
    assert got == {"a": at(2)}
    assert shared.has_room([at(4), at(4)])
    assert not shared.has_room([at(4), at(5)])


@pytest.mark.parametrize("times", [{"every_s": 0.0}, {"time_limit_s": -1.0}])
def test_times_that_are_not_above_zero_are_refused(times: dict[str, float]) -> None:
    with pytest.raises(InputError, match="must be above 0 s"):
        SharedCluster(Cluster(hosts=HOSTS), **times)
