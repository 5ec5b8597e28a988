"""A finished job: what it was, what it was given over time, what became of it, and what had been expected of it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator

from sizewright.datasets._columns import as_utc
from sizewright.spec import Allocation, Estimate, Job, LimitedBy, Outcome
from sizewright.spec._base import Record

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

    @model_validator(mode="after")
    def _hash_of_the_job(self) -> FinishedJob:
        if self.job and self.job_hash not in (None, self.job.hash):
            raise ValueError(f"job_hash is {self.job_hash} and that of its job {self.job.hash}")
        return self

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
