"""Ranks that fail, hang or are killed: told in one sentence, and none is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from sizewright.errors import EngineError
from sizewright.profiler.torchrec import ranks
from sizewright.profiler.torchrec.ranks import run_task

NOTES_PID = """
import json, os, pathlib, sys, time
task = json.loads(pathlib.Path(sys.argv[1]).read_text())
rank = int(sys.argv[2])
pathlib.Path(task["pids"], str(rank)).write_text(str(os.getpid()))
"""


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    folder = tmp_path / "pids"
    folder.mkdir()
    return folder


def use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    path = tmp_path / "script.py"
    path.write_text(NOTES_PID + script)
    monkeypatch.setattr(ranks, "_WORKER", path)


def running(pids: Path) -> list[int]:
    return [int(path.read_text()) for path in pids.iterdir() if psutil.pid_exists(int(path.read_text()))]


def test_results_of_all_ranks_return(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pids: Path) -> None:
    use(monkeypatch, tmp_path, 'pathlib.Path(task["folder"], f"result-{rank}.json").write_text(json.dumps(rank))')
    assert run_task(sys.executable, "time", [], ranks=3, timeout_s=60, pids=str(pids)) == [0, 1, 2]


def test_a_failed_rank_ends_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pids: Path) -> None:
    use(monkeypatch, tmp_path, 'if rank == 1: raise ValueError("a table has no rows")\ntime.sleep(60)')
    with pytest.raises(EngineError, match=r"^Rank 1 of 2 of TorchRec failed: ValueError: a table has no rows\.$"):
        run_task(sys.executable, "time", [], ranks=2, timeout_s=60, pids=str(pids))
    assert not running(pids)


def test_the_cause_is_told_and_not_the_lost_connection(tmp_path: Path) -> None:
    for rank, line in enumerate(("RuntimeError: Connection closed by peer", "[rank1]: ValueError: the cause.")):
        (tmp_path / f"err-{rank}").write_text(f"Traceback (most recent call last):\n{line}\n")
    assert str(ranks._failure(tmp_path, [0, 1], 2)) == "Rank 1 of 2 of TorchRec failed: ValueError: the cause."


def test_ranks_that_hang_are_ended_in_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pids: Path) -> None:
    use(monkeypatch, tmp_path, "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)")
    monkeypatch.setattr(ranks, "_END_S", 0.5)
    with pytest.raises(EngineError, match="2 ranks of TorchRec did not end within"):
        run_task(sys.executable, "time", [], ranks=2, timeout_s=1.0, pids=str(pids))
    assert not running(pids)


def test_ranks_end_with_a_killed_parent(tmp_path: Path, pids: Path) -> None:
    script = tmp_path / "script.py"
    end = "\nimport threading\nthreading.Thread(target=lambda: (sys.stdin.read(), os._exit(1))).start()\ntime.sleep(60)"
    script.write_text(NOTES_PID + end)
    code = (
        "import sys, pathlib; from sizewright.profiler.torchrec import ranks; "
        f"ranks._WORKER = pathlib.Path({str(script)!r}); "
        f"ranks.run_task(sys.executable, 'time', [], ranks=2, timeout_s=60, pids={str(pids)!r})"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(tmp_path)})
    until = time.monotonic() + 30
    while len(list(pids.iterdir())) < 2 or any(not path.read_text() for path in pids.iterdir()):
        assert time.monotonic() < until
        time.sleep(0.05)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while running(pids):
        assert time.monotonic() < until
        time.sleep(0.05)
