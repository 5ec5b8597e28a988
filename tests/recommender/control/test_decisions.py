from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from sizewright.datasets.trials.trial import Trial
from sizewright.errors import StoreError
from sizewright.recommender.control.decisions import Decision, DecisionLog
from sizewright.spec import Allocation, Job

ONE, TWO = Allocation.of(1, 1, 1.0, 1.0, 512), Allocation.of(2, 1, 1.0, 1.0, 512)


def decision(number: int) -> Decision:
    return Decision(
        number=number, at=datetime(2026, 1, 1, tzinfo=timezone.utc), job_hash="abc", kind="adjust", stage="scale",
        reason="it is twice as fast", allocation=ONE, target=TWO, plan_id="p-1", applied=True, throughput=1234.5,
        evidence=Trial(workers=1, ps=1, throughput=1234.5), timings_s={"observe": 0.01},
    )  # fmt: skip


def test_decisions_are_read_back(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "decisions.jsonl")
    assert log.read() == []
    for number in range(3):
        log.append(decision(number))
    assert DecisionLog(log.path).read() == [decision(number) for number in range(3)]
    assert len(log.path.read_text().splitlines()) == 3


@pytest.mark.parametrize("cut", [1, 20, -1])
def test_truncated_line_loses_itself_only(tmp_path: Path, cut: int) -> None:
    log = DecisionLog(tmp_path / "decisions.jsonl")
    log.append(decision(0))
    size = log.path.stat().st_size
    log.append(decision(1))
    text = log.path.read_bytes()
    log.path.write_bytes(text[: size + cut] if cut > 0 else text[:cut])
    log.append(decision(2))
    assert [each.number for each in log.read()] in ([0, 2], [0, 1, 2])
    assert log.read()[-1] == decision(2)


def test_unusable_file_raises_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="Cannot write decisions to"):
        DecisionLog(tmp_path / "no" / "such.jsonl").append(decision(0))
    with pytest.raises(StoreError, match="Cannot read decisions from"):
        DecisionLog(tmp_path).read()


def test_decision_converts_to_a_plan() -> None:
    plan = decision(0).plan(Job(name="ctr"))
    assert (plan.id, plan.kind, plan.current, plan.target) == ("p-1", "adjust", ONE, TWO)
    keep = decision(7).model_copy(update={"kind": "keep", "plan_id": "", "reason": "It stays."}).plan(Job(name="ctr"))
    assert (keep.id, keep.kind, keep.target, keep.reason) == ("keep-7", "keep", ONE, "It stays.")
    assert keep.changes_nothing
