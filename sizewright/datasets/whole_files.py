"""Files that are there as a whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write beside it and rename, so that nobody reads half of it. Raises OSError, and leaves nothing then."""
    written = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        written.write_text(text, encoding="utf-8")
        written.replace(path)
    except OSError:
        with suppress(OSError):
            written.unlink()
        raise
