"""The trial table: one row per measurement, the contract between profiler, models and users."""

from __future__ import annotations

import html
import importlib
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from sizewright.spec import LimitedBy
from sizewright.spec._base import Record
from sizewright.spec._frames import frame
from sizewright.spec.units import (
    Count,
    MeasuredByteCount,
    MeasuredBytes,
    MeasuredCores,
    MeasuredNumber,
    MeasuredSeconds,
)

if TYPE_CHECKING:
    import pandas as pd

TRIAL_SCHEMA_VERSION = 1
TrialStatus = Literal["ok", "failed", "oom", "void"]


class Trial(Record):
    """One measurement of a job at one allocation.

    To fit a model, `workers`, `ps` and `throughput` are needed; all other fields are optional.
    Units are cores, bytes, seconds and samples/s; `phase_*_s` and `ps_busy_*` are busy seconds per step.
    """

    workers: Count = Field(ge=1)
    ps: Count = Field(ge=0)
    throughput: MeasuredNumber | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="samples/s, what models learn"
    )
    job: str | None = None
    job_hash: str | None = Field(default=None, description="hash of the whole description of what is trained")
    series: str | None = Field(default=None, description="trials measured one after the other share this id")
    status: TrialStatus = "ok"
    message: str | None = Field(default=None, description="why a trial failed or is void")
    oom_memory: Literal["host", "device"] | None = Field(
        default=None, description="with status oom: whether the memory of the host or of a GPU ran out"
    )

    worker_cpu: MeasuredCores | None = Field(default=None, gt=0, description="cores of one worker")
    ps_cpu: MeasuredCores | None = Field(default=None, gt=0, description="cores of one PS")
    worker_gpu: Count | None = Field(default=None, ge=0, description="GPUs of one worker")
    gpu_kind: str | None = Field(default=None, description="kind of these GPUs, as bounds name it; else their product")
    batch_size: Count | None = Field(default=None, ge=1, description="samples per step of one worker")
    loaders: Count | None = Field(default=None, ge=0, description="processes that read data for one worker")
    sync: Literal["async", "sync"] | None = None
    table_scale: MeasuredNumber | None = Field(
        default=None, gt=0, description="rows of the tables over those of the job"
    )

    throughput_raw: MeasuredNumber | None = Field(default=None, ge=0, description="samples/s as counted")
    throughput_se: MeasuredNumber | None = Field(
        default=None, ge=0, description="standard error of throughput, samples/s"
    )
    # Wall time in the phase without waiting for others; under a CPU quota it includes the throttled time.
    phase_data_s: MeasuredSeconds | None = None
    phase_pull_s: MeasuredSeconds | None = None
    phase_compute_s: MeasuredSeconds | None = None
    phase_push_s: MeasuredSeconds | None = None
    ps_busy_s: MeasuredSeconds | None = Field(
        default=None, description="service of one exchange at a PS without its socket, mean over PS"
    )
    ps_busy_max_s: MeasuredSeconds | None = Field(default=None, description="the same at the busiest PS")
    ps_share_max: MeasuredNumber | None = Field(default=None, description="largest PS's share of look-ups")
    unique_rows_per_batch: MeasuredNumber | None = Field(
        default=None, description="distinct rows that a step of a worker pulls"
    )
    embedding_bytes: MeasuredByteCount | None = Field(
        default=None, description="rows and their optimizer state, all PS, at the end"
    )
    rows_at_start: Count | None = Field(default=None, description="rows in all tables when measuring began")
    worker_memory_bytes: MeasuredBytes | None = Field(default=None, description="greatest peak of a worker")
    ps_memory_bytes: MeasuredBytes | None = Field(default=None, description="greatest peak of a PS")
    device: str | None = None
    device_memory_bytes: MeasuredByteCount | None = Field(
        default=None, description="greatest peak of a GPU of a worker, or of rows on one of a PS"
    )
    gpu_utilization: MeasuredNumber | None = Field(
        default=None, ge=0, description="share of the time in which a GPU computed, mean over GPUs; from NVML"
    )
    gpu_power_w: MeasuredNumber | None = Field(
        default=None, ge=0, description="watts that a GPU used, mean over GPUs; from NVML"
    )
    worker_cpu_used: MeasuredCores | None = Field(default=None, ge=0, description="cores used, mean over workers")
    ps_cpu_used: MeasuredCores | None = Field(default=None, ge=0, description="cores used, mean over PS")
    loader_cpu_used: MeasuredCores | None = Field(
        default=None, ge=0, description="cores of a worker that processes used which train nothing, mean over workers"
    )
    uncharged_cpu_s: MeasuredSeconds | None = Field(default=None, description="CPU seconds of the engine itself")
    throttled_s: MeasuredSeconds | None = Field(
        default=None, description="seconds throttled by CPU quotas, all replicas"
    )
    network_bytes: MeasuredNumber | None = Field(
        default=None, description="bytes between workers and PS, per step of one worker"
    )
    duration_s: MeasuredSeconds | None = Field(default=None, description="seconds that throughput was measured for")
    watched_s: MeasuredSeconds | None = Field(
        default=None,
        description="seconds that its memory was watched for, from the start of its replicas or the last change",
    )
    worker_memory_growth: MeasuredNumber | None = Field(
        default=None, description="bytes/s by which the fullest worker grew while it was measured"
    )
    ps_memory_growth: MeasuredNumber | None = Field(default=None, description="the same of the fullest PS")
    steps: Count | None = Field(default=None, description="steps of all workers in the measured time")
    other_cpu_used: MeasuredCores | None = Field(
        default=None, ge=0, description="cores that other work on the host used meanwhile"
    )
    starved_share: MeasuredNumber | None = Field(
        default=None, ge=0, description="share of its time that a replica waited for a core that others had"
    )
    limited_by: LimitedBy | None = None
    cfs_period_ms: MeasuredNumber | None = None
    host: str | None = None
    host_speed: MeasuredNumber | None = Field(
        default=None, gt=0, description="speed of a core before the trial; the reference host has about 1"
    )
    started_at: datetime | None = None

    @property
    def usable(self) -> bool:
        """Return whether a model may learn from this trial."""
        return self.status == "ok" and bool(self.throughput)

    @property
    def cause(self) -> str:
        """The last line that the replica of a failed trial printed, or else the message of the trial.

        Where memory ran out, the first line of the message says so, since the replica may have printed anything.
        """
        message = self.message or self.status
        if self.status == "oom":
            return message.partition("\n")[0].partition(", after ")[0]
        printed = [line.strip() for line in message.splitlines() if line.startswith("    ")]
        return printed[-1] if printed else message

    @property
    def cores_used(self) -> float | None:
        """Return the cores that all workers and PS used; None if a role's are unknown."""
        if self.worker_cpu_used is None or (self.ps and self.ps_cpu_used is None):
            return None
        return self.workers * self.worker_cpu_used + self.ps * (self.ps_cpu_used or 0.0)


class Trials(list[Trial]):
    """A list of trials, which prints as a table and converts to a data frame."""

    def to_frame(self) -> pd.DataFrame:
        """Return the trial table, one trial a row."""
        return frame((trial.model_dump() for trial in self), Trial.model_fields)

    def __str__(self) -> str:
        return str(importlib.import_module("sizewright.cli.plain").text_of_trials(self))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(timezone.utc)
