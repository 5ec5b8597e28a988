from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.formatting import GIB, MIB
from sizewright.recommender.sizing.caps import (
    CAPS,
    CapInput,
    CapResult,
    apply_caps,
    within_deadline,
    within_hosts,
    within_interval,
    within_memory_bounds,
    within_quota,
    within_supported_range,
)
from sizewright.recommender.sizing.grid import Grid
from sizewright.spec import Bounds, Cluster, HostKind, Job, Quota, RoleBounds
from sizewright.spec.reason import Reason
from sizewright.spec.units import parse_bytes, parse_seconds
from sizewright.spec.wording import clause

ROWS = [(1, 1, 1.0, 0.5), (2, 1, 1.0, 0.5), (2, 2, 2.0, 1.0), (4, 1, 0.5, 0.5), (6, 2, 4.0, 2.0)]


def candidates(rows: list[tuple[float, ...]] = ROWS, job: Job | None = None, **change: Any) -> CapInput:
    columns = [np.array(column, float) for column in zip(*rows, strict=True)]
    grid = Grid(*columns, np.full(len(rows), 256.0), np.zeros(len(rows)), np.full(len(rows), -1.0))
    size = len(rows)
    known = {
        "cluster": None,
        "worker_memory_bytes": np.full(size, float(GIB)),
        "ps_memory_bytes": np.full(size, 2.0 * GIB),
        "embedding_bytes": 1e9,
        "supported_ranges": {},
        "interval_ratio": np.full(size, 1.5),
        "latest_time_s": np.full(size, 100.0),
    }
    return CapInput(job=job or Job(), grid=grid, **(known | change))


def everything(c: CapInput) -> np.ndarray:
    return np.ones(len(c.grid), bool)


def allowed(cap: Any, c: CapInput) -> list[bool]:
    return list(cap(c, everything(c)).allowed)


def test_memory_beyond_the_bounds_of_a_role_is_ruled_out() -> None:
    job = Job(bounds=Bounds(worker=RoleBounds(memory=(0, 2 * GIB)), ps=RoleBounds(memory=(0, 3 * GIB))))
    worker = np.array([1, 2, 2.001, 1, 1]) * GIB
    ps = np.array([1, 3, 1, 3.001, 3]) * GIB
    c = candidates(job=job, worker_memory_bytes=worker, ps_memory_bytes=ps)
    assert allowed(within_memory_bounds, c) == [True, True, False, False, True]


def test_memory_reason_names_the_roles_that_exceed_their_bounds() -> None:
    job = Job(bounds=Bounds(worker=RoleBounds(memory=(0, 2 * GIB)), ps=RoleBounds(memory=(0, 3 * GIB))))
    ps = np.array([1, 3, 1, 3.5, 3]) * GIB
    c = candidates(job=job, worker_memory_bytes=np.full(5, GIB), ps_memory_bytes=ps)
    assert clause(within_memory_bounds(c, everything(c)).reason) == (
        "replicas would need 1.0 GiB to 3.5 GiB per PS; the bounds allow at most 3.0 GiB per PS"
    )


def test_raising_the_bounds_as_the_memory_remedy_says_lifts_the_cap() -> None:
    job = Job(bounds=Bounds(worker=RoleBounds(memory=(0, GIB)), ps=RoleBounds(memory=(0, GIB))))
    ps = np.array([1.31, 1.4, 2, 3, 4]) * GIB
    c = candidates(job=job, worker_memory_bytes=np.full(5, 1.01 * GIB), ps_memory_bytes=ps)
    remedy = within_memory_bounds(c, everything(c)).remedy
    raised = {
        role: parse_bytes(remedy.split(f"bounds.{role}.memory to ")[1].split()[0].strip(".,"))
        for role in ("ps", "worker")
    }
    assert np.any((ps <= raised["ps"]) & (c.worker_memory_bytes <= raised["worker"]))
    assert raised["ps"] < 1.31 * GIB + MIB


def test_a_quota_caps_cores_and_memory_of_the_whole_job() -> None:
    hosts = (HostKind(kind="h", count=100, cpu=64, memory=256 * GIB),)
    # Cores: 1.5, 2.5, 6, 2.5, 28. GiB: 3, 4, 6, 6, 10.
    for quota, allowed_rows in [
        (Quota(cpu=2.5), [True, True, False, True, False]),
        (Quota(memory=4 * GIB), [True, True, False, False, False]),
        (Quota(cpu=6, memory=6 * GIB), [True, True, True, True, False]),
        (Quota(), [True] * 5),
    ]:
        c = candidates(cluster=Cluster(hosts=hosts, quota=quota))
        assert allowed(within_quota, c) == allowed_rows
    assert allowed(within_quota, candidates()) == [True] * 5


def test_without_quota_the_capacity_of_the_hosts_counts() -> None:
    c = candidates(cluster=Cluster(hosts=(HostKind(kind="h", cpu=6, memory=64 * GIB),)))
    assert allowed(within_quota, c) == [True] * 5
    assert allowed(within_hosts, c) == [True, True, True, True, False]


