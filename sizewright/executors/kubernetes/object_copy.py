"""Keep the object of a job in a file while the job is deleted for a change."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sizewright.errors import InputError
from sizewright.executors.yaml_documents import to_yaml


class ObjectCopy:
    """A file with the objects of a job, from before the job is deleted until it runs again.

    `document` is the job's, of which all `objects` are made. Raises InputError if they cannot be written; nothing has
    been changed then.
    """

    def __init__(self, job: str, document: dict[str, Any], objects: Sequence[dict[str, Any]]) -> None:
        self.document = document
        try:
            self.path = Path(tempfile.mkdtemp(prefix="sizewright-")) / f"{job.replace('/', '-')}.yaml"
            self.path.write_text(to_yaml([f"{job} before its change"], *objects), encoding="utf-8")
        except OSError as error:
            reason = f"{type(error).__name__}: {error}".rstrip(".")
            raise InputError(
                f"Cannot keep a copy of {job} while it is changed: {reason}. The job was not changed.",
                "Free some space, or set TMPDIR to a folder that can be written.",
            ) from None

    def remove(self) -> None:
        """Remove the file, since the job exists again."""
        shutil.rmtree(self.path.parent, ignore_errors=True)
