"""Tests of what the command line still says after a signal."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import signal
from sizewright.cli.ending import Ending
from sizewright.errors import EngineError

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell makes background processes ignore it
ending = Ending()
ending.begin()
with ending.cleaning_up():
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise EngineError("The job is gone: its object is in /tmp/x.", "Apply it.") from None
"""


def test_error_that_follows_a_signal_is_written_before_the_exit() -> None:
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    assert result.returncode == 130
    assert result.stderr == "Error: The job is gone: its object is in /tmp/x. Apply it.\nStopped.\n"
