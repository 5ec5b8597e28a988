"""Colours and progress bars appear on a real pseudo-terminal, and never in files and pipes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import pytest

from sizewright.cli import output, progress
from sizewright.cli.progress import Bar
from sizewright.task_progress import report_progress, steps

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]")
"""Control sequences that move the cursor or hide something."""


class Ends:
    """A terminal or a pipe whose output is collected by a thread."""

    def __init__(self, terminal: bool) -> None:
        reading, writing = pty.openpty() if terminal else os.pipe()
        self.file: TextIO = os.fdopen(writing, "w", encoding="utf-8")
        self._read = b""
        self._reader = threading.Thread(target=self._all_of, args=(reading,), daemon=True)
        self._reader.start()

    def text(self) -> str:
        self.file.close()
        self._reader.join()
        return self._read.decode().replace("\r\n", "\n")

    def _all_of(self, reading: int) -> None:
        with suppress(OSError):  # reading a closed terminal raises an error
            while more := os.read(reading, 1 << 16):
                self._read += more
        os.close(reading)


def with_bars(monkeypatch: pytest.MonkeyPatch) -> Ends:
    """Make standard error a terminal on which bars appear at once."""
    terminal = Ends(True)
    for name, value in {"TERM": "xterm", "COLUMNS": "100"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stderr", terminal.file)
    monkeypatch.setattr(progress, "_DELAY_S", 0.001)
    monkeypatch.setattr(progress, "_MIN_INTERVAL_S", 0.0)
    return terminal


@pytest.mark.parametrize("name", ["stdout", "stderr"])
@pytest.mark.parametrize(
    ("env", "on_a_terminal", "in_a_pipe"),
    [
        ({}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "0"}, True, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True, True),
    ],
)
def test_colours(
    monkeypatch: pytest.MonkeyPatch, name: str, env: dict[str, str], on_a_terminal: bool, in_a_pipe: bool
) -> None:
    for unset in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(unset, raising=False)
    for variable, value in ({"TERM": "xterm"} | env).items():
        monkeypatch.setenv(variable, value)
    for terminal, coloured in ((True, on_a_terminal), (False, in_a_pipe)):
        ends = Ends(terminal)
        monkeypatch.setattr(sys, name, ends.file)
        getattr(output, name)().print("text", style="bold red")
        text = ends.text()
        assert bool(COLOUR.search(text)) is coloured
        assert COLOUR.sub("", text).strip() == "text"


def test_bar_shows_the_remaining_time_and_is_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = with_bars(monkeypatch)
    with Bar("starting") as bar:
        for done in (0, 1):
            report_progress("adding trials", done, 50)
            time.sleep(0.25)
        bar.line("A line that stays.")
    text = terminal.text()
    plain = CONTROL.sub("", COLOUR.sub("", text))
    assert re.search(r"adding trials ━.* 2% 0:00:0\d \d+ s left", plain)
    assert "A line that stays." in plain
    assert text.rstrip().endswith("\x1b[2K")  # the bar is erased


def test_each_task_of_a_bar_has_its_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = with_bars(monkeypatch)
    with Bar("dividing", at_once=True) as bar:
        bar.at("trials", 5, 10, before=4, note="x" * 150)
        time.sleep(1.1)
        list(steps("sizing jobs", range(3)))
        divided_s = time.monotonic()
        time.sleep(0.25)
        asked_s = time.monotonic()
        bar.say("asking")
        time.sleep(0.25)
    own_s = {"dividing": asked_s - divided_s, "asking": time.monotonic() - asked_s}
    plain = CONTROL.sub("", COLOUR.sub("", terminal.text()))
    assert re.search(r"xxx\s+━.* 50% 0:00:0\d", plain)
    assert plain.count("x") % 150 == 0  # finished tasks are not truncated
    for task, seconds in own_s.items():
        shown = re.findall(rf"{task} +━+  0:00:(\d\d)", plain[plain.index("xxx") :])
        assert 0 <= max(map(int, shown)) <= seconds


def test_bar_without_terminal_prints_only_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Ends(False)
    monkeypatch.setattr(sys, "stderr", pipe.file)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Bar("starting", at_once=True) as bar:
        list(steps("adding trials", range(8)))
        bar.say("asking")
        bar.line("A line.")
    assert pipe.text() == "A line.\n"


def run(args: list[Any], stdout: Ends | TextIO, stderr: Ends, **env: str) -> int:
    command = [sys.executable, "-m", "sizewright.cli.main", *map(str, args)]
    environ = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")} | {"TERM": "xterm"} | env
    out = stdout.file if isinstance(stdout, Ends) else stdout
    return subprocess.run(
        command, stdout=out, stderr=stderr.file, stdin=subprocess.DEVNULL, env=environ, check=False
    ).returncode


def test_verb_with_only_stderr_on_a_terminal_pipes_clean_data(example: Path) -> None:
    out, err = Ends(False), Ends(True)
    trace = example.parent / "cluster" / "trace.csv"
    assert run(["simulate", trace, "--policy", "aryl", "--jobs", 150, "-o", "json"], out, err, COLUMNS="100") == 0
    stderr = err.text()
    assert "1/1 aryl" in stderr
    assert "simulating" in stderr
    assert CONTROL.search(stderr)
    assert json.loads(out.text())["jobs"] == 150


def test_a_verb_is_coloured_on_a_terminal_and_plain_in_a_pipe(example: Path) -> None:
    for terminal, env, coloured in ((True, {}, True), (True, {"NO_COLOR": "1"}, False), (False, {}, False)):
        out, err = Ends(terminal), Ends(terminal)
        assert run(["memory", example], out, err, **env) == 0
        text = out.text()
        assert err.text() == ""
        assert "fewest that fit" in text
        assert bool(COLOUR.search(text)) is coloured
        assert not CONTROL.search(text)


def test_full_disk_is_reported_in_one_sentence() -> None:
    full, err = Path("/dev/full"), Ends(False)
    if not full.exists():
        pytest.skip("there is no /dev/full here")
    with full.open("w") as file:
        assert run(["schema", "job"], file, err) == 1
    assert err.text() == "Error: No space left on device. Free some space, or write elsewhere.\n"


def test_text_that_cannot_be_encoded_is_written_in_ascii() -> None:
    out = Ends(False)
    assert run(["bank", "show"], out, Ends(False), PYTHONIOENCODING="ascii") == 0
    assert "discarded: 33 x Other work" in out.text()
