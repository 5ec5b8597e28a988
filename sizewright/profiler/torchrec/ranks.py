"""Run the measuring script in as many processes as there are ranks, and end all of them whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from sizewright.errors import EngineError, InputError, SizewrightError
from sizewright.formatting import format_count, format_seconds
from sizewright.task_progress import report_progress

PLANNER_FILE = Path(__file__).with_name("planner_file.py")
_WORKER = Path(__file__).with_name("worker.py")
_POLL_S = 0.1
_INSTALL = "Install TorchRec as the page 'You train with TorchRec' shows, or name its Python with --python."
_END_S = 5.0
_PROBE_S = 120.0
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_RETURN_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""Let freed tensors go back to the system, so that the next case does not find them."""


def check_torchrec(python: str) -> dict[str, str]:
    """Return the versions of torch and TorchRec that a Python has. Raises InputError if it has none."""
    try:
        return dict(run_task(python, "probe", [], ranks=1, timeout_s=_PROBE_S)[0]["versions"])
    except OSError as error:
        raise InputError(f"Cannot run {python}: {error.strerror}.", "Name another Python with --python.") from None
    except EngineError as error:
        if missing := re.search(r"No module named '([\w.]+)'", error.message):
            raise InputError(
                f"{python} has no module {missing[1]}, which a calibration of TorchRec's planner needs.",
                _INSTALL,
            ) from None
        raise InputError(f"{python} is not a Python with TorchRec: {error.message}", _INSTALL) from None


def run_task(
    python: str,
    mode: str,
    cases: Sequence[Mapping[str, Any]],
    *,
    ranks: int,
    timeout_s: float,
    count: int | None = None,
    label: str = "",
    **settings: Any,
) -> list[dict[str, Any]]:
    """Return the result of each rank of a task of the measuring script.

    `count` is the number of lines that rank 0 prints, for the progress. Raises EngineError, with the last line of the
    rank that failed first, if any rank fails or the time is over.
    """
    with tempfile.TemporaryDirectory(prefix="sizewright-torchrec-") as name:
        folder = Path(name)
        for script in (_WORKER, PLANNER_FILE):
            shutil.copy(script, folder)
        task = {
            "mode": mode, "cases": list(cases), "ranks": ranks, "folder": name, "timeout_s": timeout_s,
            "rendezvous": str(folder / "rendezvous"), "planner_file": str(folder / PLANNER_FILE.name), **settings,
        }  # fmt: skip
        (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
        with _started(python, folder, ranks, mode) as processes:
            _wait(processes, folder, timeout_s, count or 0, label)
        results = [folder / f"result-{rank}.json" for rank in range(ranks)]
        if missing := [rank for rank, path in enumerate(results) if not path.exists()]:
            raise EngineError(f"Rank {missing[0]} of {ranks} of TorchRec ended without a result.")
        return [json.loads(path.read_text(encoding="utf-8")) for path in results]


@contextlib.contextmanager
def _started(python: str, folder: Path, ranks: int, mode: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start the ranks, and end them with the context."""
    environment = {**os.environ, **_ONE_THREAD, "PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "1"}
    environment["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    if mode == "memory":
        environment |= _RETURN_MEMORY
    processes: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as files:
        try:
            for rank in range(ranks):
                out, err = (files.enter_context((folder / f"{kind}-{rank}").open("wb")) for kind in ("out", "err"))
                processes.append(_start(python, folder, rank, environment, out, err))
            yield processes
        finally:
            _end(processes)


def _start(
    python: str, folder: Path, rank: int, environment: Mapping[str, str], out: IO[bytes], err: IO[bytes]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [python, str(folder / _WORKER.name), str(folder / "task.json"), str(rank)],
        stdin=subprocess.PIPE,  # a rank ends when it closes, also if this process is killed
        stdout=out,
        stderr=err,
        cwd=folder,
        env=environment,
    )


def _wait(processes: Sequence[subprocess.Popen[bytes]], folder: Path, timeout_s: float, count: int, label: str) -> None:
    """Wait until all ranks have ended well. Raises EngineError as soon as one has not, or the time is over."""
    deadline = time.monotonic() + timeout_s
    while True:
        codes = [process.poll() for process in processes]
        if failed := [rank for rank, code in enumerate(codes) if code]:
            raise _failure(folder, failed, len(processes))
        if all(code == 0 for code in codes):
            return
        if count:
            report_progress(label, min(count, (folder / "out-0").read_bytes().count(b"done")), count)
        if time.monotonic() > deadline:
            raise EngineError(
                f"{format_count(len(processes), 'rank')} of TorchRec did not end within {format_seconds(timeout_s)}.",
                "Try again with fewer plans, or when the host has less other work.",
            )
        time.sleep(_POLL_S)


def _failure(folder: Path, failed: Sequence[int], ranks: int) -> SizewrightError:
    """Return an error with the last line of the rank that says most: a lost connection follows another's failure."""
    lines = {rank: _last_line(folder / f"err-{rank}") for rank in failed}
    rank = min(failed, key=lambda each: ("onnection" in lines[each], each))
    return EngineError(f"Rank {rank} of {ranks} of TorchRec failed: {lines[rank].rstrip('.')}.")


def _last_line(path: Path) -> str:
    """Return the last line with an error, or the last line at all, without the rank that torch puts before it."""
    text = re.sub(r"^\[rank\d+\]: ?", "", path.read_text(encoding="utf-8", errors="replace"), flags=re.MULTILINE)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    return (errors or lines or ["it printed nothing"])[-1]


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes that still run; a closed standard input ends the script's Python, and a kill a hung one."""
    for process in processes:
        if process.stdin:
            with contextlib.suppress(OSError):
                process.stdin.close()
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
