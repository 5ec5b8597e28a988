"""Records of the jobs that were submitted to Slurm.

Each job has a folder that all hosts share, with its starts, their plans and the outcome, so that any process can
observe, change and stop it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field, ValidationError

from sizewright.errors import StoreError
from sizewright.spec import Change, Outcome, Plan
from sizewright.spec._base import Record, validate_json
from sizewright.spec._faults import explain_first
from sizewright.spec._paths import private

_FILE, _LOCK = "job.json", "lock"
_NAME = re.compile(r"[A-Za-z0-9][-.A-Za-z0-9]*")


class StartedJob(Record):
    """One submission of a job to Slurm."""

    slurm_id: str
    plan: Plan
    at_s: float = Field(description="seconds since 1970, when it was submitted")


class SlurmRecord(Record):
    """A job with all its starts."""

    id: str
    cwd: str
    began_s: float
    starts: tuple[StartedJob, ...] = ()
    submitting: str = Field(
        default="", description="the plan whose start is being submitted; kept if its submitter died"
    )
    changes: tuple[Change, ...] = ()
    outcome: Outcome | None = None

    @property
    def last(self) -> StartedJob:
        """The last start."""
        return self.starts[-1]


class SlurmJobs:
    """The records in `folder`. Methods raise StoreError if it cannot be read or written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def create(self, plan: Plan, began_s: float) -> SlurmRecord:
        """Return a new record for a job that is launched from the current folder."""
        with self._store_errors():
            self._make_folder()
            number = 1
            while True:
                name = f"{plan.job.name}.{plan.id}" + (f".{number}" if number > 1 else "")
                with contextlib.suppress(FileExistsError):
                    (self.folder / name).mkdir(mode=0o700)
                    break
                number += 1
        record = SlurmRecord(id=name, cwd=os.getcwd(), began_s=began_s)
        self.save(record)
        return record

    def _make_folder(self) -> None:
        # Only its user may read it, since the records have the commands. An existing folder keeps its mode, so that
        # each file is private, too.
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)

    def load(self, name: str) -> SlurmRecord | None:
        """Return the record of a job, or None if there is no such job."""
        path = self.folder / name / _FILE
        if not _NAME.fullmatch(name):
            return None
        with self._store_errors():
            try:
                return validate_json(SlurmRecord, path.read_text(encoding="utf-8"))
            except FileNotFoundError:
                return None
            except (ValidationError, UnicodeDecodeError) as error:
                problem = explain_first(error) if isinstance(error, ValidationError) else error
                raise StoreError(f"{path} cannot be read: {problem}.", "Restore it, or remove its folder.") from None

    def save(self, record: SlurmRecord) -> None:
        """Replace the record atomically."""
        path = self.folder / record.id / _FILE
        with self._store_errors():
            _write(path.with_suffix(".new"), record.model_dump_json(exclude_defaults=True))
            os.replace(path.with_suffix(".new"), path)

    def discard(self, record: SlurmRecord) -> None:
        """Remove the record of a job that was never submitted."""
        folder = self.folder / record.id
        with contextlib.suppress(OSError):
            for path in sorted(folder.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            folder.rmdir()

    def launched_by(self, plan: Plan) -> Iterator[SlurmRecord]:
        """Yield the records that a launch plan created and that were not stopped, the last one first."""
        paths = sorted(self.folder.glob(f"{plan.job.name}.{plan.id}*"), key=lambda path: (len(path.name), path.name))
        for path in reversed(paths):
            if path.name.split(".")[1:2] == [plan.id] and (record := self.load(path.name)) and not record.outcome:
                yield record

    def named(self, name: str) -> Iterator[SlurmRecord]:
        """Yield the records of a job name that were not stopped."""
        for path in sorted(self.folder.glob(f"{name}.*")):
            if path.name.split(".")[0] == name and (record := self.load(path.name)) and not record.outcome:
                yield record

    def write(self, record: SlurmRecord, number: int, files: dict[str, str]) -> None:
        """Write the files of a start, given by name."""
        folder = self.start_folder(record, number)
        with self._store_errors():
            folder.mkdir(mode=0o700, exist_ok=True)
            for name, text in files.items():
                _write(folder / name, text)

    def read(self, record: SlurmRecord, number: int, name: str) -> str:
        """Return a file of a start."""
        with self._store_errors():
            return (self.start_folder(record, number) / name).read_text(encoding="utf-8")

    def start_folder(self, record: SlurmRecord, number: int) -> Path:
        """Return the folder into which the replicas of a start write their files."""
        return self.folder / record.id / f"start-{number}"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold a lock, so that one process at a time launches, changes or stops jobs."""
        with self._store_errors():
            self._make_folder()
            file = open(self.folder / _LOCK, "a", opener=private)  # noqa: SIM115 (the lock lasts until it is closed)
        with file:
            with contextlib.suppress(OSError):  # some shared file systems have no locks
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def _store_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"{self.folder} cannot keep the records of Slurm jobs: {error}.",
                "Pass a folder that all nodes share as `folder`.",
            ) from None


def _write(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8", opener=private) as file:
        file.write(text)
