from __future__ import annotations

import pytest

from sizewright.recommender.control.diagnose import diagnose
from sizewright.recommender.control.stragglers import Straggler
from sizewright.recommender.control.windows import ReplicaWindow, Window
from sizewright.spec import Allocation, Group
from sizewright.spec.wording import sentence

WORKER = {"cpu_s": 0.5, "steps": 10, "data_s": 0.05, "pull_s": 0.05, "compute_s": 0.4, "push_s": 0.02}
PS = {"cpu_s": 0.3, "exchanges": 40, "busy_s": 0.3, "lookups": 1000}

LARGE = Allocation.of(3, 3, 20.0, 20.0, 512)


def replica(name: str, **fields: float) -> ReplicaWindow:
    role = name.partition("-")[0]
    defaults = dict.fromkeys(ReplicaWindow._fields, 0) | {"name": name, "role": role, "seconds": 1.0}
    return ReplicaWindow(**(defaults | (WORKER if role == "worker" else PS) | fields))


@pytest.mark.parametrize(
    ("name", "fields", "cause", "remedy"),
    [
        ("worker-0", {"steps": 2, "throttled_s": 0.7, "compute_s": 0.9, "cpu_s": 0.1}, "cpu_cut", "migrate"),
        ("worker-0", {"steps": 2, "throttled_s": 0.7, "data_s": 0.9, "cpu_s": 0.1}, "cpu_cut", "migrate"),
        ("worker-0", {"steps": 2, "compute_s": 0.9, "cpu_s": 0.1}, "busy_host", "migrate"),
        ("worker-0", {"steps": 2, "data_s": 0.8, "compute_s": 0.08, "cpu_s": 0.1}, "starved_input", "wait"),
        ("worker-0", {"steps": 4, "pull_s": 0.6, "compute_s": 0.16, "cpu_s": 0.75}, "slow_network", "migrate"),
        ("worker-0", {"steps": 4, "compute_s": 0.9, "cpu_s": 1.0}, "too_few_samples", "wait"),
        ("worker-0", {"steps": 60, "compute_s": 13.5, "cpu_s": 15.0}, "unknown", "wait"),
        ("ps-0", {"busy_s": 0.9, "lookups": 3000, "cpu_s": 0.9}, "skewed_keys", "rebalance"),
        ("ps-0", {"busy_s": 0.9, "throttled_s": 0.6, "cpu_s": 0.3}, "cpu_cut", "migrate"),
        ("ps-0", {"busy_s": 0.9, "cpu_s": 0.3}, "busy_host", "migrate"),
        ("ps-0", {"busy_s": 0.9, "cpu_s": 0.9}, "too_few_samples", "wait"),
        ("ps-0", {"busy_s": 1.8, "cpu_s": 1.8, "exchanges": 80}, "unknown", "wait"),
    ],
)
def test_diagnose_returns_cause_and_remedy(name: str, fields: dict[str, float], cause: str, remedy: str) -> None:
    role = name.partition("-")[0]
    replicas = (replica(name, **fields), replica(f"{role}-1"), replica(f"{role}-2"))
    slow = Straggler(name, "worker" if role == "worker" else "ps", 4.0)
    finding = diagnose(slow, Window(1.0, 1.0, 100, 100, 1000, replicas), LARGE)
    assert (finding.cause, finding.remedy) == (cause, remedy)
    assert sentence(finding.reason).startswith(f"{name} takes 4.0 times as long as its peers")


@pytest.mark.parametrize(
    ("fields", "cause", "evidence"),
    [
        ({"busy_s": 0.9, "throttled_s": 0.6}, "cpu_cut", "its CPU quota throttles it 60 % of the time, before: 0 %"),
        ({"busy_s": 0.9, "cpu_s": 0.3}, "busy_host", "it gets 0.33 cores while it works, before: 1.00"),
        ({"busy_s": 5.4, "cpu_s": 5.4, "lookups": 6000, "exchanges": 60}, "unknown", "no measurement explains it"),
        (
            {"busy_s": 0.9, "throttled_s": 1.2, "lookups": 1400},
            "cpu_cut",
            "its CPU quota throttles it 100 % of the time, before: 0 %",
        ),
    ],
)
def test_only_ps_is_compared_with_itself(fields: dict[str, float], cause: str, evidence: str) -> None:
    earlier = replica("ps-0", seconds=3.0, **{name: 3 * value for name, value in PS.items()})
    workers = (replica("worker-0"), replica("worker-1"))
    slow = Straggler("ps-0", "ps", 4.0, earlier=earlier)
    finding = diagnose(slow, Window(1.0, 1.0, 100, 100, 1000, (*workers, replica("ps-0", **fields))), LARGE)
    assert finding.cause == cause
    assert sentence(finding.reason) == f"ps-0 takes 4.0 times as long as before per exchange: {evidence}."


@pytest.mark.parametrize("fields", [{"throttled_s": 0.6}, {"cpu_s": 0.3}])
def test_replica_with_all_its_cores_is_not_replaced(fields: dict[str, float]) -> None:
    replicas = (replica("ps-0", **({"busy_s": 0.9} | fields)), replica("ps-1", cpu_s=0.25), replica("ps-2", cpu_s=0.25))
    finding = diagnose(
        Straggler("ps-0", "ps", 4.0), Window(1.0, 1.0, 100, 100, 1000, replicas), Allocation.of(3, 3, 0.3, 0.3, 512)
    )
    assert (finding.cause, finding.remedy) == ("all_cores_used", "wait")
    assert sentence(finding.reason).endswith("it uses all of its cores (0.30).")


def test_cores_of_unlike_ps_are_not_compared_with_the_use_of_one() -> None:
    groups = Group(replicas=2, cpu=0.3, memory_bytes=0), Group(replicas=1, cpu=4.0, memory_bytes=0)
    allocation = LARGE.model_copy(update={"ps": groups})
    replicas = replica("ps-0"), replica("ps-1"), replica("ps-2", busy_s=0.9, throttled_s=0.6)
    finding = diagnose(Straggler("ps-2", "ps", 4.0), Window(1.0, 1.0, 100, 100, 1000, replicas), allocation)
    assert finding.cause == "cpu_cut"


@pytest.mark.parametrize(("gpus", "cause"), [(0, "busy_host"), (1, "unknown")])
def test_only_worker_that_waits_for_its_gpu_is_not_replaced(gpus: int, cause: str) -> None:
    allocation = LARGE.model_copy(update={"worker": (Group(replicas=1, cpu=4.0, memory_bytes=0, gpu=gpus),)})
    earlier = replica("worker-0", steps=100, compute_s=4.0, cpu_s=5.0)
    slow = Straggler("worker-0", "worker", 2.5, earlier=earlier)
    window = Window(1.0, 1.0, 100, 100, 1000, (replica("worker-0", steps=100, compute_s=10.0, cpu_s=5.0),))
    assert diagnose(slow, window, allocation).cause == cause
