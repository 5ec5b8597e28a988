"""Finished jobs in files: JSON holds complete runs, CSV one row per run with a single allocation."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from sizewright.datasets._columns import plain_type
from sizewright.datasets.files.atomic_write import write_text_atomically
from sizewright.datasets.files.table_files import check_json_size, read_table, read_text, suffix_of
from sizewright.datasets.runs.finished_job import MAX_SAMPLES, FinishedJob, JobUsage, Moment, Segment
from sizewright.errors import RecordError, StoreError
from sizewright.formatting import format_count
from sizewright.spec import Allocation, Estimate, Failure, Job, Outcome
from sizewright.spec._base import Record, validate
from sizewright.spec._faults import by_place, explain_all, name_place
from sizewright.spec._paths import absolute
from sizewright.spec._text_files import KeyTwiceError, read_json
from sizewright.spec.outcome import Status
from sizewright.spec.units import ByteCount, Cores, Count, MeasuredSeconds, Number
from sizewright.task_progress import steps

_SHOWN_FAULTS = 4
_STATUSES = {
    "succeeded": "finished", "success": "finished", "completed": "finished", "complete": "finished",
    "killed": "stopped", "cancelled": "stopped", "canceled": "stopped", "error": "failed",
}  # fmt: skip
"""Statuses of other systems and their equivalents."""


class RunRow(Record):
    """One row of a CSV of finished jobs; unknown values are empty."""

    model_config = ConfigDict(allow_inf_nan=False)

    id: str
    name: str
    status: Status = "finished"
    message: str = ""
    oom: bool = Field(default=False, description="whether memory ended a replica")
    job_hash: str | None = None
    executor: str = ""
    started_at: Moment | None = None
    duration_s: MeasuredSeconds = Field(ge=0)
    samples: Count | None = Field(default=None, ge=0, le=MAX_SAMPLES)
    workers: Count = Field(ge=1)
    ps: Count = Field(default=0, ge=0)
    worker_cpu: Cores = Field(default=1.0, gt=0)
    ps_cpu: Cores = Field(default=1.0, gt=0)
    worker_memory_bytes: ByteCount = Field(default=0, ge=0, description="asked for by one worker")
    ps_memory_bytes: ByteCount = Field(default=0, ge=0)
    batch_size: Count = Field(ge=1)
    worker_memory_peak_bytes: ByteCount | None = Field(default=None, ge=0)
    ps_memory_peak_bytes: ByteCount | None = Field(default=None, ge=0)
    worker_cpu_used: Cores | None = Field(default=None, ge=0)
    ps_cpu_used: Cores | None = Field(default=None, ge=0)
    expected: Number | None = Field(default=None, gt=0, description="predicted samples/s")
    expected_lower: Number | None = Field(default=None, gt=0)
    expected_upper: Number | None = Field(default=None, gt=0)
    expected_by: str = ""

    @field_validator("status", mode="before")
    @classmethod
    def _status_of_others(cls, status: object) -> object:
        word = str(status).strip().lower()
        return _STATUSES.get(word, word)

    @model_validator(mode="after")
    def _complete_interval(self) -> RunRow:
        has_value = [each is not None for each in (self.expected, self.expected_lower, self.expected_upper)]
        if any(has_value) and not all(has_value):
            raise ValueError("expected needs expected_lower and expected_upper, the ends of its 90 % interval")
        return self

    def finished(self, job: Job | None) -> FinishedJob:
        """Convert to a finished job, described by `job` where the row names no other hash."""
        allocation = Allocation.of(
            self.workers, self.ps, self.worker_cpu, self.ps_cpu, self.batch_size,
            self.worker_memory_bytes, self.ps_memory_bytes,
        )  # fmt: skip
        failures = (Failure(at_s=self.duration_s, replica="", cause="oom"),) if self.oom else ()
        expected = None
        if self.expected and self.expected_lower and self.expected_upper:
            expected = Estimate(value=self.expected, lower=self.expected_lower, upper=self.expected_upper)
        return FinishedJob(
            id=self.id, name=self.name, executor=self.executor, started_at=self.started_at,
            job_hash=self.job_hash, job=job if job and self.job_hash in (None, *job.hashes) else None,
            stretches=(Segment(at_s=0.0, duration_s=self.duration_s, allocation=allocation, samples=self.samples),),
            outcome=Outcome(
                status=self.status, message=self.message, samples=self.samples or 0, duration_s=self.duration_s,
                failures=failures,
            ),
            worker=JobUsage(memory_peak_bytes=self.worker_memory_peak_bytes, cpu_used=self.worker_cpu_used),
            ps=JobUsage(memory_peak_bytes=self.ps_memory_peak_bytes, cpu_used=self.ps_cpu_used),
            expected=expected, expected_by=self.expected_by,
        )  # fmt: skip


def import_history(path: str | Path, *, job: Job | None = None) -> list[FinishedJob]:
    """Read finished jobs from `.json` (a list of records, or one per line) or `.csv`.

    `job` describes the runs without a description or another hash. Raises StoreError with the first few faults.
    """
    path = Path(absolute(path))
    kind = suffix_of(path)
    if kind not in (".json", ".jsonl", ".ndjson", ".csv", ".tsv"):
        raise StoreError(f"{path} is neither .json nor .csv.", "Name the file .json, .jsonl or .csv.")
    in_rows = kind in (".csv", ".tsv")
    rows = _csv_rows(path) if in_rows else _json_rows(read_text(path), path)
    read = _read_row if in_rows else _read_record
    runs, faults = [], []
    for where, row in steps("reading the file", list(rows)):
        try:
            runs.append(read(row, job))
        except RecordError as error:
            faults.append(f"{where}, row: {error.message.rstrip('.')}")
        except ValidationError as error:
            errors = by_place(error, row)
            faults += [f"{where}, {name_place(at) or 'row'}: {explain_all(errors[at])}" for at in errors]
    if faults:
        more = f"; and {len(faults) - _SHOWN_FAULTS} more" if len(faults) > _SHOWN_FAULTS else ""
        raise StoreError(f"{path}: {'; '.join(faults[:_SHOWN_FAULTS])}{more}.", "Correct these; nothing was imported.")
    if not runs:
        raise StoreError(f"{path} holds no finished jobs.", f"Add rows with {', '.join(_required_columns())}.")
    if duplicates := [key for key, count in Counter(run.id for run in runs).items() if count > 1]:
        raise StoreError(
            f"{path} holds {format_count(len(duplicates), 'id')} more than once, such as {duplicates[0]!r}.",
            "Give each run an id of its own.",
        )
    return runs


def export_history(finished: Iterable[FinishedJob], path: str | Path) -> None:
    """Write finished jobs to a `.json` file. Raises StoreError when it cannot be written."""
    path = Path(absolute(path))
    if path.suffix.lower() != ".json":
        raise StoreError(f"{path} is not named .json, but the export is JSON.", f"Name it {path.stem}.json.")
    records = [json.loads(run.model_dump_json(by_alias=True)) for run in finished]
    try:
        write_text_atomically(path, json.dumps(records, indent=1) + "\n")
    except OSError as error:
        raise StoreError(f"Cannot write {path}: {error}.", "Check the path and its permissions.") from None


def _read_row(row: dict[str, Any], job: Job | None) -> FinishedJob:
    return validate(RunRow, row).finished(job)


def _read_record(row: dict[str, Any], job: Job | None) -> FinishedJob:
    run = validate(FinishedJob, row)
    if run.job or job is None or run.job_hash not in (None, *job.hashes):
        return run
    return run.model_copy(update={"job": job})


def _json_rows(text: str, path: Path) -> Iterator[tuple[str, Any]]:
    check_json_size(text, path)
    try:
        document = read_json(text)
    except KeyTwiceError as error:
        raise StoreError(f"{path}: {error}.", "Keep one of them.") from None
    except ValueError as error:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        if path.suffix.lower() == ".json" or not lines:
            raise StoreError(f"{path} is not JSON: {error}.", "Export it again.") from None
        for number, line in lines:
            try:
                row = read_json(line)
            except ValueError as fault:
                where = f"line {number} of {path}" + (", its last," if number == lines[-1][0] else "")
                raise StoreError(
                    f"{where} is not JSON, one record per line: {fault}.",
                    "The file may be cut short: export it again, or remove that line.",
                ) from None
            yield f"line {number}", row
        return
    yield from (
        (f"record {number}", row)
        for number, row in enumerate(document if isinstance(document, list) else [document], 1)
    )


def _csv_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    types = {name: plain_type(field.annotation) for name, field in RunRow.model_fields.items()}
    table = read_table(
        path,
        is_known=types.__contains__,
        is_number=lambda name: types.get(name) in (int, float),
        check_names=lambda names: _check_columns(names, path),
    )
    for row in table.rows:
        yield row.where, {name: value for name, value in row.cells.items() if value not in ("", None)}


def _check_columns(names: Sequence[str], path: Path) -> None:
    for name in names:
        if name not in RunRow.model_fields:
            close = difflib.get_close_matches(name.lower(), RunRow.model_fields, n=1, cutoff=0.5)
            hint = f" (did you mean '{close[0]}'?)" if close else ""
            raise StoreError(
                f"{path}: unknown column {name!r}{hint}.",
                f"Rename or remove it. Known columns: {', '.join(RunRow.model_fields)}.",
            )
    if missing := [name for name in _required_columns() if name not in names]:
        raise StoreError(f"{path} lacks the columns {', '.join(missing)}.", "Add them; the other columns are optional.")


def _required_columns() -> list[str]:
    return [name for name, field in RunRow.model_fields.items() if field.is_required()]
