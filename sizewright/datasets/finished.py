"""A finished job: what it was, what it was given over time, what became of it, and what had been expected of it."""

from __future__ import annotations

import html
import importlib
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, field_validator

from sizewright.datasets._columns import as_utc
from sizewright.spec import Allocation, Estimate, Job, LimitedBy, Outcome
from sizewright.spec._base import Record
from sizewright.spec._frames import frame, sizes

if TYPE_CHECKING:
    import pandas as pd

HISTORY_SCHEMA_VERSION = 1
MOST_SAMPLES = 1 << 62
LEAST_STRETCH_S = 30.0
"""Runs tell a throughput only where they trained so long at one allocation."""
Source = Literal["run", "file", "prometheus"]
Moment = Annotated[datetime, AfterValidator(as_utc)]
"""In UTC; a time without a zone is taken as UTC."""


class Stretch(Record):
    """A part of a job's life during which its allocation stayed the same."""

    model_config = ConfigDict(allow_inf_nan=False)

    at_s: float = Field(ge=0, description="when it began, seconds since the job did")
    duration_s: float = Field(ge=0)
    allocation: Allocation
    samples: int | None = Field(default=None, ge=0, le=MOST_SAMPLES, description="trained in it")
    limited_by: LimitedBy | None = Field(
        default=None, description="what held its replicas to their cores; absent: unknown"
    )

    @field_validator("allocation")
    @classmethod
    def _some_worker(cls, allocation: Allocation) -> Allocation:
        if not allocation.replicas("worker"):
            raise ValueError("a stretch has at least one worker")
        return allocation

    @property
    def throughput(self) -> float | None:
        """Samples/s; None where its samples were not counted."""
        return self.samples / self.duration_s if self.samples and self.duration_s > 0 else None

    @property
    def is_held(self) -> bool:
        """Whether its replicas had the cores of its allocation and no more."""
        return is_held(self.allocation, self.limited_by)

    @property
    def tells_speed(self) -> bool:
        """Whether a model may learn its throughput: it lasted long enough, at the cores that it says."""
        return bool(self.throughput) and self.duration_s >= LEAST_STRETCH_S and self.is_held


def is_held(allocation: Allocation, limited_by: LimitedBy | None) -> bool:
    """Whether replicas have the cores of their allocation and no more; where nothing is known they are taken to."""
    whole = all(group.cpu == int(group.cpu) for _, group in allocation.groups)
    return limited_by in (None, "cgroup") or (limited_by == "affinity" and whole)


class Usage(Record):
    """What the replicas of one role used. Bytes are peaks of one replica, cores the mean of one."""

    memory_peak_bytes: int | None = Field(default=None, ge=0)
    cpu_used: float | None = Field(default=None, ge=0, description="cores, mean of one replica")


class FinishedJob(Record):
    """One run of a job, from its launch to its end."""

    id: str = Field(min_length=1, max_length=200, description="unique to the run")
    name: str
    job_hash: str | None = Field(default=None, description="of the description, where there is one")
    job: Job | None = None
    source: Source = "file"
    executor: str = ""
    started_at: Moment | None = None
    stretches: tuple[Stretch, ...] = ()
    outcome: Outcome
    worker: Usage = Usage()
    ps: Usage = Usage()
    expected: Estimate | None = Field(
        default=None, description="samples/s that its plan foretold, with the 90 % interval"
    )
    expected_by: str = Field(default="", description="the model that foretold it")

    @field_validator("job")
    @classmethod
    def _job_of_the_hash(cls, job: Job | None, told: ValidationInfo) -> Job | None:
        key = told.data.get("job_hash")
        if job is None or key is None:
            return job
        known = job.known_as(key)
        if known is None:
            raise ValueError(f"job_hash is {key} and that of its job {job.hash}")
        return known

    @field_validator("expected")
    @classmethod
    def _within_its_interval(cls, expected: Estimate | None) -> Estimate | None:
        if expected and not expected.lower <= expected.value <= expected.upper:
            raise ValueError(f"{expected.value:g} is not within its interval {expected.lower:g} to {expected.upper:g}")
        return expected

    @property
    def key(self) -> str | None:
        """The hash under which trials of the same job are kept."""
        return self.job.hash if self.job else self.job_hash

    @property
    def throughput(self) -> float | None:
        """Samples/s of the stretch that lasted longest, which is what a plan's expectation is held against."""
        told = [stretch for stretch in self.stretches if stretch.throughput]
        return max(told, key=lambda stretch: stretch.duration_s).throughput if told else None

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether memory ended a replica: what was measured then tells of the limit, not of the job."""
        return any(failure.cause == "oom" for failure in self.outcome.failures)


class FinishedJobs(list[FinishedJob]):
    """A list of finished jobs, which prints as a table and converts to a data frame."""

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each run: sizes are those of its longest stretch."""
        return frame(map(_row, self), (*_COLUMNS, *sizes(_ANY)) if not self else None)

    def __str__(self) -> str:
        return str(importlib.import_module("sizewright.cli.plain").text_of_runs(self))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def _row(run: FinishedJob) -> dict[str, Any]:
    longest = max(run.stretches, key=lambda stretch: stretch.duration_s, default=None)
    outcome, expected = run.outcome, run.expected.value if run.expected else None
    told = (run.id, run.name, run.key, run.executor, run.started_at, outcome.status, outcome.duration_s)
    rates = (outcome.samples, run.throughput, expected)
    peaks = {"worker_memory_peak_bytes": run.worker.memory_peak_bytes, "ps_memory_peak_bytes": run.ps.memory_peak_bytes}
    return dict(zip(_COLUMNS, (*told, *rates), strict=True)) | sizes(longest.allocation if longest else None) | peaks


_COLUMNS = (
    "id", "name", "job_hash", "executor", "started_at", "status", "duration_s", "samples", "throughput", "expected",
)  # fmt: skip
_ANY = Allocation.of(1, 1, 1.0, 1.0, 1)
