from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from sizewright.errors import EngineError, InputError, SizewrightError, StoreError
from sizewright.runtime.audit_log import AuditLog
from sizewright.runtime.guardrail_executor import GuardrailExecutor
from sizewright.spec import Allocation, ChangeCost, Handle, Job, Plan, Rails, RoleRails
from sizewright.spec.reason import Reason
from sizewright.testing import FakeExecutor

JOB = Job(name="ctr")
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
AT, MORE = (Allocation.of(workers, 1, 1.0, 1.0, 512) for workers in (2, 4))
LAUNCH = Plan(id="l-1", kind="launch", job=JOB, target=AT, reason="Chosen.", asked_by="anna")
ADJUST = Plan(id="a-1", kind="adjust", job=JOB, current=AT, target=MORE, reason="More.")


def guarded(folder: Path, fake: FakeExecutor, **rails: RoleRails) -> GuardrailExecutor:
    audit_log = AuditLog(folder / "ledger.jsonl")
    return GuardrailExecutor(
        fake, rails=Rails(**rails), audit_log=audit_log, asked_by="pipeline", clock=fake.clock, now=lambda: NOW
    )  # type: ignore[arg-type]


def methods(fake: FakeExecutor) -> list[str]:
    return [call.method for call in fake.calls if call.method in ("launch", "adjust")]


def test_each_plan_is_applied_once_and_recorded_with_its_requester(tmp_path: Path) -> None:
    fake = FakeExecutor()
    executor = guarded(tmp_path, fake)
    handle = executor.launch(LAUNCH)
    assert executor.launch(LAUNCH) == handle
    executor.adjust(handle, ADJUST)
    executor.adjust(handle, ADJUST)
    assert methods(fake) == ["launch", "adjust"]
    entries = [e for e in AuditLog(tmp_path / "ledger.jsonl").read() if e.became != "trains"]
    assert [(e.plan_id, e.kind, e.became, e.asked_by, e.executor) for e in entries] == [
        ("l-1", "launch", "applied", "anna", "fake"),
        ("a-1", "adjust", "applied", "pipeline", "fake"),
    ]
    assert [(e.at, e.job, e.target, e.handle) for e in entries] == [
        (NOW, "ctr", AT, handle),
        (NOW, "ctr", MORE, handle),
    ]
    assert entries[1].seconds == pytest.approx(0.5)


def test_applied_plan_is_not_applied_by_another_process(tmp_path: Path) -> None:
    first, second = FakeExecutor(), FakeExecutor()
    handle = guarded(tmp_path, first).launch(LAUNCH)
    assert guarded(tmp_path, second).launch(LAUNCH) == handle
    assert methods(second) == []


def test_plan_with_a_known_id_and_another_target_is_refused(tmp_path: Path) -> None:
    executor = guarded(tmp_path, FakeExecutor())
    executor.launch(LAUNCH)
    with pytest.raises(
        InputError, match="Plan l-1 was already applied on 2026-01-01 00:00 with another target"
    ) as caught:
        executor.launch(LAUNCH.model_copy(update={"target": MORE}))
    assert caught.value.remedy


def test_plan_beyond_the_rails_is_recorded_and_not_applied(tmp_path: Path) -> None:
    fake = FakeExecutor()
    executor = guarded(tmp_path, fake, worker=RoleRails(replicas=(1, 3)))
    handle = executor.launch(LAUNCH)
    with pytest.raises(InputError, match=r"worker\.replicas is 4"):
        executor.adjust(handle, ADJUST)
    assert methods(fake) == ["launch"]
    last = AuditLog(tmp_path / "ledger.jsonl").read()[-1]
    assert (last.became, last.why) == (
        "refused", "Plan a-1 violates its guardrails: worker.replicas is 4 (allowed: 1 to 3)."
    )  # fmt: skip
    assert last.details == (Reason.of("replicas_outside_rail", role="worker", replicas=4, min=1, max=3),)


@pytest.mark.parametrize(
    ("error", "result"), [(InputError("No room.", "Wait."), "refused"), (EngineError("It does not answer."), "failed")]
)
def test_plan_that_the_executor_did_not_apply_can_be_retried(
    tmp_path: Path, error: SizewrightError, result: str
) -> None:
    fake = FakeExecutor()
    executor = guarded(tmp_path, fake)
    handle = executor.launch(LAUNCH)
    fake.fail_next("adjust", error)
    with pytest.raises(type(error)):
        executor.adjust(handle, ADJUST)
    executor.adjust(handle, ADJUST)
    assert methods(fake) == ["launch", "adjust", "adjust"]
    results = [e.became for e in AuditLog(tmp_path / "ledger.jsonl").read()]
    assert results == ["trains", "applied", result, "trains", "applied"]


def test_other_attributes_are_those_of_the_executor(tmp_path: Path) -> None:
    fake = FakeExecutor()
    executor = guarded(tmp_path, fake)
    assert (executor.name, executor.capabilities) == (fake.name, fake.capabilities)
    handle = executor.launch(LAUNCH)
    fake.clock.sleep(10)
    assert executor.observe(handle).samples_trained > 0
    assert executor.change_cost(ADJUST).seconds == 0.5
    assert executor.stop(handle).status == "stopped"
    keep = LAUNCH.model_copy(update={"id": "k-1", "kind": "keep", "current": AT})
    with pytest.raises(InputError):
        executor.adjust(handle, keep)
    assert {e.plan_id for e in AuditLog(tmp_path / "ledger.jsonl").read()} == {"l-1"}


def test_change_costs_are_passed_to_the_next_process(tmp_path: Path) -> None:
    class Measuring(FakeExecutor):
        def change_cost(self, plan: Plan) -> ChangeCost:
            return self.change_costs.estimate(plan)

    first = guarded(tmp_path, Measuring())
    first.adjust(first.launch(LAUNCH), ADJUST)
    second = guarded(tmp_path, Measuring())
    assert second.change_cost(ADJUST) == first.change_cost(ADJUST)
    assert (second.change_cost(ADJUST).changes, second.change_cost(LAUNCH).changes) == (1, 1)
    resize = ADJUST.model_copy(update={"target": Allocation.of(2, 1, 2.0, 1.0, 512)})
    assert second.change_cost(resize).changes == 0


def test_interrupted_change_is_recorded_as_failed(tmp_path: Path) -> None:
    class Interrupted(FakeExecutor):
        def adjust(self, handle: Handle, plan: Plan) -> None:
            raise KeyboardInterrupt("The job is in /tmp/x.")

    executor = guarded(tmp_path, Interrupted())
    with pytest.raises(KeyboardInterrupt):
        executor.adjust(executor.launch(LAUNCH), ADJUST)
    last = AuditLog(tmp_path / "ledger.jsonl").read()[-1]
    assert (last.became, last.why) == ("failed", "The job is in /tmp/x.")


def refuse_to_append(*_: object) -> None:
    raise StoreError("The disk is full.", "Free some space.")


def test_change_that_cannot_be_recorded_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeExecutor()
    executor = guarded(tmp_path, fake)
    monkeypatch.setattr(AuditLog, "append", refuse_to_append)
    handle = executor.launch(LAUNCH)
    assert caplog.messages[-1] == (
        f"Plan l-1 was applied as {handle.id}, but not recorded: The disk is full. Free some space."
    )
    fake.fail_next("adjust", EngineError("It does not answer."))
    with pytest.raises(EngineError, match="It does not answer"):
        executor.adjust(handle, ADJUST)
    fake.change_costs.add(ADJUST, 3.0)
    assert caplog.messages[-1].startswith("Plan a-1 trains, but not recorded")
