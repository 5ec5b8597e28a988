from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.errors import JobError
from sizewright.executors.session.local import LocalExecutor, load_plan
from sizewright.spec import Allocation, Bounds, Deploy, Gpu, Group, Job, Plan
from sizewright.testing import ManualClock
from sizewright.testing.fake_session import FakeSession, default_throughput

TARGET = Allocation(
    worker=(Group(replicas=2, cpu=0.5, memory_bytes=2**30, gpu=Gpu(count=1)),),
    ps=(Group(replicas=1, cpu=1, memory_bytes=0), Group(replicas=1, cpu=2, memory_bytes=0)),
    chief=(Group(replicas=1, cpu=1, memory_bytes=1),),
    batch_size=512,
)
PLANS = {
    "launch": Plan(id="p-1", kind="launch", job=Job(name="ctr"), target=TARGET, reason="# best: of\n14 trials ü 🙂"),
    "adjust": Plan(
        id="p-2",
        kind="adjust",
        job=Job(objective="deadline", deadline=3600, bounds=Bounds(batch_size=(1, 2))),
        target=TARGET,
        current=Allocation.of(1, 1, 0.5, 0.5, 128),
        reason="",
        cooldown_s=1e-7,
    ),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_rendered_plan_reads_back_equal(tmp_path: Path, plan: Plan) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(LocalExecutor().render(plan), encoding="utf-8")
    assert Plan.load(path) == plan


@given(text=st.text(max_size=12))
@settings(max_examples=60, deadline=None)
def test_any_text_survives_rendering(text: str) -> None:
    job = Job(deploy=Deploy(image=text, command=(text, "run")))
    plan = PLANS["launch"].model_copy(update={"reason": text, "job": job})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.yaml"
        path.write_text(LocalExecutor().render(plan), encoding="utf-8")
        assert load_plan(path) == plan


def test_header_describes_the_plan_and_how_to_run_it() -> None:
    header = "\n".join(line for line in LocalExecutor().render(PLANS["launch"]).splitlines() if line.startswith("#"))
    assert f"launch {TARGET.describe()}" in header
    for line in (
        'get_executor("local")',
        "executor.launch(load_plan(",
        "executor.observe(handle)",
        "executor.stop(handle)",
    ):
        assert line in header
    assert "adjust(handle, load_plan(" in LocalExecutor().render(PLANS["adjust"])


def test_python_code_of_the_header_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "this-file.yaml"
    path.write_text(LocalExecutor().render(PLANS["launch"]), encoding="utf-8")
    code = [line.removeprefix("#     ") for line in path.read_text().splitlines() if line.startswith("#     ")]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LocalExecutor, "_open", lambda _, job: FakeSession(job, ManualClock(), default_throughput))
    exec("\n".join(code), {})


def test_invalid_plan_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    with pytest.raises(JobError, match="No plan file"):
        Plan.load(path)
    path.write_text(LocalExecutor().render(PLANS["adjust"]).replace("kind: adjust", "kind: adjsut"), encoding="utf-8")
    with pytest.raises(JobError, match="'kind' must be 'launch', 'adjust' or 'keep', got"):
        Plan.load(path)
