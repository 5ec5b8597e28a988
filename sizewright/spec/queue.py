"""The jobs file of a cluster: its jobs, their candidate allocations and their current ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, WithJsonSchema, model_validator

from sizewright.spec._base import Record, load_yaml, parse
from sizewright.spec._paths import absolute, folder_of
from sizewright.spec.allocation import Allocation, Gpu, Group
from sizewright.spec.job import Job
from sizewright.spec.recommendation import Recommendation
from sizewright.spec.units import Bytes, Cores, Count, Number, Seconds


class Candidate(Record):
    """A candidate allocation of a job."""

    allocation: Allocation = Field(description="replicas and their sizes")
    throughput: Number = Field(description="samples/s")
    value: Number | None = Field(default=None, description="its utility, for --value own")
    interval: tuple[Number, Number] | None = Field(default=None, description="of the throughput, at 90 %")


class CandidateRow(Record):
    """A candidate as a row of a CSV file."""

    workers: Count = Field(ge=1)
    worker_cpu: Cores = Field(gt=0)
    worker_memory: Bytes = Field(default=0, ge=0)
    worker_gpu: Count = Field(default=0, ge=0)
    ps: Count = Field(default=0, ge=0)
    ps_cpu: Cores = Field(default=1.0, gt=0)
    ps_memory: Bytes = Field(default=0, ge=0)
    gpu_kind: str = "gpu"
    batch_size: Count | None = Field(default=None, ge=1)
    throughput: Number
    value: Number | None = None

    def candidate(self, batch_size: int) -> Candidate:
        """Return the candidate; `batch_size` is used where the row has none."""
        gpu = Gpu(kind=self.gpu_kind, count=self.worker_gpu) if self.worker_gpu else None
        worker = Group(replicas=self.workers, cpu=self.worker_cpu, memory_bytes=self.worker_memory, gpu=gpu)
        ps = (Group(replicas=self.ps, cpu=self.ps_cpu, memory_bytes=self.ps_memory),) if self.ps else ()
        allocation = Allocation(worker=(worker,), ps=ps, batch_size=self.batch_size or batch_size)
        return Candidate(allocation=allocation, throughput=self.throughput, value=self.value)


_FILE = WithJsonSchema({"type": "string"})
"""JSON Schema of a field that is a path in a file, and may also be a record in Python."""


class QueuedJob(Record):
    """A waiting or running job, with the candidates of its recommendation or of your own table."""

    job: Annotated[str | Job, _FILE] = Field(description="its job file")
    recommendation: Annotated[str | Recommendation | None, _FILE] = Field(
        default=None, description="its answer: `sizewright recommend JOB -o json > FILE`"
    )
    table: str | None = Field(
        default=None, description="a CSV file of candidates instead: sizes, throughput, and value"
    )
    candidates: tuple[Candidate, ...] = Field(default=(), description="the candidates themselves instead")
    current: Allocation | str | None = Field(
        default=None, description="current allocation, or the plan that the job runs by; absent: the job waits"
    )
    samples_left: Number | None = Field(default=None, gt=0, description="absent: all of the job's samples")
    servers: dict[str, dict[str, Count]] = Field(
        default={}, description="current placement, as returned by `allocate`: replicas by role, by server"
    )
    arrived: Seconds | None = Field(
        default=None, description="on any clock that all jobs share; absent: after those, in the file's order"
    )
    ran: Seconds | None = Field(
        default=None, ge=0, description="run time so far; absent: estimated from its trained samples and current speed"
    )
    restart: Seconds = Field(default=90.0, ge=0, description="downtime of a running job when it is changed")
    change_price: Number = Field(default=0.0, ge=0, description="utility that a change costs, for --value own")
    may_wait: bool = Field(default=True, description="false: a running job keeps at least its smallest candidate")

    @model_validator(mode="after")
    def _one_source(self) -> QueuedJob:
        sources = [name for name in ("recommendation", "table", "candidates") if getattr(self, name)]
        if len(sources) > 1:
            raise ValueError(f"has {sources[0]} and {sources[1]}: give only one of them")
        return self


class Queue(Record):
    """All jobs that share a cluster."""

    jobs: tuple[QueuedJob, ...] = Field(min_length=1)

    @classmethod
    def load(cls, path: str | Path) -> Queue:
        """Read a jobs file; its relative paths count from its folder. Raises JobError for an invalid file."""
        queue, folder = parse(cls, load_yaml(path, "jobs"), str(path)), folder_of(path)
        return cls(jobs=tuple(job.model_copy(update=_absolute_paths(folder, job)) for job in queue.jobs))


def _absolute_paths(folder: str, job: QueuedJob) -> dict[str, str]:
    paths = {name: getattr(job, name) for name in ("job", "recommendation", "table", "current")}
    return {name: absolute(path, folder) for name, path in paths.items() if isinstance(path, str)}
