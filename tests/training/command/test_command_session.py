"""Command sessions run real processes of programs, including many faulty ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from sizewright.errors import (
    EngineError,
    JobError,
    NoReportsError,
    ReplicaDiedError,
    SizewrightError,
    TrialTimeoutError,
)
from sizewright.spec import Allocation
from sizewright.training.command import run
from sizewright.training.command.session import CommandSession
from tests.helpers.stand_in_nvml import StandInGpu, StandInNvml

MakeSession = Callable[..., CommandSession]
ONE, TWO = Allocation.of(1, 0, 0.3, 1.0, 32), Allocation.of(2, 0, 0.3, 1.0, 32)

COUNTS = """
import time
from sizewright import log_samples
while True:
    time.sleep(0.01)
    log_samples(32)
"""
TOUGH = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + COUNTS
PARENT = (
    """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
"""
    + COUNTS
)


def child_pids() -> set[int]:
    """Return the ids of living child processes."""
    children = psutil.Process().children(recursive=True)
    return {child.pid for child in children if child.status() != psutil.STATUS_ZOMBIE}


def groups(of: int | None = None) -> list[str]:
    paths, of = [], of or os.getpid()
    for folder, below, _ in os.walk("/sys/fs/cgroup"):
        paths += [f"{folder}/{name}" for name in below if name.startswith(f"sizewright-{of}-")]
    return paths


def test_session_counts_samples_limits_replicas_and_leaves_nothing(command_session: MakeSession) -> None:
    before, session = child_pids(), command_session(COUNTS)
    session.scale(TWO)
    first, _ = session.observe(), time.sleep(1.0)
    last = session.observe()
    assert last.samples_trained > first.samples_trained > 0
    assert [replica.name for replica in last.replicas] == ["worker-0", "worker-1"]
    for replica in last.replicas:
        assert replica.memory_peak_bytes > 5 << 20
        assert replica.cpu_s > 0
        assert replica.limited_by == ("affinity" if session.whole_cores else "cgroup")
    assert session.allocation == TWO
    session.stop()
    assert session.outcome().status == "stopped"
    assert child_pids() <= before
    assert groups() == []


def test_change_is_a_graceful_timed_restart(command_session: MakeSession, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    program = f"""
import os, signal, sys
def save(*_):
    open({str(folder)!r}, "a").write(os.environ["SIZEWRIGHT_RESTARTS"] + os.environ["WORLD_SIZE"] + " ")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
{COUNTS}"""
    session = command_session(program)
    session.scale(ONE)
    trained = session.observe().samples_trained
    session.scale(TWO)
    assert folder.read_text() == "01 "  # asked to end once, while it was one worker
    assert session.observe().samples_trained > trained
    session.stop()
    (change,) = session.outcome().changes
    assert change.kind == "restart"
    assert change.seconds > 0


def test_samples_until_the_end_count_at_a_change_and_at_a_stop(command_session: MakeSession) -> None:
    program = f"""
import os, signal
def last_step(*_):
    log_samples(10**6)
    os._exit(0)
signal.signal(signal.SIGTERM, last_step)
{COUNTS}"""
    session = command_session(program)
    session.scale(ONE)
    session.scale(TWO)
    assert 10**6 < session.observe().samples_trained < 2 * 10**6
    session.stop()
    assert 3 * 10**6 < session.outcome().samples < 4 * 10**6


def test_job_ends_with_its_workers(command_session: MakeSession) -> None:
    session = command_session("from sizewright import log_samples\nlog_samples(640)\n", samples=640)
    session.scale(TWO)
    assert session.wait(20)
    outcome = session.outcome()
    assert (outcome.status, outcome.samples) == ("finished", 1280)


def test_job_ends_with_its_chief_and_servers_are_stopped(command_session: MakeSession) -> None:
    program = """
import json, os, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
if task["type"] != "chief":
    time.sleep(1000)
for i in range(1, 20):
    time.sleep(0.05)
    print(json.dumps({"samples": 10 * i}), flush=True)
