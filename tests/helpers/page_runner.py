"""Run a page as a reader would, from top to bottom, in a folder that looks like a fresh clone."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.helpers.page_blocks import Block, Command, Page

ROOT = Path(__file__).resolve().parents[2]
_COPIED, _LINKED = ("examples", "docs"), ("benchmarks", "sizewright", "Makefile", "pyproject.toml", "constraints.txt")
_WORD = re.compile(r"[A-Za-z]{4,}")
_GENERATED = shutil.ignore_patterns("_build", "_made", "__pycache__")
_AGAIN = "Run the same command again to measure the rest."
_NOT_RUN = ("make", "pip", "git")
"""Commands that are tested by other means: they would set up this project again."""
_CHILD = """
import json, os, sys, traceback
sys.path.insert(0, "")
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # the output of blocks is ignored
namespace = {"__name__": "__main__"}
for line in sys.stdin:
    message = json.loads(line)
    fault = ""
    try:
        exec(compile(message["code"], message["path"], "exec"), namespace)
    except BaseException:
        fault = traceback.format_exc()
    answers.write(json.dumps(fault) + "\\n")
    answers.flush()
"""


def clone(folder: Path) -> Path:
    """Set up a clone in a folder: a copy of the examples and docs, links to everything else."""
    for name in _COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=_GENERATED)
    for name in _LINKED:
        (folder / name).symlink_to(ROOT / name)
    return folder


def run_page(page: Page, folder: Path, env: dict[str, str], programs: Sequence[Path] = ()) -> None:
    """Run all blocks of a page; raise AssertionError at the first one that contradicts the page.

    `programs` are folders of programs that come first on the path.
    """
    path = ":".join([*map(str, programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    env = os.environ | env | {"PATH": path, "NO_COLOR": "1"}
    with _servers() as servers, ExitStack() as stack:
        python: _Python | None = None
        for block in page.blocks:
            if block.file:
                (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
                (folder / block.file).write_text(block.text, encoding="utf-8")
            elif block.kind == "console":
                for command in block.commands:
                    _run(page, command, folder, env, servers)
            elif block.kind == "python":
                if python is None:
                    python = _Python(page, folder, env)
                    stack.callback(python.close)
                python.execute(block)


def _run(page: Page, command: Command, folder: Path, env: dict[str, str], servers: list[subprocess.Popen[str]]) -> None:
    where = f"{page.path.name}:{command.line}: {command.text}"
    if next(word for word in command.text.split() if "=" not in word) in _NOT_RUN:
        return
    if command.text.rstrip().endswith(" &"):
        words = command.text.rstrip().removesuffix("&")
        servers.append(subprocess.Popen(["bash", "-c", f"exec {words}"], cwd=folder, env=env, start_new_session=True,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True))  # fmt: skip
        return
    done = _finished(command, folder, env)
    if _AGAIN in done.stderr:  # other work on the host may spoil a trial; do what the message says
        done = _finished(command, folder, env)
    assert done.returncode == command.exits, f"{where}\nends with {done.returncode}\n{done.stdout}\n{done.stderr}"
    output = done.stdout + done.stderr
    assert "Traceback (most recent call last)" not in output, f"{where}\n{output}"
    missing = words_of(command.shown) - words_of(output.splitlines())
    assert not missing, f"{where}\nshows words that it does not print: {sorted(missing)}\n{output}"


def _finished(command: Command, folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", command.text], cwd=folder, env=env, capture_output=True, text=True,
                          timeout=900, check=False)  # fmt: skip


def words_of(lines: Any) -> set[str]:
    """Return the words of four letters and more; numbers differ between machines."""
    return {word for line in lines if "…" not in line for word in _WORD.findall(line)}


class _Python:
    """A process that runs the Python blocks of one page in one namespace."""

    def __init__(self, page: Page, folder: Path, env: dict[str, str]) -> None:
        self._page = page
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD], cwd=folder, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        )  # fmt: skip

    def execute(self, block: Block) -> None:
        """Run a block; raise AssertionError with the traceback of the block."""
        assert self._process.stdin
        assert self._process.stdout
        message = {"code": "\n" * (block.line - 1) + block.text, "path": str(self._page.path)}
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        where = f"{self._page.path.name}:{block.line}"
        assert answer, f"{where}: the block ended the process"
        assert not json.loads(answer), f"{where}\n{json.loads(answer)}"

    def close(self) -> None:
        """End the process normally, then kill its remaining children."""
        self._process.communicate(timeout=120)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


@contextmanager
def _servers() -> Iterator[list[subprocess.Popen[str]]]:
    """Yield a list for the servers of a page; end these and their children afterwards."""
    servers: list[subprocess.Popen[str]] = []
    try:
        yield servers
    finally:
        for server in servers:
            os.killpg(server.pid, signal.SIGTERM)
        until = time.monotonic() + 20
        for server in servers:
            try:
                server.wait(max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()
