"""A finished job: its description, its allocations over time, its outcome, and what its plan had predicted."""

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
MAX_SAMPLES = 1 << 62
MIN_SEGMENT_S = 30.0
"""The least duration of a segment whose throughput a model may learn, in seconds."""
Source = Literal["run", "file", "prometheus", "sacct"]
Moment = Annotated[datetime, AfterValidator(as_utc)]
"""A time in UTC; a time without a zone is taken as UTC."""


class Segment(Record):
    """A part of a job's life during which its allocation stayed the same."""

    model_config = ConfigDict(allow_inf_nan=False)

    at_s: float = Field(ge=0, description="when it began, seconds since the job did")
    duration_s: float = Field(ge=0)
    allocation: Allocation
    samples: int | None = Field(default=None, ge=0, le=MAX_SAMPLES, description="trained in it")
    limited_by: LimitedBy | None = Field(
        default=None, description="what limited its replicas to their cores; absent: unknown"
    )

    @field_validator("allocation")
    @classmethod
    def _some_worker(cls, allocation: Allocation) -> Allocation:
        if not allocation.replicas("worker"):
            raise ValueError("an allocation of a run needs at least one worker")
        return allocation

    @property
    def throughput(self) -> float | None:
        """Samples/s; None where the samples were not counted."""
        return self.samples / self.duration_s if self.samples and self.duration_s > 0 else None

    @property
    def is_cpu_limited(self) -> bool:
        """Return whether the replicas were limited to the cores of the allocation."""
        return is_cpu_limited(self.allocation, self.limited_by)

    @property
    def has_reliable_throughput(self) -> bool:
        """Return whether a model may learn the throughput: the segment is long enough, and its cores are reliable."""
        return bool(self.throughput) and self.duration_s >= MIN_SEGMENT_S and self.is_cpu_limited


def is_cpu_limited(allocation: Allocation, limited_by: LimitedBy | None) -> bool:
    """Return whether replicas are limited to the cores of their allocation, which is assumed where it is unknown."""
    whole_cores = all(group.cpu == int(group.cpu) for _, group in allocation.groups)
    return limited_by in (None, "cgroup") or (limited_by == "affinity" and whole_cores)


class JobUsage(Record):
    """Memory and CPU that the replicas of one role used: the peak bytes and the mean cores of one replica."""

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
    stretches: tuple[Segment, ...] = ()
    outcome: Outcome
    worker: JobUsage = JobUsage()
    ps: JobUsage = JobUsage()
    expected: Estimate | None = Field(
        default=None, description="samples/s that its plan predicted, with the 90 % interval"
    )
    expected_by: str = Field(default="", description="the model that predicted it")

    @field_validator("job")
    @classmethod
    def _job_of_the_hash(cls, job: Job | None, info: ValidationInfo) -> Job | None:
        key = info.data.get("job_hash")
        if job is None or key is None:
            return job
        known = job.known_as(key)
        if known is None:
            raise ValueError(f"job_hash is {key}, but the hash of its job is {job.hash}")
        return known

    @field_validator("expected")
    @classmethod
    def _within_its_interval(cls, expected: Estimate | None) -> Estimate | None:
        if expected and not expected.lower <= expected.value <= expected.upper:
            raise ValueError(f"{expected.value:g} is not within its interval {expected.lower:g} to {expected.upper:g}")
        return expected

    @property
    def key(self) -> str | None:
        """The hash under which trials of the same job are stored."""
        return self.job.hash if self.job else self.job_hash

    @property
    def throughput(self) -> float | None:
        """Samples/s of the longest segment, which is compared with the prediction of the plan."""
        measured = [segment for segment in self.stretches if segment.throughput]
        return max(measured, key=lambda segment: segment.duration_s).throughput if measured else None

    @property
    def ran_out_of_memory(self) -> bool:
        """Return whether a replica ran out of memory, so that its measured peak is the limit rather than the need."""
        return any(failure.cause == "oom" for failure in self.outcome.failures)


class FinishedJobs(list[FinishedJob]):
    """A list of finished jobs, which prints as a table and converts to a data frame."""

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each run, with the sizes of its longest segment."""
        return frame(map(_row, self), (*_COLUMNS, *sizes(_ANY)) if not self else None)

    def __str__(self) -> str:
        return str(importlib.import_module("sizewright.cli.plain").text_of_runs(self))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def _row(run: FinishedJob) -> dict[str, Any]:
    longest = max(run.stretches, key=lambda segment: segment.duration_s, default=None)
    cells = {
        "id": run.id,
        "name": run.name,
        "job_hash": run.key,
        "executor": run.executor,
        "started_at": run.started_at,
        "status": run.outcome.status,
        "duration_s": run.outcome.duration_s,
        "samples": run.outcome.samples,
        "throughput": run.throughput,
        "expected": run.expected.value if run.expected else None,
    }
    peaks = {"worker_memory_peak_bytes": run.worker.memory_peak_bytes, "ps_memory_peak_bytes": run.ps.memory_peak_bytes}
    return cells | sizes(longest.allocation if longest else None) | peaks


_COLUMNS = (
    "id", "name", "job_hash", "executor", "started_at", "status", "duration_s", "samples", "throughput", "expected",
)  # fmt: skip
_ANY = Allocation.of(1, 1, 1.0, 1.0, 1)