"""
    session = command_session(program, rendezvous="tf_config", chief={"cpu": 0.2, "memory": "1Gi"}, progress="json")
    session.scale(session.job.with_sides(Allocation.of(1, 1, 0.2, 0.2, 32)))
    assert session.wait(30)
    assert session.outcome().samples == 190
    session.stop()
    assert groups() == []


def test_out_of_memory_names_the_replica(command_session: MakeSession) -> None:
    session = command_session(
        "kept = []\n" + COUNTS.replace("while True:", "while True:\n    kept.append(b'x' * (1 << 20))")
    )
    if session.whole_cores:
        pytest.skip("control groups cannot be created on this host")
    session.scale(Allocation.of(1, 0, 0.5, 1.0, 32, worker_memory_bytes=64 << 20))
    with pytest.raises(ReplicaDiedError, match="more memory than it was given") as caught:
        session.wait(30)
    assert caught.value.oom


@pytest.mark.parametrize(
    ("program", "error", "message"),
    [
        ("print('no data here'); raise SystemExit(3)", ReplicaDiedError, "exit code 3 after"),
        ("import os; os.abort()", ReplicaDiedError, "ended by SIGABRT"),
        ("import undreamt_of", ReplicaDiedError, "No module named 'undreamt_of'"),
        ("print('all done')", TrialTimeoutError, "ended and reported no samples"),
        ("import time; print('hm', flush=True); time.sleep(1000)", TrialTimeoutError, "no samples within 1.5 s"),
    ],
)
def test_immediate_failure_shows_the_last_lines(
    command_session: MakeSession, program: str, error: type[SizewrightError], message: str
) -> None:
    before, session = child_pids(), command_session(program, start_s=1.5 if "sleep" in program else 60)
    with pytest.raises(error, match=message) as caught:
        session.scale(TWO)
    text = str(caught.value)
    if "print" in program or "undreamt" in program:
        assert "Its last lines:\n" in text
    log = Path(text.rpartition(": ")[2])
    assert log.exists()
    assert child_pids() <= before
    assert session.outcome().samples == 0


def test_invalid_report_is_quoted(command_session: MakeSession) -> None:
    program = 'import time\nwhile True:\n    print(\'{"samples": "lots"}\', flush=True)\n    time.sleep(0.1)\n'
    session = command_session(program, progress="json", start_s=1.5)
    with pytest.raises(TrialTimeoutError, match=r'It said: \{"samples": "lots"\}'):
        session.scale(ONE)


RANK_0 = COUNTS.replace("    log_samples(32)", "    os.environ['RANK'] == '0' and log_samples(32)").replace(
    "time", "os, time", 1
)


def test_reports_of_rank_0_only_raise_an_early_hint(
    command_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_GRACE_SYNC_S", 0.5)
    session, began = command_session(RANK_0), time.monotonic()
    with pytest.raises(
        NoReportsError, match=r"worker-0 reports samples and worker-1 does not\. Set .*counts to job"
    ) as e:
        session.scale(TWO)
    assert e.value.recurs
    assert time.monotonic() - began < 60  # of 180 that a first report may take
    again = command_session(RANK_0, progress={"source": "log_samples", "counts": "job"})
    again.scale(TWO)
    assert again.observe().samples_trained > 0


def test_progress_bar_with_carriage_returns_reports(command_session: MakeSession) -> None:
    program = """
import sys, time
for i in range(1, 100000):
    time.sleep(0.01)
    sys.stderr.write(f"\\r\\x1b[32m{i / 1000:3.0f}%\\x1b[0m|##   | {i}/100000 [00:01, 99.0it/s]")
    sys.stderr.flush()
