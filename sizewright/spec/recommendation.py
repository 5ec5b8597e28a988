"""The recommendation for a job: an allocation with its reasons, or why there is none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict, Field

from sizewright.formatting import format_count
from sizewright.spec._answer import Answer
from sizewright.spec._base import Record
from sizewright.spec._frames import frame, sizes
from sizewright.spec.allocation import Allocation
from sizewright.spec.job import Objective
from sizewright.spec.reason import Reason

if TYPE_CHECKING:
    import pandas as pd


class Estimate(Record):
    """A value with its 90 % interval, `lower` to `upper`."""

    value: float
    lower: float
    upper: float


class Prediction(Record):
    """The prediction for the target."""

    throughput: Estimate
    completion_time_s: Estimate | None = Field(
        default=None, description="absent where the number of samples is unknown"
    )
    cost: Estimate | None = Field(default=None, description="of all samples; absent where their number is unknown")
    deadline_probability: float | None = Field(
        default=None, description="that the job completes by its deadline; absent without one"
    )
    price_per_hour: float | None = Field(
        default=None, description="currency per hour of the target's replicas, or of the whole hosts that it is put on"
    )
    worker_memory_bytes: int | None = Field(default=None, description="peak of a worker; absent where it is unknown")
    ps_memory_bytes: int | None = Field(default=None, description="peak of a PS; absent where it is unknown")
    device_memory_bytes: int | None = Field(
        default=None, description="peak of one GPU of a worker; absent where no trial measured one"
    )
    worker_oom_probability: float | None = Field(default=None, description="that a worker breaks the memory asked for")
    ps_oom_probability: float | None = Field(
        default=None, description="that the fullest PS breaks the memory asked for"
    )
    worker_utilization: float | None = Field(
        default=None, description="share of the workers' cores kept busy, if known"
    )
    ps_utilization: float | None = Field(default=None, description="share of the PS' cores kept busy, if known")


class Alternative(Record):
    """One row of the Pareto set of throughput and cost."""

    allocation: Allocation
    throughput: Estimate
    completion_time_s: float | None = Field(default=None, description="absent where the number of samples is unknown")
    cost: float | None = Field(default=None, description="of all samples; absent where their number is unknown")
    price_per_hour: float | None = Field(default=None, description="currency per hour of all replicas, or of the hosts")
    chosen: bool = False

    def time_and_cost(self) -> tuple[float, float]:
        """Return the seconds and the cost of all samples, or of a million where their number is unknown."""
        if self.completion_time_s is not None and self.cost is not None:
            return self.completion_time_s, self.cost
        from sizewright.spec.objective import completion_time_s, cost_of  # numpy is loaded with it

        time_s = completion_time_s(1e6, self.throughput.value)
        return time_s, cost_of(time_s, self.price_per_hour or 0.0)


class Machines(Record):
    """Whole hosts that hold all replicas of an allocation, and what to expect of them."""

    kind: str = Field(description="of host, as the cluster file names it")
    hosts: int = Field(description="how many of them the job is put on")
    spot: bool = Field(description="whether they are spot hosts, which may be taken away")
    price_hour: float = Field(description="of an hour of one host")
    interruptions_hour: float = Field(
        default=0.0, description="how often one host is taken away, on average in an hour"
    )
    allocation: Allocation = Field(description="the best one on these hosts")
    completion_time_s: Estimate | None = Field(
        default=None, description="mean with interruptions, and the 90 % interval; absent where samples are unknown"
    )
    cost: Estimate | None = Field(default=None, description="of all samples; absent where their number is unknown")
    deadline_probability: float | None = Field(
        default=None, description="that the job completes by its deadline; absent without one"
    )
    chosen: bool = False

    @property
    def price_per_hour(self) -> float:
        """Currency per hour of all hosts."""
        return self.hosts * self.price_hour

    def describe(self) -> str:
        """Return a text such as `4 spot hosts of big` or `1 host of big on demand`."""
        count = format_count(self.hosts, "spot host" if self.spot else "host")
        return f"{count} of {self.kind}" + ("" if self.spot else " on demand")


class SimilarJob(Record):
    """A finished job that is similar to this one."""

    name: str
    runs: int = Field(description="its runs whose throughput was used")
    distance: float = Field(
        description="from the job to size, in standard deviations of the job features; 0 for earlier runs of that job"
    )
    weight: float = Field(description="share of the evidence on throughput from similar jobs")


class Evidence(Record):
    """The evidence that the recommendation rests on."""

    trials: int
    distinct_allocations: int = Field(default=0, description="with a successful trial")
    stage: str = Field(default="pre_submission", description="when it was recommended: before the job was submitted")
    model: str = ""
    prior: str = Field(default="", description="source of the prior, if one was used")
    similar: tuple[SimilarJob, ...] = Field(default=(), description="finished jobs like it that were used")
    limited_by: tuple[str, ...] = Field(default=(), description="what limited the cores of the trials, such as cgroup")
    host: tuple[str, ...] = Field(default=(), description="hosts of the trials")
    extrapolated: bool = Field(
        default=False, description="whether the target lies beyond twice the range that trials or prior cover"
    )
    parameters: dict[str, float] = Field(default_factory=dict, description="of the model, as returned by `explain`")
    pinned: tuple[str, ...] = Field(default=(), description="parameters that the trials could not determine")
    assumptions: tuple[str, ...] = Field(default=(), description="what the recommendation assumes without evidence")
    to_be_surer: tuple[str, ...] = Field(
        default=(), description="what would narrow the interval, or may lead to a better target"
    )


class Remedy(Record):
    """One numbered way out of "not enough data" or "infeasible"."""

    number: int
    text: str

    @classmethod
    def numbered(cls, texts: Iterable[str]) -> tuple[Remedy, ...]:
        """Return remedies with these texts, numbered from 1."""
        return tuple(cls(number=number, text=text) for number, text in enumerate(texts, 1))


class Recommendation(Answer):
    """The recommendation of what a job should request."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True, populate_by_name=True)

    schema_: Literal["sizewright/recommendation/v1"] = Field(default="sizewright/recommendation/v1", alias="schema")
    status: Literal["ok", "not_enough_data", "infeasible"]
    job: str
    objective: Objective | None = Field(default=None, description="that the target optimises")
    target: Allocation | None = Field(default=None, description="what the job should request")
    lower: Allocation | None = Field(
        default=None, description="the cheapest allocation that the evidence cannot distinguish from the target"
    )
    upper: Allocation | None = Field(
        default=None, description="the most expensive allocation that the evidence cannot distinguish from the target"
    )
    uncapped: Allocation | None = Field(
        default=None,
        description="what the target would be without the limits of memory, hosts, quota, deadline and trials",
    )
    predicted: Prediction | None = None
    alternatives: tuple[Alternative, ...] = ()
    machines: tuple[Machines, ...] = Field(
        default=(),
        description="kinds of hosts with the best allocation on each, the best first; empty if hosts have no price",
    )
    evidence: Evidence
    reasons: tuple[str, ...] = ()
    reason_details: tuple[Reason, ...] = Field(
        default=(), description="the reasons one for one, as kinds with their numbers"
    )
    remedies: tuple[Remedy, ...] = ()

    @property
    def chosen_machines(self) -> Machines | None:
        """The hosts that the target is to be put on; None if hosts have no price."""
        return next((each for each in self.machines if each.chosen), None)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per alternative, with the chosen one marked."""
        return frame(
            sizes(each.allocation)
            | {
                "throughput": each.throughput.value, "throughput_lower": each.throughput.lower,
                "throughput_upper": each.throughput.upper, "completion_time_s": each.completion_time_s,
                "cost": each.cost, "price_per_hour": each.price_per_hour, "chosen": each.chosen,
            }
            for each in self.alternatives
        )  # fmt: skip