def host(cpu: float, memory: float, count: int = 1) -> HostKind:
    return HostKind(kind="h", count=count, cpu=cpu, memory=memory * GIB)


@pytest.mark.parametrize(
    ("cap", "cluster", "reason", "remedy"),
    [
        (within_hosts, Cluster(name="c", hosts=(host(8, 8, 0),)), "cluster c has no host", "a count above 0"),
        (
            within_hosts,
            Cluster(name="c", hosts=(host(8, 1, 99),)),
            "no host of c has more than 1Gi, and one replica asks for 2Gi",
            "or add hosts with 2Gi.",
        ),
        (
            within_hosts,
            Cluster(name="c", hosts=(host(8, 2, 1),)),
            "the hosts of c have 2Gi in total, and the smallest allocation asks for 3Gi",
            "or add hosts.",
        ),
        (
            within_hosts,
            Cluster(name="c", hosts=(host(1.2, 16, 1), host(0.3, 16, 1))),
            "the replicas of the smallest allocation (1 worker × 1 core and 1.0 GiB, "
            "1 PS × 0.5 cores and 2.0 GiB, batch 256) do not fit the hosts of c",
            "or add hosts.",
        ),
        (
            within_quota,
            Cluster(name="c", hosts=(host(64, 256, 9),), quota=Quota(cpu=1, memory=64 * GIB)),
            "the quota of c is 1 core and 64Gi, and the smallest allocation asks for 1.5 cores",
            "or raise the quota to 1.5 cores.",
        ),
        (
            within_quota,
            Cluster(name="c", hosts=(host(64, 256, 9),), quota=Quota(memory=4 * GIB)),
            "the quota of c is 4Gi",
            "Raise the quota.",
        ),
    ],
)
def test_insufficient_capacity_is_named_with_its_remedy(cap: Any, cluster: Cluster, reason: str, remedy: str) -> None:
    c = candidates(cluster=cluster)
    result = cap(c, everything(c))
    assert clause(result.reason) == reason
    assert remedy in result.remedy


def test_replicas_must_fit_the_hosts() -> None:
    def fits(*hosts: HostKind) -> list[bool]:
        return allowed(within_hosts, candidates(cluster=Cluster(hosts=hosts)))

    assert fits(HostKind(kind="h", count=99, cpu=4, memory=8 * GIB)) == [True] * 5
    assert fits(HostKind(kind="h", count=99, cpu=3.9, memory=8 * GIB)) == [True, True, True, True, False]
    assert fits(HostKind(kind="h", count=99, cpu=4, memory=1.9 * GIB)) == [False] * 5
    assert fits(HostKind(kind="h", count=1, cpu=2.5, memory=4 * GIB)) == [True, True, False, False, False]
    assert fits(HostKind(kind="w", count=2, cpu=1, memory=GIB), HostKind(kind="p", cpu=0.5, memory=2 * GIB)) == [
        True, True, False, False, False,
    ]  # fmt: skip
    assert allowed(within_hosts, candidates()) == [True] * 5


def packable(hosts: list[list[float]], replicas: list[tuple[float, float]]) -> bool:
    """Return True if a placement exists, by trying every host for every replica."""
    if not replicas:
        return True
    (cpu, memory), rest = replicas[0], replicas[1:]
    tried = set()
    for host in hosts:
        if tuple(host) in tried or host[0] < cpu - 1e-9 or host[1] < memory:
            continue
        tried.add(tuple(host))
        host[0], host[1] = host[0] - cpu, host[1] - memory
        if packable(hosts, rest):
            return True
        host[0], host[1] = host[0] + cpu, host[1] + memory
    return False


@given(
    host=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    count=st.integers(1, 2),
    worker=st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)),
    ps=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4)),
)
@settings(max_examples=300, deadline=None)
def test_allocations_that_the_host_cap_allows_can_be_placed(
    host: tuple[int, int], count: int, worker: tuple[int, int, int], ps: tuple[int, int, int]
) -> None:
    cluster = Cluster(hosts=(HostKind(kind="h", count=count, cpu=host[0], memory=host[1] * GIB),))
    c = candidates(
        [(worker[0], ps[0], worker[1], ps[1])],
        cluster=cluster,
        worker_memory_bytes=np.array([worker[2] * GIB]),
        ps_memory_bytes=np.array([ps[2] * GIB]),
    )
    replicas = [(worker[1], worker[2])] * worker[0] + [(ps[1], ps[2])] * ps[0]
    can_be_placed = packable([[float(host[0]), float(host[1])] for _ in range(count)], replicas)
    allowed_row = bool(within_hosts(c, everything(c)).allowed[0])
    assert allowed_row == can_be_placed if count == 1 else allowed_row <= can_be_placed


