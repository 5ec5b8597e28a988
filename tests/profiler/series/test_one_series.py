from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from sizewright.profiler.series.one_series import NAME_VARIABLE, alone_on_host

HOLDS = """
import time
from sizewright.profiler.series.one_series import alone_on_host
with alone_on_host():
    print("holds", flush=True)
    time.sleep(1000)
"""


@pytest.fixture(autouse=True)
def separate_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv(NAME_VARIABLE, f"sizewright-test-{os.getpid()}-{id(tmp_path)}")


def test_second_series_waits_for_the_first_and_names_it_until_that_is_killed() -> None:
    first = subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "holds\n"
    messages: list[str] = []
    is_waiting, has_lock = threading.Event(), threading.Event()

    def second() -> None:
        with alone_on_host(lambda text: (messages.append(text), is_waiting.set())):
            has_lock.set()

    waiting = threading.Thread(target=second, daemon=True)
    waiting.start()
    assert is_waiting.wait(10)
    assert not has_lock.wait(0.5)
    first.kill()
    assert has_lock.wait(10)
    waiting.join(10)
    first.communicate()
    assert len(messages) == 1
    assert f"process {first.pid} of " in messages[0]


def test_consecutive_series_do_not_wait() -> None:
    for _ in range(3):
        with alone_on_host(pytest.fail):
            pass


def test_other_lock_name_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with alone_on_host():
        monkeypatch.setenv(NAME_VARIABLE, f"sizewright-test-{os.getpid()}-other")
        with alone_on_host(pytest.fail):
            pass
