"""Jobs that were handed to Slurm, each in a folder that all hosts share: which starts it had, at which
plans, and what became of it, so that any process can look at it, change and stop it."""

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
from sizewright.spec._base import Record, checked_json
from sizewright.spec._faults import explain_first

_FILE, _LOCK = "job.json", "lock"
_NAME = re.compile(r"[A-Za-z0-9][-.A-Za-z0-9]*")


class Start(Record):
    """One job of Slurm's."""

    slurm_id: str
    plan: Plan
    at_s: float = Field(description="seconds since 1970, when it was submitted")


class SlurmRecord(Record):
    """One job, with all its starts."""

    id: str
    cwd: str
    began_s: float
    starts: tuple[Start, ...] = ()
    submitting: str = Field(
        default="", description="the plan whose start is being submitted; kept if its submitter died"
    )
    changes: tuple[Change, ...] = ()
    outcome: Outcome | None = None

    @property
    def last(self) -> Start:
        """Its last start."""
        return self.starts[-1]


class SlurmJobs:
    """All in `folder`. Raises StoreError where it cannot be read or written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def create(self, plan: Plan, began_s: float) -> SlurmRecord:
        """A record for a job that is to be launched here."""
        with self._told():
            self._make()
            number = 1
            while True:
                name = f"{plan.job.name}.{plan.id}" + (f".{number}" if number > 1 else "")
                with contextlib.suppress(FileExistsError):
                    (self.folder / name).mkdir()
                    break
                number += 1
        record = SlurmRecord(id=name, cwd=os.getcwd(), began_s=began_s)
        self.save(record)
        return record

    def _make(self) -> None:
        """Its records hold the environment of commands."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)

    def load(self, name: str) -> SlurmRecord | None:
        """None where there is no such job."""
        path = self.folder / name / _FILE
        if not _NAME.fullmatch(name):
            return None
        with self._told():
            try:
                return checked_json(SlurmRecord, path.read_text(encoding="utf-8"))
            except FileNotFoundError:
                return None
            except (ValidationError, UnicodeDecodeError) as error:
                said = explain_first(error) if isinstance(error, ValidationError) else error
                raise StoreError(f"{path} cannot be read: {said}.", "Restore it, or remove its folder.") from None

    def save(self, record: SlurmRecord) -> None:
        """Whole, or as before."""
        path = self.folder / record.id / _FILE
        with self._told():
            path.with_suffix(".new").write_text(record.model_dump_json(exclude_defaults=True), encoding="utf-8")
            os.replace(path.with_suffix(".new"), path)

    def discard(self, record: SlurmRecord) -> None:
        """One that was never submitted."""
        folder = self.folder / record.id
        with contextlib.suppress(OSError):
            for path in sorted(folder.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            folder.rmdir()

    def going_on(self, plan: Plan) -> Iterator[SlurmRecord]:
        """Those that a launch plan began and nobody has stopped, the last first."""
        names = sorted(self.folder.glob(f"{plan.job.name}.{plan.id}*"), key=lambda path: (len(path.name), path.name))
        for path in reversed(names):
            if path.name.split(".")[1:2] == [plan.id] and (record := self.load(path.name)) and not record.outcome:
                yield record

    def named(self, name: str) -> Iterator[SlurmRecord]:
        """All jobs of a name that nobody has stopped."""
        for path in sorted(self.folder.glob(f"{name}.*")):
            if path.name.split(".")[0] == name and (record := self.load(path.name)) and not record.outcome:
                yield record

    def write(self, record: SlurmRecord, number: int, files: dict[str, str]) -> None:
        """Files of a start, by name."""
        folder = self.start_folder(record, number)
        with self._told():
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                (folder / name).write_text(text, encoding="utf-8")

    def read(self, record: SlurmRecord, number: int, name: str) -> str:
        """One of them."""
        with self._told():
            return (self.start_folder(record, number) / name).read_text(encoding="utf-8")

    def start_folder(self, record: SlurmRecord, number: int) -> Path:
        """Where the replicas of a start tell of themselves."""
        return self.folder / record.id / f"start-{number}"

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """One process at a time launches, changes or stops."""
        with self._told():
            self._make()
            file = (self.folder / _LOCK).open("a")
        with file:
            with contextlib.suppress(OSError):  # some shared file systems have none
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"{self.folder} cannot be used for Slurm's jobs: {error}.",
                "Pass a folder that all nodes share as `folder`.",
            ) from None
