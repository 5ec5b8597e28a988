"""What every executor keeps to, as a class of pytest tests to subclass.

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

Tests of what an executor's `capabilities` do not name are skipped; that it refuses those is tested too.
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
    """Subclass it, name the subclass Test…, and give the three fixtures that say how to make things."""

    renders: ClassVar[Literal["yaml", "json", "text"]] = "yaml"
    """What `render` claims to write."""
    timeout_s: ClassVar[float] = 60.0
    """How long a job may take to train its next samples, or to show new replica counts."""
    poll_s: ClassVar[float] = 0.2
    """Between two looks at a job."""

    def sleep(self, executor: Executor, seconds: float) -> None:
        """Let so many `seconds` pass; override it for an executor with a clock of its own."""
        time.sleep(seconds)

    @pytest.fixture
    def executor(self) -> Executor:
        """The executor under test."""
        raise NotImplementedError("give a fixture `executor`")

    @pytest.fixture
    def launch_plan(self) -> Plan:
        """A plan that launches a small job with a worker and a PS or more."""
        raise NotImplementedError("give a fixture `launch_plan`")

    @pytest.fixture
    def adjust_plan(self) -> Plan:
        """A plan that brings that job to other replica counts."""
        raise NotImplementedError("give a fixture `adjust_plan`")

    @pytest.fixture
    def handle(self, executor: Executor, launch_plan: Plan) -> Iterator[Handle]:
        """The launched job; it is stopped in the end."""
        self.need(executor, "launch", "observe", "stop")
        handle = executor.launch(launch_plan)
        yield handle
        executor.stop(handle)

    def test_it_says_what_it_is(self, executor: Executor) -> None:
        """Name and capabilities, which go together."""
        able = executor.capabilities
        assert isinstance(able, Capabilities), "capabilities must be a sizewright.spec.Capabilities"
        assert executor.name, "an executor needs a name"
        assert able.launch or able.render, "an executor that neither launches nor renders is of no use"
        assert able.stop or not able.launch, "what can be launched must be possible to stop"
        assert able.adjust or not able.live, "live changes are changes: set adjust as well"

    def test_a_plan_is_rendered(self, executor: Executor, launch_plan: Plan) -> None:
        """Text in the form claimed, always the same."""
        self.need(executor, "render")
        text = executor.render(launch_plan)
        assert text.strip(), "render gave no text"
        if self.renders == "yaml":
            assert any(yaml.safe_load_all(text)), "the YAML holds nothing"
        elif self.renders == "json":
            assert json.loads(text), "the JSON holds nothing"
        assert executor.render(launch_plan) == text, "the same plan was rendered in two ways"

    def test_a_launched_job_trains(self, executor: Executor, launch_plan: Plan, handle: Handle) -> None:
        """The handle can be written down; replicas are as planned and samples grow."""
        assert (handle.executor, handle.job) == (executor.name, launch_plan.job.name)
        assert Handle.model_validate_json(handle.model_dump_json()) == handle
        self.until_counts(executor, handle, launch_plan.target)
        self.until_trained_more(executor, handle)
        assert not executor.wait(handle, 0.01), "the job has ended already: give launch_plan more samples"

    def test_an_adjusted_job_has_the_new_replicas_and_trains_on(
        self, executor: Executor, handle: Handle, adjust_plan: Plan
    ) -> None:
        """`observe` shows the counts of the new target."""
        self.need(executor, "adjust")
        executor.adjust(handle, adjust_plan)
        self.until_counts(executor, handle, adjust_plan.target)
        self.until_trained_more(executor, handle)

    def test_a_replica_that_is_migrated_has_another_in_its_place(
        self, executor: Executor, handle: Handle, launch_plan: Plan, adjust_plan: Plan
    ) -> None:
        """Of a name that was not there before; counts stay, and the job trains on. A stranger is refused."""
        self.need(executor, "migrate")
        self.until_counts(executor, handle, launch_plan.target)
        before = {replica.name for replica in executor.observe(handle).replicas}
        gone = max(before)
        same = {"target": launch_plan.target, "current": launch_plan.target}
        with pytest.raises(InputError):
            executor.adjust(handle, adjust_plan.model_copy(update=same | {"migrate": ("worker-999",)}))
        plan = adjust_plan.model_copy(update=same | {"migrate": (gone,)})
        assert executor.change_cost(plan).upper > 0, "migrating is a change"
        executor.adjust(handle, plan)
        after = {replica.name for replica in executor.observe(handle).replicas}
        assert gone not in after
        assert len(after - before) == 1
        assert counts(executor.observe(handle)) == wanted(launch_plan.target)
        self.until_trained_more(executor, handle)

    def test_look_ups_are_evened_out_at_the_target(
        self, executor: Executor, handle: Handle, launch_plan: Plan, adjust_plan: Plan
    ) -> None:
        """The outcome tells of it, and the job trains on. A job of one PS is refused."""
        self.need(executor, "rebalance")
        plan, same = adjust_plan.model_copy(update={"rebalance": True}), {"current": adjust_plan.target}
        assert executor.change_cost(plan.model_copy(update=same)).upper > 0, "rebalancing is a change"
        one = plan.target.model_copy(update={"ps": (plan.target.ps[0].model_copy(update={"replicas": 1}),)})
        with pytest.raises(InputError):
            executor.adjust(handle, plan.model_copy(update={"target": one}))
        if plan.target.replicas("ps") < 2:
            pytest.skip("adjust_plan has no second PS to take any look-ups")
        executor.adjust(handle, plan)
        self.until_counts(executor, handle, plan.target)
        self.until_trained_more(executor, handle)
        changes = [change.kind for change in executor.stop(handle).changes]
        assert changes[-1:] == ["rebalance"], f"the outcome tells of other changes last: {changes}"

    def test_a_plan_is_carried_out_once(
        self, executor: Executor, handle: Handle, launch_plan: Plan, adjust_plan: Plan
    ) -> None:
        """Whoever hands it over again gets what there is; another under the same id is refused."""
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

    def test_keep_changes_nothing(self, executor: Executor, launch_plan: Plan, handle: Handle) -> None:
        """Counts stay, training goes on."""
        self.need(executor, "adjust")
        self.until_counts(executor, handle, launch_plan.target)
        executor.adjust(handle, _keep(launch_plan))
        assert counts(executor.observe(handle)) == wanted(launch_plan.target)
        self.until_trained_more(executor, handle)

    def test_a_cool_down_is_kept(self, executor: Executor, launch_plan: Plan, adjust_plan: Plan) -> None:
        """Within it a change is refused, and keeping is not."""
        self.need(executor, "launch", "adjust", "observe", "stop")
        handle = executor.launch(launch_plan.model_copy(update={"cooldown_s": 86400.0}))
        try:
            with pytest.raises(InputError):
                executor.adjust(handle, adjust_plan)
            self.until_counts(executor, handle, launch_plan.target)
            executor.adjust(handle, _keep(launch_plan))
        finally:
            executor.stop(handle)

    def test_a_stopped_job_has_one_outcome_and_is_over(
        self, executor: Executor, handle: Handle, launch_plan: Plan, adjust_plan: Plan
    ) -> None:
        """A second stop tells the same; nothing else is answered."""
        self.until_trained_more(executor, handle)
        outcome = executor.stop(handle)
        assert isinstance(outcome, Outcome), "stop must return an Outcome"
        assert outcome.status in ("stopped", "finished"), f"a healthy job was stopped: {outcome}"
        assert outcome.samples > 0, "it had trained samples, and the outcome tells of none"
        assert executor.stop(handle) == outcome, "a second stop must return the same outcome"
        assert executor.wait(handle, 0.01), "a stopped job has ended"
        with pytest.raises(InputError):
            executor.observe(handle)
        if executor.capabilities.adjust:
            for plan in (adjust_plan, _keep(launch_plan)):
                with pytest.raises(InputError):
                    executor.adjust(handle, plan)

    def test_plans_of_the_wrong_kind_are_refused(
        self, executor: Executor, handle: Handle, launch_plan: Plan, adjust_plan: Plan
    ) -> None:
        """Nor is a plan made for another state of the job carried out."""
        for plan in (adjust_plan, _keep(launch_plan)):
            with pytest.raises(InputError):
                executor.launch(plan)
        if executor.capabilities.adjust:
            other = launch_plan.target.model_copy(update={"batch_size": launch_plan.target.batch_size + 1})
            stale = adjust_plan.model_copy(update={"current": other})
            for plan in (launch_plan, stale):
                with pytest.raises(InputError):
                    executor.adjust(handle, plan)
        assert counts(executor.observe(handle)) == wanted(launch_plan.target)

    def test_an_unknown_handle_is_refused(self, executor: Executor, launch_plan: Plan, adjust_plan: Plan) -> None:
        """One sentence, and what to do."""
        nobody = Handle(executor=executor.name, id="nobody-0", job=launch_plan.job.name)
        for capability, call in _calls(executor, nobody, launch_plan, adjust_plan):
            if getattr(executor.capabilities, capability) and capability not in ("launch", "render"):
                with pytest.raises(InputError) as caught:
                    call()
                assert caught.value.remedy, f"{capability}: say what to do"

    def test_what_it_cannot_do_it_refuses(self, executor: Executor, launch_plan: Plan, adjust_plan: Plan) -> None:
        """UnsupportedError for every capability that is not claimed."""
        handle = Handle(executor=executor.name, id="nobody-0", job=launch_plan.job.name)
        for capability, call in _calls(executor, handle, launch_plan, adjust_plan):
            if not getattr(executor.capabilities, capability):
                with pytest.raises(UnsupportedError):
                    call()

    def test_a_change_has_its_cost(self, executor: Executor, launch_plan: Plan, adjust_plan: Plan) -> None:
        """An interval around the seconds; 0 where nothing changes."""
        for plan in (launch_plan, adjust_plan):
            cost = executor.change_cost(plan)
            assert 0 <= cost.lower <= cost.seconds <= cost.upper
            assert cost.upper > 0, "no change is certain to take no time"
        same = adjust_plan.model_copy(update={"current": adjust_plan.target})
        for plan in (_keep(launch_plan), same):
            assert executor.change_cost(plan).upper == 0, "where nothing changes the cost is 0"

    def need(self, executor: Executor, *capabilities: str) -> None:
        """Skip the test unless the executor has these."""
        for capability in capabilities:
            if not getattr(executor.capabilities, capability):
                pytest.skip(f"the {executor.name} executor does not claim to {capability}")

    def until_counts(self, executor: Executor, handle: Handle, allocation: Allocation) -> None:
        """Wait until `observe` shows as many replicas as the allocation has."""
        told = self._until(executor, handle, lambda metrics: counts(metrics) == wanted(allocation))
        assert told is None, f"wanted (workers, PS) {wanted(allocation)}, saw {told and counts(told)}"

    def until_trained_more(self, executor: Executor, handle: Handle) -> None:
        """Wait until every worker has trained further."""
        before = {worker.index: worker.samples for worker in executor.observe(handle).of("worker")}
        told = self._until(
            executor, handle, lambda now: all(w.samples > before.get(w.index, 0) for w in now.of("worker"))
        )
        assert told is None, f"no further samples of every worker: {before}, then {told}"

    def _until(self, executor: Executor, handle: Handle, reached: Callable[[Metrics], bool]) -> Metrics | None:
        """None once `reached`; after `timeout_s`, the metrics seen last."""
        for _ in range(max(1, round(self.timeout_s / self.poll_s))):
            metrics = executor.observe(handle)
            if reached(metrics):
                return None
            self.sleep(executor, self.poll_s)
        return metrics


def counts(metrics: Metrics) -> tuple[int, int]:
    """Workers and PS that were seen."""
    return len(metrics.of("worker")), len(metrics.of("ps"))


def wanted(allocation: Allocation) -> tuple[int, int]:
    """Workers and PS that were asked for."""
    return allocation.replicas("worker"), allocation.replicas("ps")


def _keep(launch_plan: Plan) -> Plan:
    return launch_plan.model_copy(update={"id": "keep-0", "kind": "keep", "current": launch_plan.target})


def _calls(
    executor: Executor, handle: Handle, launch_plan: Plan, adjust_plan: Plan
) -> list[tuple[str, Callable[[], object]]]:
    """Every method that needs a capability."""
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