def test_the_deadline_counts_only_for_its_objective() -> None:
    late = np.array([10, 20, 20.001, 30, 5])
    job = Job(objective="deadline", deadline=20)
    assert allowed(within_deadline, candidates(job=job, latest_time_s=late)) == [True, True, False, False, True]
    other = Job(objective="cost", deadline=20)
    assert allowed(within_deadline, candidates(job=other, latest_time_s=late)) == [True] * 5


def test_deadline_remedy_names_a_time_that_allowed_rows_can_meet() -> None:
    c = candidates(job=Job(objective="deadline", deadline=20), latest_time_s=np.array([10, 1234.5, 900, 777, 5e4]))
    allowed_before = np.array([False, True, True, False, True])
    remedy = within_deadline(c, allowed_before).remedy
    assert 900 <= parse_seconds(remedy.split("deadline to ")[1].split()[0]) < 960


def test_quota_remedy_names_the_need_of_the_smallest_allowed_allocation() -> None:
    hosts = (HostKind(kind="h", count=100, cpu=64, memory=256 * GIB),)
    c = candidates(cluster=Cluster(hosts=hosts, quota=Quota(cpu=1, memory=GIB)))
    assert "raise the quota to 1.5 cores and 3Gi" in within_quota(c, everything(c)).remedy
    allowed_before = np.array([False, False, True, False, True])
    assert "raise the quota to 6 cores and 6Gi" in within_quota(c, allowed_before).remedy


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        ({}, [True] * 5),
        ({"workers": (1, 2)}, [True, True, True, True, False]),
        ({"workers": (1, 3)}, [True] * 5),
        ({"workers": (8, 9)}, [False, False, False, True, True]),
        ({"worker_cpu": (1, 2)}, [True] * 5),
        ({"worker_cpu": (1, 1.5)}, [True, True, True, True, False]),
        ({"worker_cpu": (1, 1)}, [True, True, True, False, False]),
        ({"ps_cpu": (0.5, 0.5), "ps": (2, 2)}, [True, True, True, True, False]),
        ({"ps_cpu": (1, 1)}, [False, False, True, False, True]),
        ({"batch_size": (128, 128)}, [True] * 5),
        ({"batch_size": (512, 512)}, [True] * 5),
        ({"batch_size": (600, 700)}, [False] * 5),
        ({"embedding_bytes": (2e8, 4.9e8)}, [False] * 5),
        ({"embedding_bytes": (1e8, 4.9e8)}, [True] * 5),  # a trend over several sizes
        ({"embedding_bytes": (1e8, 5e8)}, [True] * 5),
    ],
)
def test_twice_the_measured_range_is_the_limit_and_unvaried_cores_are_not_lowered(
    measured: dict[str, tuple[float, float]], expected: list[bool]
) -> None:
    assert allowed(within_supported_range, candidates(supported_ranges=measured)) == expected
    assert allowed(within_supported_range, candidates(supported_ranges=measured, extrapolate=True)) == [True] * 5


def test_suggested_trial_is_the_nearest_allowed_allocation() -> None:
    c = candidates(supported_ranges={"workers": (0.1, 0.4)})
    assert "Measure 1 worker × 1 core" in within_supported_range(c, everything(c)).remedy
    allowed_before = np.array([False, False, False, True, True])
    result = within_supported_range(c, allowed_before)
    assert "Measure 4 workers × 0.5 cores" in result.remedy
    assert "workers 0.1 to 0.4" in clause(result.reason)


def test_interval_of_more_than_a_factor_of_ten_supports_no_decision() -> None:
    ratios = np.array([1.0, 9.9, 10.1, np.inf, 30.0])
    c = candidates(interval_ratio=ratios)
    assert allowed(within_interval, c) == [True, True, False, False, False]
    result = within_interval(c, ratios > 10)
    assert "Measure 2 workers × 2 cores" in result.remedy
    assert "factor of 10" in clause(result.reason)


def test_caps_are_applied_in_order_and_count_what_they_rule_out() -> None:
    def cap(*mask: bool) -> Any:
        return lambda c, before: CapResult(np.array(mask), Reason.of("no_limit"), "how")

    c = candidates()
    caps = [
        ("a", cap(True, False, True, True, True)),
        ("b", cap(True, False, False, True, True)),
        ("c", cap(False, True, True, False, False)),
        ("d", cap(True, True, True, True, True)),
    ]
    mask, rulings = apply_caps(c, caps[:2])
    assert mask.tolist() == [True, False, False, True, True]
    assert [(r.cap, r.ruled_out) for r in rulings] == [("a", 1), ("b", 1)]
    mask, rulings = apply_caps(c, caps)
    assert not mask.any()
    assert [(r.cap, r.ruled_out) for r in rulings] == [("a", 1), ("b", 1), ("c", 3)]
    assert apply_caps(c)[0].all()
    assert [name for name, _ in CAPS] == [
        "memory bounds",
        "device memory",
        "GPU memory",
        "hosts",
        "quota",
        "measured range",
        "interval",
        "deadline",
    ]
