"""Recommendations in the form of a VerticalPodAutoscaler's status."""

from __future__ import annotations

import pytest

from sizewright.errors import InputError
from sizewright.executors.kubernetes.vpa import vpa_status
from sizewright.formatting import GIB
from sizewright.spec import Allocation, Group, Recommendation
from sizewright.spec.recommendation import Evidence

EVIDENCE = Evidence(trials=9, distinct_allocations=8, model="default")


def answer(**allocations: Allocation | None) -> Recommendation:
    return Recommendation(status="ok", job="ctr", evidence=EVIDENCE, **allocations)  # type: ignore[arg-type]


def test_bounds_contain_the_target_of_each_amount() -> None:
    target = Allocation.of(4, 2, 1.5, 0.5, 512, 2 * GIB, GIB)
    lower = Allocation.of(2, 1, 2.0, 0.25, 512, GIB, GIB)  # fewer and larger workers
    upper = Allocation.of(8, 2, 1.0, 1.0, 512, 2 * GIB, 3 * GIB)
    status = vpa_status(answer(target=target, lower=lower, upper=upper, uncapped=Allocation.of(9, 1, 3.0, 2.0, 512)))
    assert status["recommendation"]["containerRecommendations"] == [
        {
            "containerName": "worker",
            "target": {"cpu": "1500m", "memory": "2048Mi"},
            "lowerBound": {"cpu": "1", "memory": "1024Mi"},
            "upperBound": {"cpu": "2", "memory": "2048Mi"},
            "uncappedTarget": {"cpu": "3"},
        },
        {
            "containerName": "ps",
            "target": {"cpu": "500m", "memory": "1024Mi"},
            "lowerBound": {"cpu": "250m", "memory": "1024Mi"},
            "upperBound": {"cpu": "1", "memory": "3072Mi"},
            "uncappedTarget": {"cpu": "2"},
        },
    ]


def test_unknown_memory_and_missing_roles_are_left_out() -> None:
    (worker,) = vpa_status(answer(target=Allocation.of(2, 0, 1.0, 1.0, 512)))["recommendation"][
        "containerRecommendations"
    ]
    keys = ("target", "lowerBound", "upperBound", "uncappedTarget")
    assert worker == {"containerName": "worker"} | {key: {"cpu": "1"} for key in keys}


def test_several_sizes_of_a_role_are_refused() -> None:
    groups = tuple(Group(replicas=1, cpu=cpu, memory_bytes=0) for cpu in (1.0, 2.0))
    with pytest.raises(InputError, match="gives all replicas of a role one size, but worker has several"):
        vpa_status(answer(target=Allocation(worker=groups, ps=(), batch_size=64)))


def test_answer_without_a_target_is_refused() -> None:
    nothing = Recommendation(status="not_enough_data", job="ctr", evidence=EVIDENCE, reasons=("Too few trials.",))
    with pytest.raises(InputError, match=r"no recommendation for ctr: Too few trials\."):
        vpa_status(nothing)
