"""A control loop tunes runs of the fake executor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sizewright import api
from sizewright.datasets.runs.finished_job import FinishedJob
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import EngineError, InputError, UnsupportedError
from sizewright.recommender.control.decisions import Decision
from sizewright.recommender.control.scaler import AutoScaler
from sizewright.runtime.audit_log import AuditLog
from sizewright.runtime.guardrail_executor import GuardrailExecutor
from sizewright.runtime.plan_files import launch_plan
from sizewright.runtime.run import MetricsCallback, Running, run_plan
from sizewright.spec import Capabilities, Handle, Metrics, Outcome, Plan, Rails, RoleRails
from sizewright.testing import FakeExecutor
from tests.helpers.fake_runs import JOB, ONE, controller_of, rate


def run(*, tuned: bool) -> tuple[FakeExecutor, Outcome, FinishedJob, list[Decision]]:
    fake, records, decided = FakeExecutor(throughput=rate), list[FinishedJob](), list[Decision]()

    plan = Plan(id="p", kind="launch", job=JOB, target=ONE, reason="")
    outcome = run_plan(
        fake, plan, record=records.append, tune=controller_of(fake) if tuned else None, on_decision=decided.append,
        every_s=1, clock=fake.clock,
    )  # fmt: skip
    (record,) = records
    return fake, outcome, record, decided


def test_undersized_job_ends_sooner_and_records_each_allocation() -> None:
    _, untuned_outcome, untuned, _ = run(tuned=False)
    _, outcome, record, decided = run(tuned=True)
    assert (untuned_outcome.status, outcome.status) == ("finished", "finished")
    assert (untuned_outcome.samples, outcome.samples) == (1_000_000, 1_000_000)
    assert outcome.duration_s < 0.4 * untuned_outcome.duration_s
    assert len(untuned.stretches) == 1
    assert [s.allocation for s in record.stretches] == [ONE, *(d.target for d in decided if d.applied)]
    assert record.stretches[0].throughput == pytest.approx(1000.0, rel=0.01)
    assert record.stretches[-1].throughput == pytest.approx(rate(record.stretches[-1].allocation), rel=0.05)
    assert 15 < len(decided) < 60


def test_executor_without_adjust_cannot_tune() -> None:
    fake = FakeExecutor(capabilities=Capabilities(launch=True, observe=True, stop=True))
    plan = Plan(id="p", kind="launch", job=JOB, target=ONE, reason="")
    with pytest.raises(UnsupportedError, match="cannot adjust"):
        run_plan(fake, plan, tune=lambda *_: pytest.fail("never made"))
    assert [call.method for call in fake.calls] == []


def test_failed_turn_does_not_stop_the_job(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(FakeExecutor, "change_cost", _unknown)
    _, outcome, _, _ = run(tuned=True)
    assert (outcome.status, outcome.samples) == ("finished", 1_000_000)
    assert "A turn failed, and the job trains on: Nobody knows." in caplog.text


def test_failed_fit_is_recorded_and_the_job_trains_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refit(scaler: AutoScaler, evidence: list[Trial], workers: int) -> str:
        if evidence:
            raise np.linalg.LinAlgError("Singular matrix")
        return fit(scaler, evidence, workers)

    fit = AutoScaler.refit
    monkeypatch.setattr(AutoScaler, "refit", refit)
    _, outcome, _, decided = run(tuned=True)
    assert outcome.status == "finished"
    assert "could not be fitted to the run (Singular matrix)" in decided[-1].reason


def test_failing_observer_and_failing_observations_do_not_stop_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing observer ends no job; while the job does not answer, observers and the loop go on."""
    observations, decided, observe = list[Metrics | None](), list[Decision](), FakeExecutor.observe

    def observer(_: Running) -> MetricsCallback:
        def on_metrics(metrics: Metrics | None) -> None:
            observations.append(metrics)
            raise OSError("No space left on device")

        return on_metrics

    def some(fake: FakeExecutor, handle: Handle) -> Metrics:
        if 100 < fake.clock() < 150:
            raise EngineError("It does not answer.")
        return observe(fake, handle)

    monkeypatch.setattr(FakeExecutor, "observe", some)
    fake = FakeExecutor(throughput=rate)
    outcome = run_plan(
        fake, Plan(id="p", kind="launch", job=JOB, target=ONE, reason=""), tune=controller_of(fake), every_s=1,
        clock=fake.clock, observers=[observer], on_decision=decided.append,
    )  # fmt: skip
    assert outcome.status == "finished"
    assert sum(metrics is None for metrics in observations) >= 30
    blind = [decision for decision in decided if decision.kind == "blind"]
    assert any("the job cannot be observed (It does not answer)" in decision.reason for decision in blind)


def _unknown(*_: object) -> None:
    raise EngineError("Nobody knows.")


def test_launched_plan_is_checked_against_rails_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZEWRIGHT_STORE", f"sqlite:///{tmp_path}/store.db")
    ledger, fake = tmp_path / "ledger.jsonl", FakeExecutor(throughput=rate)
    plan = launch_plan(JOB, ONE)
    with pytest.raises(InputError, match=r"worker\.replicas is 1 \(allowed: 2 to 9\)"):
        api.run(plan, executor=fake, rails=Rails(worker=RoleRails(replicas=(2, 9))), ledger=ledger)
    assert fake.calls == []
    for _ in range(2):  # the same plan may be run again
        assert api.run(plan, executor=fake, ledger=ledger).status == "finished"
    assert [entry.became for entry in AuditLog(ledger).read() if entry.became != "trains"] == [
        "refused", "applied", "applied"
    ]  # fmt: skip


def test_loop_changes_are_checked_against_rails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZEWRIGHT_STORE", f"sqlite:///{tmp_path}/store.db")
    fake, decided = FakeExecutor(throughput=rate), list[Decision]()
    limit = ONE.replicas("worker")
    rails = Rails(worker=RoleRails(replicas=(1, limit)))
    guarded = GuardrailExecutor(fake, rails=rails, clock=fake.clock)
    plan = launch_plan(JOB, ONE)
    run_plan(guarded, plan, clock=fake.clock, tune=controller_of(guarded), on_decision=decided.append, every_s=1)  # type: ignore[arg-type]
    refused = [decision for decision in decided if "guardrails" in decision.error]
    assert refused, "the loop proposes more workers, which is refused"
    assert all(
        call.plan.target.replicas("worker") <= limit for call in fake.calls if call.plan and call.method == "adjust"
    )