"""
    progress = {"source": "regex", "pattern": r"\| (?P<steps>\d+)/\d+ \["}
    session = command_session(program, progress=progress, start_s=60, silent_s=10)
    session.scale(ONE)
    first = session.observe().samples_trained
    time.sleep(0.5)
    assert session.observe().samples_trained > first > 0


def test_silence_counts_as_a_hang(command_session: MakeSession) -> None:
    session = command_session(COUNTS.replace("while True", "for _ in range(50)") + "time.sleep(1000)", silent_s=1)
    session.scale(ONE)
    with pytest.raises(TrialTimeoutError, match="reported nothing for"):
        session.wait(30)
    assert session.outcome().status == "failed"


def test_death_during_training_is_reported(command_session: MakeSession) -> None:
    session = command_session(COUNTS)
    session.scale(TWO)
    replica = next(pid for pid in child_pids() if psutil.Process(pid).cmdline()[-1].endswith("program.py"))
    os.kill(replica, signal.SIGKILL)  # not its guard
    with pytest.raises(ReplicaDiedError, match="was ended by SIGKILL"):
        session.wait(30)
    session.stop()
    assert session.outcome().status == "failed"


@pytest.mark.parametrize("program", [TOUGH, PARENT])
def test_stop_ends_processes_that_resist(command_session: MakeSession, program: str) -> None:
    before, session = child_pids(), command_session(program, grace_s=0.5)
    session.scale(TWO)
    assert len(child_pids() - before) >= 2
    session.stop()
    assert child_pids() <= before
    assert groups() == []


def test_orphaned_children_are_named_and_ended(command_session: MakeSession) -> None:
    session = command_session(PARENT.replace("while True", "for _ in range(20)"))
    session.scale(ONE)
    assert session.wait(30)
    if not session.whole_cores:
        assert "worker-0 left 1 process behind" in session.outcome().message
    session.stop()
    assert groups() == []


ENDS = "from sizewright import log_samples\nimport time\nfor _ in range(20): log_samples(32); time.sleep(0.01)"


def test_trial_that_ends_does_not_end_the_next(command_session: MakeSession) -> None:
    session = command_session(ENDS, trial=True)
    for allocation in (ONE, TWO):
        session.scale(allocation)
        assert session.wait(10)
        assert session.observe().samples_trained >= 20 * 32
    session.scale(ONE)
    assert not session.finished


def test_finished_job_cannot_be_changed(command_session: MakeSession) -> None:
    session = command_session(ENDS)
    session.scale(ONE)
    assert session.wait(10)
    with pytest.raises(EngineError, match="has already finished"):
        session.scale(TWO)


def test_killed_driver_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PARENT)
    (tmp_path / "starter.py").write_text(
        f"""
import time
from sizewright.spec import Allocation, Job
from sizewright.training.command.session import CommandSession
command = {{"run": [{sys.executable!r}, "program.py"], "folder": {str(tmp_path)!r}}}
session = CommandSession(Job.model_validate({{"name": "own", "command": command}}), logs={str(tmp_path / "logs")!r})
session.scale(Allocation.of(1, 0, 0.5, 1.0, 32))
print("runs", flush=True)
time.sleep(1000)
"""
    )
    starter = subprocess.Popen([sys.executable, tmp_path / "starter.py"], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    assert starter.stdout.readline() == "runs\n"
    below = psutil.Process(starter.pid).children(recursive=True)
    assert len(below) >= 3  # a guard, the program, and its child in a session of its own
    starter.kill()
    starter.communicate()
    _, alive = psutil.wait_procs(below, timeout=10)
    assert not alive
    assert groups(starter.pid) == []


def test_log_size_is_limited(command_session: MakeSession, tmp_path: Path) -> None:
    program = COUNTS.replace("while True:", "while True:\n    print('x' * 4_000_000)")
    session = command_session(program)
    session.scale(ONE)
    deadline = time.monotonic() + 60
    while session.observe().samples_trained < 32 * 40 and time.monotonic() < deadline:
        time.sleep(0.1)
    session.stop()
    kept_bytes = sum(path.stat().st_size for path in (tmp_path / "logs").rglob("*.log*"))
    assert 0 < kept_bytes <= 33 << 20


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ({"run": ["no-such-program-here"]}, "'no-such-program-here' was not found"),
        ({"run": ["./program.py"]}, "was not found, or may not be run"),
        ({"folder": "/no/such/folder"}, "does not exist"),
    ],
)
def test_command_that_cannot_start_is_reported(
    command_session: MakeSession, tmp_path: Path, command: dict[str, object], message: str
) -> None:
    session = command_session("", **{"folder": str(tmp_path), **command})
    with pytest.raises(JobError, match=message):
        session.scale(ONE)
    session.stop()
    assert groups() == []


@pytest.mark.parametrize(
    ("allocation", "message"),
    [
        (Allocation.of(0, 0, 1.0, 1.0, 32), "at least one worker"),
        (Allocation.of(1, 1, 0.5, 0.5, 32), "has no PS"),
        (Allocation.of(99, 0, 1.0, 1.0, 32), "asks for 99 cores and this host has"),
        (Allocation.of(1, 0, 1.0, 1.0, 32, worker_memory_bytes=1 << 50), "asks for 1,024.0 TiB of memory"),
    ],
)
def test_invalid_allocation_is_refused(command_session: MakeSession, allocation: Allocation, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        command_session(COUNTS).scale(allocation)


def test_trials_are_marked_and_leave_no_logs(command_session: MakeSession, tmp_path: Path) -> None:
    session = command_session("import os; assert os.environ['SIZEWRIGHT_TRIAL'] == '1'\n" + COUNTS, trial=True)
    session.scale(ONE)
    session.pause()
    assert session.allocation is None
    session.stop()
    assert not (tmp_path / "logs").exists()


RANKS = """
import os, time
from sizewright import log_samples

