"""A run that a control loop watches; it is trained by an executor in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from beside_runs import JOB, ONE, rate, tuner_of

from sizewright import api
from sizewright.datasets.finished import FinishedJob
from sizewright.datasets.trials import Trial
from sizewright.errors import EngineError, InputError, UnsupportedError
from sizewright.executors.guarded import Guarded
from sizewright.executors.ledger import Ledger
from sizewright.executors.plan_files import launch_plan
from sizewright.executors.run import Look, Running, run_plan
from sizewright.recommender.decisions import Decision
from sizewright.recommender.scaler import AutoScaler
from sizewright.spec import Capabilities, Handle, Metrics, Outcome, Plan, Rails, RoleRails
from sizewright.testing import FakeExecutor


def run(*, tuned: bool) -> tuple[FakeExecutor, Outcome, FinishedJob, list[Decision]]:
    fake, kept, decided = FakeExecutor(throughput=rate), list[FinishedJob](), list[Decision]()

    plan = Plan(id="p", kind="launch", job=JOB, target=ONE, reason="")
    outcome = run_plan(
        fake, plan, record=kept.append, tune=tuner_of(fake) if tuned else None, decided=decided.append, every_s=1,
        clock=fake.clock,
    )  # fmt: skip
    (told,) = kept
    return fake, outcome, told, decided


def test_a_job_that_asked_for_too_little_ends_sooner_and_each_allocation_is_in_the_history() -> None:
    _, plain, alone, _ = run(tuned=False)
    _, outcome, told, decided = run(tuned=True)
    assert (plain.status, outcome.status) == ("finished", "finished")
    assert (plain.samples, outcome.samples) == (1_000_000, 1_000_000)
    assert outcome.duration_s < 0.4 * plain.duration_s
    assert len(alone.stretches) == 1
    assert [s.allocation for s in told.stretches] == [ONE, *(d.target for d in decided if d.applied)]
    assert told.stretches[0].throughput == pytest.approx(1000.0, rel=0.01)
    assert told.stretches[-1].throughput == pytest.approx(rate(told.stretches[-1].allocation), rel=0.05)
    assert 15 < len(decided) < 60


def test_an_executor_that_cannot_change_jobs_tunes_none() -> None:
    fake = FakeExecutor(capabilities=Capabilities(launch=True, observe=True, stop=True))
    plan = Plan(id="p", kind="launch", job=JOB, target=ONE, reason="")
    with pytest.raises(UnsupportedError, match="cannot adjust"):
        run_plan(fake, plan, tune=lambda *_: pytest.fail("never made"))
    assert [call.method for call in fake.calls] == []


def test_whatever_goes_wrong_in_a_turn_the_job_trains_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(FakeExecutor, "change_cost", _unknown)
    _, outcome, _, _ = run(tuned=True)
    assert (outcome.status, outcome.samples) == ("finished", 1_000_000)
    assert "A turn was cut short, and the job trains on: Nobody knows." in caplog.text


def test_what_cannot_be_fitted_is_told_and_the_job_trains_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refit(scaler: AutoScaler, evidence: list[Trial], workers: int) -> str:
        if evidence:
            raise np.linalg.LinAlgError("Singular matrix")
        return fit(scaler, evidence, workers)

    fit = AutoScaler.refit
    monkeypatch.setattr(AutoScaler, "refit", refit)
    _, outcome, _, decided = run(tuned=True)
    assert outcome.status == "finished"
    assert "cannot be fitted (Singular matrix)" in decided[-1].reason


def test_whatever_looks_at_a_job_may_fail_and_looks_at_what_cannot_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A companion that fails ends no job; while the job tells nothing, companions and its loop go on."""
    seen, decided, observe = list[Metrics | None](), list[Decision](), FakeExecutor.observe

    def companion(_: Running) -> Look:
        def look(metrics: Metrics | None) -> None:
            seen.append(metrics)
            raise OSError("No space left on device")

        return look

    def some(fake: FakeExecutor, handle: Handle) -> Metrics:
        if 100 < fake.clock() < 150:
            raise EngineError("It does not answer.")
        return observe(fake, handle)

    monkeypatch.setattr(FakeExecutor, "observe", some)
    fake = FakeExecutor(throughput=rate)
    outcome = run_plan(
        fake, Plan(id="p", kind="launch", job=JOB, target=ONE, reason=""), tune=tuner_of(fake), every_s=1,
        clock=fake.clock, companions=[companion], decided=decided.append,
    )  # fmt: skip
    assert outcome.status == "finished"
    assert sum(metrics is None for metrics in seen) >= 30
    blind = [decision for decision in decided if decision.kind == "blind"]
    assert any("the job tells nothing (It does not answer)" in decision.reason for decision in blind)


def _unknown(*_: object) -> None:
    raise EngineError("Nobody knows.")


def test_rails_hold_for_what_is_run_and_its_plans_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZEWRIGHT_STORE", f"sqlite:///{tmp_path}/store.db")
    ledger, fake = tmp_path / "ledger.jsonl", FakeExecutor(throughput=rate)
    plan = launch_plan(JOB, ONE)
    with pytest.raises(InputError, match=r"worker\.replicas is 1, and 2 to 9 may be"):
        api.run(plan, executor=fake, rails=Rails(worker=RoleRails(replicas=(2, 9))), ledger=ledger)
    assert fake.calls == []
    for _ in range(2):  # the same plan may be trained anew
        assert api.run(plan, executor=fake, ledger=ledger).status == "finished"
    assert [entry.became for entry in Ledger(ledger).read() if entry.became != "trains"] == [
        "refused", "applied", "applied"
    ]  # fmt: skip


def test_the_loop_is_held_to_rails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIZEWRIGHT_STORE", f"sqlite:///{tmp_path}/store.db")
    fake, decided = FakeExecutor(throughput=rate), list[Decision]()
    most = ONE.replicas("worker")
    rails = Rails(worker=RoleRails(replicas=(1, most)))
    guarded = Guarded(fake, rails=rails, clock=fake.clock)
    plan = launch_plan(JOB, ONE)
    run_plan(guarded, plan, clock=fake.clock, tune=tuner_of(guarded), decided=decided.append, every_s=1)  # type: ignore[arg-type]
    refused = [decision for decision in decided if "guard rails" in decision.error]
    assert refused, "it wants more workers, which is refused"
    assert all(
        call.plan.target.replicas("worker") <= most for call in fake.calls if call.plan and call.method == "adjust"
    )
