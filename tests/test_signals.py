"""Signals at any moment, also twice, to the process alone or to its whole process group."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.helpers.processes import as_in_a_terminal, groups_of

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
COMMAND = (sys.executable, "-m", "sizewright.cli.main")
OWN_CODE = """
name: own
command: {{run: [{python}, own.py], folder: {folder}, progress: json, start_s: 60, silent_s: 30, grace_s: 1}}
training: {{batch_size: 64, samples: 100000000}}
bounds: {{worker: {{replicas: [1, 2], cpu: [0.25, 0.5], memory: [64Mi, 256Mi]}}}}
"""
COUNTS = """
import json, time
for i in range(1000000):
    time.sleep(0.01)
    print(json.dumps({"samples": i * 64}), flush=True)
"""


def interrupt(
    args: list[str], after_s: float, signals: list[signal.Signals], folder: Path, *, all_of_group: bool
) -> str:
    """Sends the signals, one soon after the other, and checks what is left; the answer is what was said."""
    process = subprocess.Popen(
        [*COMMAND, *args],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=as_in_a_terminal,
    )
    time.sleep(after_s)
    started = [process]
    if process.poll() is None:
        started += psutil.Process(process.pid).children(recursive=True)
    for number in signals:
        if process.poll() is None:
            os.killpg(process.pid, number) if all_of_group else process.send_signal(number)
            time.sleep(0.05)
    out, stderr = process.communicate(timeout=120)
    description = f"{args[0]} after {after_s:.2f} s: {process.returncode}, {stderr}"
    if process.returncode != 0 and -process.returncode not in signals:  # not while Python itself starts or exits
        assert process.returncode - 128 in signals, (
            description
        )  # signals that arrive together are handled in their order
        assert "Traceback" not in stderr, description
        assert "topped" in out + stderr, description
    survivors = [p for p in started[1:] if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert psutil.wait_procs(survivors, timeout=5)[1] == [], description
    assert groups_of(process.pid) == [], description
    return stderr


@pytest.fixture
def own_code(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(COUNTS)
    path = tmp_path / "own.yaml"
    path.write_text(OWN_CODE.format(python=sys.executable, folder=tmp_path))
    return path


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("all_of_group", [False, True])
def test_signal_twice_ends_a_profile_with_one_sentence(
    own_code: Path, tmp_path: Path, number: signal.Signals, all_of_group: bool
) -> None:
    args = ["profile", str(own_code), "--store", str(tmp_path / "t.db")]
    stderr = interrupt(args, 2.5, [number, number], tmp_path, all_of_group=all_of_group)
    assert stderr.count("Stopped") == 1


@pytest.mark.long
@pytest.mark.parametrize("seed", range(24))
def test_any_signal_at_any_moment_ends_any_verb(example: Path, own_code: Path, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    store = ["--store", str(tmp_path / "t.db")]
    trace = tmp_path / "trace.csv"
    trace.write_text("arrived_s,duration_s,gpu\n" + "".join(f"{i * 10},{600 + i},1\n" for i in range(2000)))
    sizes = ["--workers", "1", "--worker-cpu", "0.3"]
    args, max_s = rng.choice(
        [
            (["profile", str(example), *store], 16.0),
            (["profile", str(own_code), *store], 8.0),
            (["run", str(example), *sizes, "--ps", "1", "--ps-cpu", "0.3", *store], 20.0),
            (["run", str(own_code), *sizes, *store], 8.0),
            (["recommend", str(example), "--prior", "shipped", *store], 4.0),
            (["simulate", str(trace), "--policy", "fifo"], 6.0),
            (["doctor", *store], 8.0),
        ]
    )
    signals = rng.choices(SIGNALS, k=rng.choice([1, 2, 2, 3]))
    interrupt(args, rng.uniform(0.6, max_s), signals, tmp_path, all_of_group=rng.random() < 0.4)
