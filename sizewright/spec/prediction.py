"""The prediction for an allocation that a user has in mind, compared with the recommended one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict, Field

from sizewright.spec._answer import Answer
from sizewright.spec._base import Record
from sizewright.spec._frames import frame, sizes
from sizewright.spec.allocation import Allocation
from sizewright.spec.reason import Reason
from sizewright.spec.recommendation import Estimate, Evidence, Machines, Prediction, Remedy
from sizewright.spec.units import Bytes, Cores, Count

if TYPE_CHECKING:
    import pandas as pd


class Sizes(Record):
    """The sizes of an allocation that a user asks about; those that are null are taken from the recommended one."""

    workers: Count | None = Field(default=None, ge=1)
    ps: Count | None = Field(default=None, ge=1)
    worker_cpu: Cores | None = Field(default=None, gt=0, description="cores of a worker")
    ps_cpu: Cores | None = Field(default=None, gt=0, description="cores of a PS")
    worker_gpu: Count | None = Field(default=None, ge=0, description="GPUs of a worker")
    batch_size: Count | None = Field(default=None, ge=1, description="samples per batch of a worker")
    loaders: Count | None = Field(default=None, ge=0, description="loader processes of a worker")
    worker_memory: Bytes | None = Field(default=None, gt=0, description="memory of a worker")
    ps_memory: Bytes | None = Field(default=None, gt=0, description="memory of a PS")


class MeasuredThroughput(Record):
    """The trials at one allocation."""

    trials: int = Field(description="number of successful trials")
    throughput: Estimate = Field(description="samples/s: the median, the lowest and the highest")


class PredictedAllocation(Record):
    """One allocation with its prediction."""

    allocation: Allocation
    predicted: Prediction
    measured: MeasuredThroughput | None = Field(default=None, description="null if no trial has this allocation")
    extrapolated: bool = Field(default=False, description="whether it lies beyond what trials and prior cover")
    machines: Machines | None = Field(
        default=None, description="the hosts that are best for it; null if hosts have no price, or hold it in no number"
    )
    allowed: bool = Field(default=True, description="whether memory, hosts, quota, deadline and trials allow it")


class PredictionAnswer(Answer):
    """The prediction for an allocation, compared with the recommended one."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True, populate_by_name=True)

    schema_: Literal["sizewright/prediction/v1"] = Field(default="sizewright/prediction/v1", alias="schema")
    status: Literal["ok", "not_enough_data"]
    job: str
    asked: PredictedAllocation | None = Field(default=None, description="the allocation that was asked for")
    recommended: PredictedAllocation | None = Field(default=None, description="null if none can be recommended")
    evidence: Evidence
    reasons: tuple[str, ...] = ()
    reason_details: tuple[Reason, ...] = Field(
        default=(), description="the reasons one for one, as kinds with their numbers"
    )
    remedies: tuple[Remedy, ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """Return one row per allocation."""
        rows = {"asked": self.asked, "recommended": self.recommended}
        return frame(
            {"which": name} | sizes(row.allocation) | {
                "throughput": row.predicted.throughput.value, "throughput_lower": row.predicted.throughput.lower,
                "throughput_upper": row.predicted.throughput.upper,
                "completion_time_s": row.predicted.completion_time_s and row.predicted.completion_time_s.value,
                "cost": row.predicted.cost and row.predicted.cost.value,
                "price_per_hour": row.predicted.price_per_hour,
                "measured": row.measured and row.measured.throughput.value,
            }
            for name, row in rows.items()
            if row
        )  # fmt: skip
