"""The slurm executor over a real slurmctld and two slurmd."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sizewright.errors import InputError
from sizewright.executors.slurm.commands import SlurmCli
from sizewright.executors.slurm.executor import SlurmExecutor
from sizewright.formatting import MIB
from sizewright.spec import Allocation, Executor, Handle, Job, Metrics, Plan, Training
from sizewright.spec.command import Command, Progress
from sizewright.testing import ExecutorContract
from tests.helpers.slurm_testbed import MEMORY_MIB, slurm

pytestmark = pytest.mark.long

PROGRAM = """
import os, signal, socket, sys, time
from sizewright import log_samples
role, index = os.environ["JOB_NAME"], int(os.environ["TASK_INDEX"])
mine = os.environ[f"{role.upper()}_HOSTS"].split(",")[index].rsplit(":", 1)
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
print("start", os.environ["SIZEWRIGHT_RESTARTS"], flush=True)
if role == "ps":
    server = socket.create_server((mine[0], int(mine[1])))
    while not ended:
        time.sleep(0.02)
else:
    for ps in os.environ["PS_HOSTS"].split(","):
        host, port = ps.rsplit(":", 1)
        while True:
            try:
                socket.create_connection((host, int(port))).close()
                break
            except OSError:
                time.sleep(0.05)
    steps = 0
    while not ended and steps != int(os.environ.get("STEPS", "-1")):
        time.sleep(0.01)
        until = time.perf_counter() + 0.01
        while time.perf_counter() < until:
            pass
        log_samples(int(os.environ["SIZEWRIGHT_BATCH_SIZE"]))
        steps += 1
        print("steps", steps, flush=True)
    if os.environ.get("FAILS"):
        print("table users: out of range", flush=True)
        sys.exit(9)
