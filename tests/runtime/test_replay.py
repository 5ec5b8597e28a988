"""A loop replays recorded metrics."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import sizewright as sw
from sizewright.datasets.trials.store import TrialStore
from sizewright.errors import StoreError
from sizewright.recommender.control.decisions import Decision, DecisionLog
from sizewright.runtime.metrics_log import MetricsLog, Observed
from sizewright.runtime.replay import ReplayExecutor
from sizewright.runtime.tuning import Tuning
from sizewright.spec import Handle, Metrics
from tests.helpers.fake_runs import JOB, ONE, START, rate, recorded_in, run_with, trials

HANDLE = Handle(executor="replay", id="r", job="ctr")


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return recorded_in(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> str:
    with TrialStore(tmp_path / "trials.db") as opened:
        for trial in trials():
            opened.add(trial)
    return str(tmp_path / "trials.db")


def rewritten(path: Path, at_s: list[float]) -> None:
    observations = MetricsLog(path).read()
    path.unlink()
    for seconds, observation in zip(at_s, observations, strict=False):
        MetricsLog(path).append(observation.model_copy(update={"at_s": seconds}))


def kinds(decisions: list[Decision]) -> list[str]:
    return [decision.kind for decision in decisions]


def test_replay_decides_what_a_loop_would_have_done(recorded: Path, store: str, tmp_path: Path) -> None:
    log, plans = tmp_path / "d.jsonl", tmp_path / "plans"
    decisions = sw.tune(JOB, replay=recorded, store=store, how=Tuning(decisions=log), plans=plans)
    adjustments = [decision for decision in decisions if decision.kind == "adjust"]
    assert adjustments
    assert {decision.applied for decision in adjustments} == {None}
    assert adjustments[0].target is not None
    assert rate(adjustments[0].target) > 2 * rate(ONE)
    assert {decision.allocation for decision in decisions} == {ONE}
    assert DecisionLog(log).read() == decisions
    assert sw.Plan.load(next(plans.iterdir())).target in [decision.target for decision in adjustments]
    again = sw.tune(JOB, replay=recorded, store=store, how=Tuning(decisions=log))
    assert [decision.reason for decision in again] == [
        decision.reason for decision in decisions
    ]  # the log of decisions does not change the result


def test_same_file_gives_the_same_decisions(recorded: Path, store: str) -> None:
    def plain() -> list[tuple[object, ...]]:
        return [(d.number, d.at, d.kind, d.reason, d.target) for d in sw.tune(JOB, replay=recorded, store=store)]

    assert plain() == plain()


def test_invalid_lines_are_skipped_with_a_warning(recorded: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = recorded.read_text().splitlines()
    lines[3] = lines[3].replace('"samples_trained": ', '"samples_trained": NaN, "was": ')
    recorded.write_text("\n".join(lines))
    ReplayExecutor.load(recorded)
    assert f"1 line of {recorded} cannot be read and is skipped." in caplog.text


def test_dry_run_proposes_one_change_until_it_learns_more(recorded: Path, store: str, tmp_path: Path) -> None:
    decisions = sw.tune(JOB, replay=recorded, store=store, plans=tmp_path)
    adjustments = [decision for decision in decisions if decision.kind == "adjust"]
    assert len(list(tmp_path.iterdir())) < 0.2 * len(adjustments)


def test_expensive_changes_are_not_proposed(recorded: Path, store: str) -> None:
    assert "adjust" not in kinds(sw.tune(JOB, replay=recorded, store=store, change_s=1e6))


@pytest.mark.parametrize(
    ("at_s", "expected"),
    [
        ([0, 2, 4, 6, 8], "the first observation"),
        ([100, 102, 104, 50, 52, 54], "the clock did not advance"),
        ([0, 2, float("nan"), 4, 6], "the clock returned nan"),
    ],
)
def test_clock_jumps_are_skipped(recorded: Path, store: str, at_s: list[float], expected: str) -> None:
    rewritten(recorded, at_s)
    decisions = sw.tune(JOB, replay=recorded, store=store)
    assert len(decisions) == len(at_s)
    assert any(expected in decision.reason for decision in decisions if decision.kind == "blind")
    assert decisions[-1].kind != "blind"


def test_invalid_numbers_are_recorded_and_not_trusted(recorded: Path, store: str) -> None:
    observations = MetricsLog(recorded).read()[:3]
    broken = observations[1].metrics.replicas[0].model_copy(update={"cpu_s": float("nan")})
    metrics = observations[1].metrics.model_copy(update={"replicas": (broken, *observations[1].metrics.replicas[1:])})
    log = MetricsLog(recorded.with_name("nan.jsonl"))
    for number, observed in enumerate([observations[0].metrics, metrics]):
        log.append(Observed(at=START, at_s=10.0 * number, metrics=observed))
    decisions = sw.tune(JOB, replay=log.path, store=store)
    assert kinds(decisions) == ["blind", "blind"]
    assert "reports invalid numbers" in decisions[-1].reason


def test_observation_stays_until_wait_moves_on(recorded: Path) -> None:
    observations = [
        Observed(at=START + timedelta(seconds=at), at_s=at, metrics=Metrics(replicas=(), samples_trained=int(at)))
        for at in (0.0, 1.0, 2.5, 3.0)
    ]
    replay, samples = ReplayExecutor(observations), list[int]()
    while not replay.wait(HANDLE, 2.0):
        samples.append(replay.observe(HANDLE).samples_trained)
    assert (samples, replay.clock(), replay.now()) == ([2], 2.5, START + timedelta(seconds=2.5))


@pytest.mark.parametrize("junk", [b"", b"junk", b'{"at_s": 1}\n', b"\xff\x00\n[]\n"])
def test_file_without_metrics_raises_store_error(tmp_path: Path, junk: bytes) -> None:
    (tmp_path / "junk").write_bytes(junk)
    with pytest.raises(StoreError, match="holds no observation of a job"):
        ReplayExecutor.load(tmp_path / "junk")
    with pytest.raises(StoreError, match="No recorded metrics at"):
        ReplayExecutor.load(tmp_path / "none")
    with pytest.raises(StoreError, match="Cannot read metrics from"):
        ReplayExecutor.load(tmp_path)


def test_unwritable_metrics_file_does_not_stop_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert run_with([MetricsLog(tmp_path).observer]).status == "finished"
    assert caplog.text.count("The metrics are not recorded") == 1
