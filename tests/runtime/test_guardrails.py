from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sizewright.errors import InputError, JobError
from sizewright.formatting import GIB
from sizewright.runtime.guardrails import GuardrailError, check_rails
from sizewright.spec import Allocation, Deploy, Estimate, Gpu, Group, Job, Plan, Prices, Rails, RoleRails

JOB = Job(name="ctr", training={"samples": 36_000_000}, deploy=Deploy(priority_class="high"))  # type: ignore[arg-type]
NOW = Allocation.of(4, 2, 1.0, 0.5, 512, GIB, 2 * GIB)
TARGET = Allocation.of(8, 4, 1.0, 0.5, 512, GIB, 2 * GIB)
EXPECTED = Estimate(value=1000.0, lower=900.0, upper=1100.0)
PLAN = Plan(id="p-1", kind="adjust", job=JOB, current=NOW, target=TARGET, reason="More.", expected=EXPECTED)


def rails(**fields: Any) -> Rails:
    return Rails.model_validate(fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"worker": {"replicas": [1, 8], "cpu": [0.5, 1], "memory": "1Gi", "step": 4}},
        {"ps": {"replicas": 4, "cpu": "500m", "memory": ["1Gi", "2Gi"], "step": 2}},
        {"quota": {"cpu": 10, "memory": "16Gi", "gpu": 0}},
        {"budget": 121},
        {"priority_classes": ["low", "high"]},
    ],
)
def test_plan_within_the_rails_passes(fields: dict[str, Any]) -> None:
    check_rails(PLAN, rails(**fields))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"paused": True}, "pause all plans"),
        ({"worker": {"replicas": [1, 7]}}, r"worker\.replicas is 8 \(allowed: 1 to 7\)"),
        ({"worker": {"replicas": [9, 12]}}, r"worker\.replicas is 8 \(allowed: 9 to 12\)"),
        ({"worker": {"step": 3}}, r"worker\.replicas changes from 4 to 8 \(at most 3 per change are allowed\)"),
        ({"ps": {"cpu": [0.6, 2]}}, r"ps\.cpu is 0\.5 \(allowed: 0\.6 to 2\)"),
        ({"ps": {"memory": ["1Gi", "1.5Gi"]}}, r"ps\.memory is 2\.0 GiB \(allowed: 1\.0 GiB to 1\.5 GiB\)"),
        ({"quota": {"cpu": 9.9}}, r"the cores of all replicas are 10 \(quota: 9\.9\)"),
        ({"quota": {"memory": "15Gi"}}, r"the memory of all replicas is 16\.0 GiB \(quota: 15\.0 GiB\)"),
        ({"budget": 119}, r"predicted cost of all samples is 120\.\d* \(budget: 119\.0\)"),
        ({"priority_classes": []}, r"priority_class is 'high' \(allowed: none\)"),
    ],
)
def test_violation_is_named_with_its_value(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        check_rails(PLAN, rails(**fields))
    assert caught.value.remedy


def test_all_violations_are_named_at_once() -> None:
    with pytest.raises(InputError) as caught:
        check_rails(PLAN, rails(worker={"replicas": 2}, ps={"replicas": 1}, quota={"cpu": 1}))
    assert caught.value.message.count(";") == 2
    assert isinstance(caught.value, GuardrailError)
    violations = [(violation.kind, violation.values["role"]) for violation in caught.value.violations[:2]]
    assert violations == [("replicas_outside_rail", "worker"), ("replicas_outside_rail", "ps")]
    assert caught.value.violations[2].values == {"cores": 10.0, "quota": 1.0}


def test_gpus_and_unlimited_memory_count_against_the_quota() -> None:
    group = Group(replicas=2, cpu=1, memory_bytes=0, gpu=Gpu(count=2))
    plan = PLAN.model_copy(update={"target": Allocation(worker=(group,), batch_size=1)})
    with pytest.raises(InputError, match=r"the GPUs of all replicas are 4 \(quota: 3\)"):
        check_rails(plan, rails(quota={"gpu": 3}))
    with pytest.raises(InputError, match=r"memory is not limited \(quota: 1\.0 GiB\)"):
        check_rails(plan, rails(quota={"memory": "1Gi"}))
    with pytest.raises(InputError, match=r"not limited \(allowed: 256\.0 MiB to 1\.0 GiB\)"):
        check_rails(plan, rails(worker={"memory": ["256Mi", "1Gi"]}))


def test_plan_without_prediction_violates_a_budget() -> None:
    with pytest.raises(InputError, match="there is a budget, but the plan has no valid predicted throughput"):
        check_rails(PLAN.model_copy(update={"expected": None}), rails(budget=1e9))


def test_keep_plan_passes_any_rails() -> None:
    check_rails(PLAN.model_copy(update={"kind": "keep"}), rails(paused=True, worker={"replicas": 1}))


def test_rails_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rails.yaml"
    path.write_text("worker: {replicas: [1, 16], cpu: [500m, 4], memory: [256Mi, 4Gi], step: 4}\nquota: {cpu: 32}\n")
    loaded = Rails.load(path)
    assert loaded.worker.cpu == (0.5, 4.0)
    assert loaded.quota.cpu == 32
    path.write_text("worker: {replica: 3}\n")
    with pytest.raises(JobError, match="replica"):
        Rails.load(path)


def test_recommendation_is_within_the_rails() -> None:
    rails = Rails(worker=RoleRails(replicas=(2, 4), cpu=(8.0, 9.0)))
    narrowed = rails.narrow(Job(name="ctr"))
    assert narrowed.bounds.worker.replicas == (2, 4)
    assert narrowed.bounds.worker.cpu == (0.5, 4.0), "both leave no room, and the rail refuses what is found"
    assert narrowed.bounds.ps == Job().bounds.ps
    assert Rails().narrow(Job(name="ctr")) == Job(name="ctr")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0])
def test_invalid_throughput_violates_a_budget(value: float) -> None:
    expected = Estimate(value=value, lower=value, upper=value)
    with pytest.raises(InputError, match="no valid predicted throughput"):
        check_rails(PLAN.model_copy(update={"expected": expected}), rails(budget=1e9))


def test_prices_of_the_rails_take_precedence() -> None:
    free = PLAN.job.model_copy(update={"prices": Prices(core_hour=0, gib_hour=0)})
    plan = PLAN.model_copy(update={"job": free})
    check_rails(plan, rails(budget=1))
    with pytest.raises(InputError, match="budget: 1"):
        check_rails(plan, rails(budget=1, prices={"core_hour": 1}))


def test_step_needs_the_current_allocation() -> None:
    with pytest.raises(InputError, match="names no current allocation"):
        check_rails(PLAN.model_copy(update={"kind": "adjust", "current": None}), rails(worker={"step": 1}))


def test_unlimited_memory_violates_memory_bounds() -> None:
    bare = PLAN.target.model_copy(update={"ps": (PLAN.target.ps[0].model_copy(update={"memory_bytes": 0}),)})
    with pytest.raises(InputError, match="not limited"):
        check_rails(PLAN.model_copy(update={"target": bare}), rails(ps={"memory": [0, "4Gi"]}))
