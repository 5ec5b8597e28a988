"""The executor contract on a Ray cluster of two machines, and one job from launch to stop."""

from __future__ import annotations

import os

import pytest

from sizewright.executors import get_executor
from sizewright.spec import Allocation, Executor, Plan
from tests.executors.test_contract import Contract, ExecutorContract


class TestRay(Contract):
    timeout_s = 120.0

    @pytest.fixture
    def executor(self) -> Executor:
        return get_executor("ray", address=os.environ["SIZEWRIGHT_ADDRESS"])

    def test_launch_observe_adjust_stop(self, executor: Executor, launch_plan: Plan, adjust_plan: Plan) -> None:
        import ray

        handle = executor.launch(launch_plan)
        self.until_trained_more(executor, handle)
        assert sum(node["Alive"] for node in ray.nodes()) == 2
        executor.adjust(handle, adjust_plan)
        self.until_counts(executor, handle, adjust_plan.target)
        resized = Allocation.of(2, 2, 0.4, 0.3, 64)
        last = adjust_plan.model_copy(update={"id": "p-3", "current": adjust_plan.target, "target": resized})
        executor.adjust(handle, last)
        self.until_trained_more(executor, handle)
        costs = [executor.change_cost(plan) for plan in (launch_plan, adjust_plan, last)]
        assert [cost.changes for cost in costs] == [1, 1, 1], "each kind of change is learned separately"
        assert costs[2].seconds < costs[1].seconds, "changing limits is faster than changing replicas"
        outcome = executor.stop(handle)
        assert (outcome.status, [change.kind for change in outcome.changes][:1]) == ("stopped", ["scale"])


del Contract, ExecutorContract  # pytest must not collect them here
