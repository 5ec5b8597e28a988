from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizewright.datasets.trials.trial import Trial
from sizewright.profiler.measure.interference import (
    busy_core_seconds,
    other_cores,
    starved_share,
    void_if_starved,
    widened,
)
from sizewright.spec import Allocation, Metrics, ReplicaMetrics

ONE = Allocation.of(1, 0, 1.0, 1.0, 64)


def look(at_s: float, cpu_s: float, runqueue_s: float = 0.0, throttled_s: float = 0.0) -> Metrics:
    replica = ReplicaMetrics(
        role="worker", index=0, at_s=at_s, cpu_s=cpu_s, throttled_s=throttled_s, runqueue_s=runqueue_s,
        memory_peak_bytes=1, limited_by="cgroup",
    )  # fmt: skip
    return Metrics(replicas=(replica,), engine_cpu_s=0.1 * at_s)


def share(cpu: float, waited: float, throttled: float = 0.0, others: float | None = None) -> float:
    """Of a replica that is allowed one core, over ten seconds."""
    return starved_share(ONE, look(0, 0), look(10, 10 * cpu, 10 * waited, 10 * throttled), others)


def test_replica_that_waits_far_below_its_limit_is_starved() -> None:
    assert share(0.23, 0.77, others=1.8) == pytest.approx(0.77)


@pytest.mark.parametrize(
    ("cpu", "waited", "throttled", "others"),
    [
        (0.23, 0.0, 0.0, 1.8),  # it waits for others of its job, not for a core
        (0.99, 0.5, 0.5, 1.8),  # its own quota holds it back
        (1.0, 0.6, 0.0, 1.8),  # it has all its cores, and more threads than these
        (0.23, 0.77, 0.0, 0.0),  # nobody else is there: its threads wait for one another
        (0.05, 0.04, 0.0, 1.0),  # a server that is seldom asked is woken late: that is little of its time
    ],
)
def test_replica_that_lost_little_to_others_is_not_starved(
    cpu: float, waited: float, throttled: float, others: float
) -> None:
    assert share(cpu, waited, throttled, others) < 0.05


@given(
    cpu=st.floats(0, 1), waited=st.floats(0, 8), throttled=st.floats(0, 8),
    others=st.none() | st.floats(0, 64),
)  # fmt: skip
def test_share_lies_between_0_and_1_and_is_no_more_than_the_limit_leaves(
    cpu: float, waited: float, throttled: float, others: float | None
) -> None:
    interference = share(cpu, waited, throttled, others)
    assert 0 <= interference <= 1 - cpu + 1e-6


def test_other_cores_are_those_of_the_host_without_the_trial() -> None:
    first, last = look(0, 0), look(10, 4)
    assert other_cores(socket.gethostname(), 25.0, first, last) == pytest.approx(
        2.0
    )  # 4 s and the engine's 1 s are ours
    assert other_cores(socket.gethostname(), 3.0, first, last) == 0.0
    assert other_cores("elsewhere:6379", 25.0, first, last) is None


TRIAL = Trial(workers=1, ps=0, throughput=1000.0, throughput_se=10.0)


@pytest.mark.parametrize(("lost", "error", "status"), [(0.05, 10.0, "ok"), (0.2, 200.0, "ok"), (0.6, 600.0, "void")])
def test_interference_widens_the_error_and_then_voids_the_trial(lost: float, error: float, status: str) -> None:
    trial = void_if_starved(widened(TRIAL, 1.5, lost))
    assert (trial.throughput_se, trial.status) == (error, status)
    assert (trial.other_cpu_used, trial.starved_share) == (1.5, lost)
    assert ("other work" in (trial.message or "")) == (error > 10.0)
    assert ("--accept-drift" in (trial.message or "")) == (status == "void")


def test_cpu_use_is_read_from_the_host() -> None:
    before = busy_core_seconds()
    sum(i * i for i in range(2_000_000))
    assert busy_core_seconds() > before
