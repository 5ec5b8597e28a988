"""The contract of every executor, as a class of pytest tests to subclass.

    from sizewright.testing import ExecutorContract

    class TestMine(ExecutorContract):
        @pytest.fixture
        def executor(self):
            return MyExecutor()

        @pytest.fixture
        def launch_plan(self):
            return Plan(...)  # of kind launch, small enough for the place where the tests run

        @pytest.fixture
        def adjust_plan(self, launch_plan):
            return Plan(kind="adjust", current=launch_plan.target, ...)  # other replica counts, same job

Tests of capabilities that the executor does not have are skipped; another test checks that it refuses them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import ClassVar, Literal

import pytest
import yaml

from sizewright.errors import InputError, UnsupportedError
from sizewright.spec import Allocation, Capabilities, Executor, Handle, Metrics, Outcome, Plan


class ExecutorContract:
    """Tests of an executor. Subclass it, name the subclass Test…, and define the three fixtures."""

    renders: ClassVar[Literal["yaml", "json", "text"]] = "yaml"
    """The format that `render` writes."""
    timeout_s: ClassVar[float] = 60.0
    """Maximum time in which a job must train further samples, or show new replica counts."""
    poll_s: ClassVar[float] = 0.2
    """Time between two observations of a job."""

    def sleep(self, executor: Executor, seconds: float) -> None:
        """Wait for `seconds`. Override it for an executor with its own clock."""
        time.sleep(seconds)

    @pytest.fixture
    def executor(self) -> Executor:
        """Return the executor under test."""
        raise NotImplementedError("define the fixture `executor`")

    @pytest.fixture
    def launch_plan(self) -> Plan:
        """Return a plan that launches a small job with at least one worker and one PS."""
        raise NotImplementedError("define the fixture `launch_plan`")

    @pytest.fixture
    def adjust_plan(self) -> Plan:
        """Return a plan that changes the replica counts of that job."""
        raise NotImplementedError("define the fixture `adjust_plan`")

    @pytest.fixture
    def handle(self, executor: Executor, launch_plan: Plan) -> Iterator[Handle]:
        """Launch the job, yield its handle, and stop it in the end."""
        self.need(executor, "launch", "observe", "stop")
        handle = executor.launch(launch_plan)
        yield handle
        executor.stop(handle)

    def test_executor_has_name_and_consistent_capabilities(self, executor: Executor) -> None:
        """It has a name and consistent capabilities."""
        capabilities = executor.capabilities
        assert isinstance(capabilities, Capabilities), "capabilities must be a sizewright.spec.Capabilities"
        assert executor.name, "an executor needs a name"
        assert capabilities.launch or capabilities.render, "an executor must be able to launch or to render"
        assert capabilities.stop or not capabilities.launch, "an executor that launches jobs must be able to stop them"
        assert capabilities.adjust or not capabilities.live, "an executor with live changes must be able to adjust"

    def test_plan_is_rendered_in_the_declared_format(self, executor: Executor, launch_plan: Plan) -> None:
        """The text has the format of `renders` and is always the same."""
        self.need(executor, "render")
        text = executor.render(launch_plan)
        assert text.strip(), "render returned no text"
        if self.renders == "yaml":
            assert any(yaml.safe_load_all(text)), "the YAML is empty"
        elif self.renders == "json":
            assert json.loads(text), "the JSON is empty"
        assert executor.render(launch_plan) == text, "the same plan was rendered differently the second time"

    def test_launched_job_trains(self, executor: Executor, launch_plan: Plan, handle: Handle) -> None:
        """The handle can be serialised, replicas are as planned, and the number of samples grows."""
        assert (handle.executor, handle.job) == (executor.name, launch_plan.job.name)
        assert Handle.model_validate_json(handle.model_dump_json()) == handle
        self.until_counts(executor, handle, launch_plan.target)
        self.until_trained_more(executor, handle)
        assert not executor.wait(handle, 0.01), "the job has ended already; give launch_plan more samples"

    def test_adjusted_job_has_new_replica_counts_and_keeps_training(
        self, executor: Executor, handle: Handle, adjust_plan: Plan
    ) -> None:
        """`observe` shows the replica counts of the new target."""
        self.need(executor, "adjust")
        executor.adjust(handle, adjust_plan)
        self.until_counts(executor, handle, adjust_plan.target)
        self.until_trained_more(executor, handle)

    def test_migrated_replica_is_replaced(
        self, executor: Executor, handle: Handle, launch_plan: Plan, adjust_plan: Plan
    ) -> None:
        """A new replica replaces the migrated one, and the job continues. An unknown replica is refused."""
        self.need(executor, "migrate")
        self.until_counts(executor, handle, launch_plan.target)
        before = {replica.name for replica in executor.observe(handle).replicas}
        migrated = max(before)
        same = {"target": launch_plan.target, "current": launch_plan.target}
        with pytest.raises(InputError):
            executor.adjust(handle, adjust_plan.model_copy(update=same | {"migrate": ("worker-999",)}))
        plan = adjust_plan.model_copy(update=same | {"migrate": (migrated,)})
        assert executor.change_cost(plan).upper > 0, "migration must have a cost"
        executor.adjust(handle, plan)
        after = {replica.name for replica in executor.observe(handle).replicas}
        assert migrated not in after
        assert len(after - before) == 1
        assert counts(executor.observe(handle)) == expected_counts(launch_plan.target)
        self.until_trained_more(executor, handle)

    def test_rebalancing_is_recorded_and_training_continues(
        self, executor: Executor, handle: Handle, launch_plan: Plan, adjust_plan: Plan
    ) -> None:
        """The outcome records it, and the job continues. A job of one PS is refused."""
        self.need(executor, "rebalance")
        plan = adjust_plan.model_copy(update={"rebalance": True})
        same = {"current": adjust_plan.target}
        assert executor.change_cost(plan.model_copy(update=same)).upper > 0, "rebalancing must have a cost"
        one = plan.target.model_copy(update={"ps": (plan.target.ps[0].model_copy(update={"replicas": 1}),)})
        with pytest.raises(InputError):
            executor.adjust(handle, plan.model_copy(update={"target": one}))
        if plan.target.replicas("ps") < 2:
            pytest.skip("adjust_plan has only one PS")
        executor.adjust(handle, plan)
        self.until_counts(executor, handle, plan.target)
        self.until_trained_more(executor, handle)
        changes = [change.kind for change in executor.stop(handle).changes]
        assert changes[-1:] == ["rebalance"], f"the last change of the outcome is not the rebalancing: {changes}"

    def test_repeated_plan_changes_nothing(
        self, executor: Executor, handle: Handle, launch_plan: Plan, adjust_plan: Plan
    ) -> None:
        """Repeating a plan changes nothing, and another plan with the same id is refused."""
        assert executor.launch(launch_plan) == handle, "the same plan launched a second job"
        with pytest.raises(InputError):
            executor.launch(launch_plan.model_copy(update={"target": adjust_plan.target}))
        self.until_counts(executor, handle, launch_plan.target)
        if executor.capabilities.adjust:
            executor.adjust(handle, adjust_plan)
            executor.adjust(handle, adjust_plan)
            self.until_counts(executor, handle, adjust_plan.target)
            with pytest.raises(InputError):
                executor.adjust(handle, adjust_plan.model_copy(update={"target": launch_plan.target}))

    def test_keep_plan_changes_nothing(self, executor: Executor, launch_plan: Plan, handle: Handle) -> None:
        """Replica counts stay, and training continues."""
        self.need(executor, "adjust")
        self.until_counts(executor, handle, launch_plan.target)
        executor.adjust(handle, _keep(launch_plan))
        assert counts(executor.observe(handle)) == expected_counts(launch_plan.target)
        self.until_trained_more(executor, handle)

    def test_change_during_cool_down_is_refused(self, executor: Executor, launch_plan: Plan, adjust_plan: Plan) -> None:
        """During the cool-down a change is refused, but a plan to keep is accepted."""
        self.need(executor, "launch", "adjust", "observe", "stop")
        handle = executor.launch(launch_plan.model_copy(update={"cooldown_s": 86400.0}))
        try:
            with pytest.raises(InputError):
                executor.adjust(handle, adjust_plan)
            self.until_counts(executor, handle, launch_plan.target)
            executor.adjust(handle, _keep(launch_plan))
        finally:
            executor.stop(handle)

    def test_stopped_job_has_one_outcome_and_refuses_calls(
        self, executor: Executor, handle: Handle, launch_plan: Plan, adjust_plan: Plan
    ) -> None:
        """A second stop returns the same outcome, and other calls are refused."""
        self.until_trained_more(executor, handle)
        outcome = executor.stop(handle)
        assert isinstance(outcome, Outcome), "stop must return an Outcome"
        assert outcome.status in ("stopped", "finished"), f"the job was healthy when it was stopped: {outcome}"
        assert outcome.samples > 0, "the job trained samples, but the outcome has none"
        assert executor.stop(handle) == outcome, "a second stop must return the same outcome"
        assert executor.wait(handle, 0.01), "wait must return True for a stopped job"
        with pytest.raises(InputError):
            executor.observe(handle)
        if executor.capabilities.adjust:
            for plan in (adjust_plan, _keep(launch_plan)):
                with pytest.raises(InputError):
                    executor.adjust(handle, plan)

    def test_plans_of_the_wrong_kind_are_refused(
        self, executor: Executor, handle: Handle, launch_plan: Plan, adjust_plan: Plan
    ) -> None:
        """Plans of the wrong kind and plans for another state of the job are refused."""
        for plan in (adjust_plan, _keep(launch_plan)):
            with pytest.raises(InputError):
                executor.launch(plan)
        if executor.capabilities.adjust:
            other = launch_plan.target.model_copy(update={"batch_size": launch_plan.target.batch_size + 1})
            stale = adjust_plan.model_copy(update={"current": other})
            for plan in (launch_plan, stale):
                with pytest.raises(InputError):
                    executor.adjust(handle, plan)
        assert counts(executor.observe(handle)) == expected_counts(launch_plan.target)

    def test_unknown_handle_is_refused_with_a_remedy(
        self, executor: Executor, launch_plan: Plan, adjust_plan: Plan
    ) -> None:
        """The error has one sentence and a remedy."""
        nobody = Handle(executor=executor.name, id="nobody-0", job=launch_plan.job.name)
        for capability, call in _calls(executor, nobody, launch_plan, adjust_plan):
            if getattr(executor.capabilities, capability) and capability not in ("launch", "render"):
                with pytest.raises(InputError) as caught:
                    call()
                assert caught.value.remedy, f"{capability}: the error needs a remedy"

    def test_missing_capabilities_raise_unsupported_error(
        self, executor: Executor, launch_plan: Plan, adjust_plan: Plan
    ) -> None:
        """Calls that need a missing capability raise UnsupportedError."""
        handle = Handle(executor=executor.name, id="nobody-0", job=launch_plan.job.name)
        for capability, call in _calls(executor, handle, launch_plan, adjust_plan):
            if not getattr(executor.capabilities, capability):
                with pytest.raises(UnsupportedError):
                    call()

    def test_change_cost_is_an_interval(self, executor: Executor, launch_plan: Plan, adjust_plan: Plan) -> None:
        """The cost of a change is an interval around its seconds, and 0 if nothing changes."""
        for plan in (launch_plan, adjust_plan):
            cost = executor.change_cost(plan)
            assert 0 <= cost.lower <= cost.seconds <= cost.upper
            assert cost.upper > 0, "the upper bound of the cost of a change must be above 0"
        same = adjust_plan.model_copy(update={"current": adjust_plan.target})
        for plan in (_keep(launch_plan), same):
            assert executor.change_cost(plan).upper == 0, "the cost must be 0 if nothing changes"

    def need(self, executor: Executor, *capabilities: str) -> None:
        """Skip the test unless the executor has these capabilities."""
        for capability in capabilities:
            if not getattr(executor.capabilities, capability):
                pytest.skip(f"the {executor.name} executor does not have the capability {capability}")

    def until_counts(self, executor: Executor, handle: Handle, allocation: Allocation) -> None:
        """Wait until `observe` shows as many replicas as the allocation has."""
        expected = expected_counts(allocation)
        last = self._until(executor, handle, lambda metrics: counts(metrics) == expected)
        assert last is None, f"expected (workers, PS) {expected}, observed {last and counts(last)}"

    def until_trained_more(self, executor: Executor, handle: Handle) -> None:
        """Wait until every worker has trained further samples."""
        before = {worker.index: worker.samples for worker in executor.observe(handle).of("worker")}
        last = self._until(
            executor, handle, lambda now: all(w.samples > before.get(w.index, 0) for w in now.of("worker"))
        )
        assert last is None, f"some workers trained no further samples: {before}, then {last}"

    def _until(self, executor: Executor, handle: Handle, reached: Callable[[Metrics], bool]) -> Metrics | None:
        """Wait until `reached` and return None; after `timeout_s`, return the last metrics."""
        for _ in range(max(1, round(self.timeout_s / self.poll_s))):
            metrics = executor.observe(handle)
            if reached(metrics):
                return None
            self.sleep(executor, self.poll_s)
        return metrics


def counts(metrics: Metrics) -> tuple[int, int]:
    """Return the numbers of observed workers and PS."""
    return len(metrics.of("worker")), len(metrics.of("ps"))


def expected_counts(allocation: Allocation) -> tuple[int, int]:
    """Return the numbers of workers and PS of an allocation."""
    return allocation.replicas("worker"), allocation.replicas("ps")


def _keep(launch_plan: Plan) -> Plan:
    return launch_plan.model_copy(update={"id": "keep-0", "kind": "keep", "current": launch_plan.target})


def _calls(
    executor: Executor, handle: Handle, launch_plan: Plan, adjust_plan: Plan
) -> list[tuple[str, Callable[[], object]]]:
    """Return each capability with a call that needs it."""
    return [
        ("launch", lambda: executor.launch(launch_plan)),
        ("adjust", lambda: executor.adjust(handle, adjust_plan)),
        ("migrate", lambda: executor.adjust(handle, adjust_plan.model_copy(update={"migrate": ("worker-0",)}))),
        ("rebalance", lambda: executor.adjust(handle, adjust_plan.model_copy(update={"rebalance": True}))),
        ("observe", lambda: executor.observe(handle)),
        ("observe", lambda: executor.wait(handle, 0.01)),
        ("stop", lambda: executor.stop(handle)),
        ("render", lambda: executor.render(launch_plan)),
    ]
