"""The entry point of the command `sizewright`, which handles errors and signals."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys

from sizewright.cli.ending import ending
from sizewright.redaction import shown


class _SafeFormatter(logging.Formatter):
    """Passes log records through `shown`, like everything that is printed."""

    def format(self, record: logging.LogRecord) -> str:
        return shown(super().format(record))


def _not_caused_by_signal(record: logging.LogRecord) -> bool:
    """Return False for the errors of libraries that an interrupt causes, such as in closing a connection."""
    return ending.received is None or record.name.startswith("sizewright.")


def run() -> None:
    """Run a command line. A user's mistake gives one sentence on stderr and a non-zero exit code."""
    ending.begin()

    from sizewright.cli.app import app
    from sizewright.cli.output import register_plain
    from sizewright.errors import SizewrightError

    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_SafeFormatter())
        logging.lastResort.addFilter(_not_caused_by_signal)
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=register_plain())
    try:
        try:
            app(prog_name="sizewright")
        finally:
            sys.stdout.flush()
    except SizewrightError as error:
        sys.stderr.write(f"Error: {error}\n")
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # otherwise the rest of the buffer is written again
        sys.stderr.write(f"Error: {error.strerror}. Free some space, or write elsewhere.\n")
        sys.exit(1)


if __name__ == "__main__":
    run()
