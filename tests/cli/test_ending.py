"""Tests of what the command line still says after a signal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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

LOGGING_SCRIPT = """
import logging, signal
from sizewright.cli import app, main

signal.signal(signal.SIGINT, signal.default_int_handler)

def verb(**_):
    logging.getLogger("sqlalchemy.pool").error("not caused")
    with main.ending.cleaning_up():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            logging.getLogger("sqlalchemy.pool").error("caused", exc_info=True)
            logging.getLogger("sizewright.runtime.run").warning("ours")
            raise

app.app = verb
main.run()
"""


def test_error_that_follows_a_signal_is_written_before_the_exit() -> None:
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    assert result.returncode == 130
    assert result.stderr == "Error: The job is gone: its object is in /tmp/x. Apply it.\nStopped.\n"


def test_error_of_a_library_that_an_interrupt_causes_is_not_shown(tmp_path: Path) -> None:
    """Closing a connection reports each exception to the log, and so it did with the interrupt."""
    script = tmp_path / "interrupted.py"
    script.write_text(LOGGING_SCRIPT)
    result = subprocess.run([sys.executable, script, "version"], capture_output=True, text=True, timeout=120)
    assert result.returncode == 130
    assert result.stderr == "not caused\nours\nStopped.\n"
