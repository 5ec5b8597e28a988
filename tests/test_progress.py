from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sizewright.progress import STDOUT, VARIABLE, log_samples, read_line, read_progress


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


def test_logged_samples_can_be_read_from_another_process(folder: Path) -> None:
    for _ in range(3):
        log_samples(100, data_s=0.5, compute_s=1.0)
    (reading,) = read_progress(folder).values()
    assert (reading.samples, reading.steps, reading.data_s, reading.compute_s) == (300, 3, 1.5, 3.0)
    assert reading.at_s > 0


def test_log_samples_without_a_folder_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    log_samples(5)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gone"))
    log_samples(5)
    assert read_progress(tmp_path) == {}
    assert read_progress(tmp_path / "gone") == {}


def test_negative_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="below 0"):
        log_samples(-1)


def test_each_process_counts_for_itself(folder: Path) -> None:
    log_samples(7)
    child = os.fork()
    if child == 0:
        log_samples(5)
        os._exit(0)
    os.waitpid(child, 0)
    samples = read_progress(folder)
    assert samples[os.getpid()].samples == 7
    assert samples[child].samples == 5


def test_threads_lose_nothing(folder: Path) -> None:
    threads = [threading.Thread(target=lambda: [log_samples(1) for _ in range(2000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_progress(folder)[os.getpid()].samples == 8000


def test_log_samples_needs_only_the_standard_library() -> None:
    program = "import sys; from sizewright import log_samples; log_samples(1); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "pydantic", "torch", "ray", "pandas"} & set(loaded)


_PRINTS = """
import os, sizewright
for _ in range(1000):
    sizewright.log_samples(64, compute_s=0.5)
child = os.fork()  # it logs nothing, and so it is not counted twice
if child:
    os.waitpid(child, 0)
    print("done")
"""


def test_without_a_shared_folder_sums_are_printed_now_and_then() -> None:
    env = os.environ | {VARIABLE: STDOUT}
    completed = subprocess.run([sys.executable, "-c", _PRINTS], env=env, capture_output=True, text=True, check=True)
    lines = completed.stdout.splitlines()
    records = [record for line in lines if (record := read_line(line))]
    assert 2 <= len(records) <= 3, "the first step, perhaps one of a slow host, and the end"
    assert (records[0].reading.samples, records[-1].reading.samples, records[-1].reading.steps) == (64, 64_000, 1000)
    assert records[-1].reading.compute_s == 500
    assert len({each.process for each in records}) == 1
    assert "done" in lines


@pytest.mark.parametrize(
    "line",
    [
        "sizewright-progress", "sizewright-progress {}", "sizewright-progress [1]", "loss 0.3",
        'sizewright-progress {"process": 1, "sums": {"samples": "many"}, "container": {}}',
        'sizewright-progress {"process": 1, "sums": {"other": 1}, "container": {}}',
    ],
)  # fmt: skip
def test_other_lines_are_ignored(line: str) -> None:
    assert read_line(line) is None