names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "OMP_NUM_THREADS")
with open(f"rank-{os.environ['RANK']}", "w") as file:
    print(*(os.environ[name] for name in names), file=file)
if os.environ["RANK"] == os.environ.get("FAILING_RANK"):
    raise SystemExit(os.environ["WORDS"])
for _ in range(40):
    time.sleep(0.05)
    log_samples(10)
"""


def run_to_end(session: CommandSession) -> None:
    session.scale(Allocation.of(2, 0, 0.4, 1.0, 32))
    session.wait(30)


def test_ranks_of_a_worker_share_it_and_all_their_samples_count(command_session: MakeSession, tmp_path: Path) -> None:
    session = command_session(RANKS, processes=2, folder=str(tmp_path))
    session.scale(Allocation.of(2, 0, 0.4, 1.0, 32))
    assert len(session.observe().of("worker")) == 2
    assert session.wait(60)
    assert session.outcome().samples == 4 * 400
    assert [(tmp_path / f"rank-{rank}").read_text().split() for rank in range(4)] == [
        ["0", "0", "4", "2", "0", "1"],
        ["1", "1", "4", "2", "0", "1"],
        ["2", "0", "4", "2", "1", "1"],
        ["3", "1", "4", "2", "1", "1"],
    ]


def test_failed_rank_ends_its_worker_and_the_job(command_session: MakeSession, tmp_path: Path) -> None:
    env = {"FAILING_RANK": "3", "WORDS": "no such table"}
    session = command_session(RANKS, processes=2, folder=str(tmp_path), env=env)
    with pytest.raises(ReplicaDiedError, match=r"(?s)worker-1 ended with exit code 1 .*no such table"):
        run_to_end(session)
    session.stop()
    assert groups() == []


@pytest.mark.parametrize("words", ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
                                   "RuntimeError: CUDA error: out of memory"])  # fmt: skip
def test_lack_of_device_memory_is_told_and_kept_apart_from_that_of_the_host(
    command_session: MakeSession, tmp_path: Path, words: str
) -> None:
    session = command_session(RANKS, folder=str(tmp_path), env={"FAILING_RANK": "1", "WORDS": words})
    with pytest.raises(ReplicaDiedError, match=r"worker-1 ended for lack of memory on its GPU, after ") as caught:
        run_to_end(session)
    assert caught.value.oom_memory == "device"


def test_cuda_without_a_gpu_is_refused_before_anything_starts(
    command_session: MakeSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr("sizewright.training.ray.node_agent.gpu_ids", list)
    with pytest.raises(EngineError, match=r"training.device is cuda\), but there is none on this host. Set the device"):
        command_session(RANKS, folder=str(tmp_path), device="cuda")
    assert groups() == []
    with pytest.raises(EngineError, match=r"asks for 2 GPUs and this host has none. Ask for fewer"):
        command_session(RANKS, folder=str(tmp_path)).scale(Allocation.of(1, 0, 0.4, 1.0, 32, worker_gpu=2))


def test_each_worker_gets_gpus_of_its_own_and_tells_what_they_do(
    command_session: MakeSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", StandInNvml(*(StandInGpu(0, 40, 100_000) for _ in range(5))))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,1,2,0")
    program = RANKS.replace('"OMP_NUM_THREADS")', '"CUDA_VISIBLE_DEVICES")')
    session = command_session(program, folder=str(tmp_path), device="cuda")
    assert session.gpus == 4
    with pytest.raises(EngineError, match=r"asks for 6 GPUs and this host has 4\."):
        session.scale(Allocation.of(2, 0, 0.4, 1.0, 32, worker_gpu=3))
    session.scale(Allocation.of(2, 0, 0.4, 1.0, 32, worker_gpu=2))
    time.sleep(0.5)
    for replica in session.observe().replicas:
        assert replica.gpu_product == "NVIDIA-H100-80GB-HBM3"
        assert replica.gpu_busy_s is not None
        assert replica.gpu_energy_j == pytest.approx(replica.gpu_busy_s / 0.4 * 100)
    seen = [(tmp_path / f"rank-{rank}").read_text().split() for rank in range(2)]
    assert seen == [["0", "0", "2", "1", "0", "4,1"], ["1", "0", "2", "1", "1", "2,0"]]