open(f"{role}-{index}-saved", "w").close()
"""
FROM, TO = Allocation.of(1, 1, 0.4, 1, 64, 64 * MIB, 64 * MIB), Allocation.of(2, 2, 0.5, 1, 64, 64 * MIB, 64 * MIB)


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    with slurm() as env:
        yield env


@pytest.fixture(autouse=True)
def slurm_environment(cluster: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in cluster.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    (tmp_path / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)


def job(folder: Path, progress: Progress = Progress(), **env: str) -> Job:  # noqa: B008
    command = Command(
        run=(sys.executable, "train.py"), rendezvous="hosts", folder=str(folder), env=env, grace_s=5.0,
        progress=progress,
    )  # fmt: skip
    return Job(name="ctr", command=command, training=Training(batch_size=64))


def launching(folder: Path, target: Allocation = FROM, **env: str) -> Plan:
    return Plan(id="p-1", kind="launch", job=job(folder, **env), target=target, reason="best")


def adjusting(folder: Path, target: Allocation = TO, current: Allocation = FROM) -> Plan:
    return Plan(id="p-2", kind="adjust", job=job(folder), current=current, target=target, reason="more samples")


def until(executor: Executor, handle: Handle, reached: Callable[[Metrics], bool], patience_s: float = 40.0) -> Metrics:
    until_s = time.monotonic() + patience_s
    while not reached(metrics := executor.observe(handle)):
        assert time.monotonic() < until_s, metrics
        time.sleep(0.2)
    return metrics


def trains(workers: int) -> Callable[[Metrics], bool]:
    return lambda metrics: [worker.samples > 0 for worker in metrics.of("worker")] == [True] * workers


class TestContract(ExecutorContract):
    renders = "text"

    @pytest.fixture
    def executor(self, tmp_path: Path) -> Executor:
        return SlurmExecutor(folder=tmp_path / "jobs")

    @pytest.fixture
    def launch_plan(self, tmp_path: Path) -> Plan:
        return launching(tmp_path)

    @pytest.fixture
    def adjust_plan(self, tmp_path: Path) -> Plan:
        return adjusting(tmp_path)

    @pytest.fixture
    def handle(self, executor: Executor, launch_plan: Plan) -> Iterator[Handle]:
        """A launch returns once Slurm has queued it."""
        handle = executor.launch(launch_plan)
        until(executor, handle, trains(1))
        yield handle
        executor.stop(handle)


def test_several_processes_launch_observe_change_and_stop_a_job(tmp_path: Path) -> None:
    executor = SlurmExecutor(folder=tmp_path / "jobs")
    plan, change = launching(tmp_path), adjusting(tmp_path)
    handle = executor.launch(plan)
    assert executor.launch(plan) == handle
    assert SlurmExecutor(folder=tmp_path / "jobs").launch(plan) == handle  # from another process
    metrics = until(executor, handle, lambda m: trains(1)(m) and m.replicas[0].memory_peak_bytes > 0)
    assert metrics.allocation
    assert [(role, g.replicas, g.cpu) for role, g in metrics.allocation.groups] == [("worker", 1, 1), ("ps", 1, 1)]
    assert MIB < metrics.replicas[0].memory_peak_bytes < 500 * MIB
    assert abs(metrics.of("worker")[0].last_step_at_s - time.time()) < 5
    assert executor.change_cost(change).changes == 0

    other = SlurmExecutor(folder=tmp_path / "jobs")
    before = other.observe(handle).samples_trained
    other.adjust(handle, change)
    assert {path.name for path in tmp_path.glob("*-saved")} == {"worker-0-saved", "ps-0-saved"}  # it had its grace
    other.adjust(handle, change)  # which was carried out already
    metrics = until(other, handle, lambda m: trains(2)(m) and len(m.of("ps")) == 2)
    assert metrics.samples_trained > before + 2 * 64
    assert (tmp_path / "jobs" / handle.id / "start-1" / "worker-1" / "output").read_text().startswith("start 1\n")
    until(other, handle, lambda _: other.change_cost(change).changes == 1)
    assert other.change_cost(change).seconds < 60
    until(other, handle, lambda m: m.of("worker")[0].cpu_s > 0, 15.0)

    outcome = other.stop(handle)
    assert (outcome.status, [c.kind for c in outcome.changes]) == ("stopped", ["restart"])
    assert outcome.samples >= metrics.samples_trained
    assert SlurmExecutor(folder=tmp_path / "jobs").stop(handle) == outcome
    assert SlurmCli().find("sizewright:p-2") == []


def test_refused_change_leaves_the_job_unchanged(tmp_path: Path) -> None:
    executor = SlurmExecutor(folder=tmp_path / "jobs")
    handle = executor.launch(launching(tmp_path))
    before = until(executor, handle, trains(1)).samples_trained
    too_much = Allocation.of(1, 1, 1, 1, 64, (MEMORY_MIB + 1) * MIB, 64 * MIB)
    with pytest.raises(InputError, match=r"Slurm refused the request\. sbatch: .*not available"):
        executor.adjust(handle, adjusting(tmp_path, too_much))
    executor.may_restart = False
    with pytest.raises(InputError, match="which is not allowed"):
        executor.adjust(handle, adjusting(tmp_path))
    executor.may_restart = True
    until(executor, handle, lambda m: m.samples_trained > before and m.allocation is not None)
    second = launching(tmp_path, too_much).model_copy(update={"id": "p-9"})
    with pytest.raises(InputError, match=r"There is a job ctr\.p-1 already"):
        executor.launch(second)
    assert executor.stop(handle).changes == ()
    with pytest.raises(InputError, match="Slurm refused the request"):
        executor.launch(second)


def test_previous_job_is_resubmitted_when_its_change_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = SlurmExecutor(folder=tmp_path / "jobs")
    handle = executor.launch(launching(tmp_path))
    before = until(executor, handle, trains(1)).samples_trained
    monkeypatch.setattr(SlurmCli, "check", lambda *_, **__: None)
    with pytest.raises(InputError, match="Slurm refused the request"):
        executor.adjust(handle, adjusting(tmp_path, Allocation.of(1, 1, 1, 1, 64, MEMORY_MIB * 2 * MIB, 64 * MIB)))
    until(executor, handle, lambda m: trains(1)(m) and m.samples_trained > before)
    assert executor.stop(handle).status == "stopped"


def test_outcome_of_a_job_that_ended(tmp_path: Path) -> None:
    executor = SlurmExecutor(folder=tmp_path / "jobs")
    well = executor.launch(launching(tmp_path, STEPS="30"))
    assert executor.wait(well, 60.0)
    assert executor.observe(well).replicas == ()
    with pytest.raises(InputError, match="has ended"):
        executor.adjust(well, adjusting(tmp_path))
    outcome = executor.stop(well)
    assert (outcome.status, outcome.samples) == ("finished", 30 * 64)

    badly = executor.launch(launching(tmp_path, STEPS="3", FAILS="1"))
    assert badly.id != well.id
    assert executor.wait(badly, 60.0)
    outcome = executor.stop(badly)
    assert (outcome.status, outcome.samples) == ("failed", 3 * 64)
    assert "FAILED. worker-0 ended with exit code 9: table users: out of range" in outcome.message


def test_users_base_with_progress_from_its_log(tmp_path: Path) -> None:
    base = tmp_path / "ours.sh"
    base.write_text(
        "#!/bin/bash\n#SBATCH --partition=all -n1\n\necho ours\n"
        '"$SIZEWRIGHT_PYTHON" -m sizewright.executors.slurm.step\n'
    )
    progress = Progress(source="regex", pattern=r"steps (?P<steps>\d+)")
    plan = launching(tmp_path, Allocation.of(2, 0, 1, 1, 32))
    words = (sys.executable, "-c", "import time\nfor i in range(1, 10**6): print('steps', i); time.sleep(0.05)")
    command = job(tmp_path, progress).command
    assert command
    command = command.model_copy(update={"run": words, "rendezvous": "torchrun"})
    plan = plan.model_copy(update={"job": job(tmp_path).model_copy(update={"command": command})})
    executor = SlurmExecutor(folder=tmp_path / "jobs", base=base)
    handle = executor.launch(plan)
    metrics = until(executor, handle, trains(2))
    assert metrics.samples_trained % 32 == 0
    assert executor.stop(handle).status == "stopped"
    assert (tmp_path / "jobs" / handle.id / "start-0" / "job.log").read_text().startswith("ours\n")
