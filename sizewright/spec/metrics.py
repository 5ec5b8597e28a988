"""The metrics of a running job: sums since each replica started, so that two reports give a rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from sizewright.spec._base import Record
from sizewright.spec.allocation import Allocation, Role

LimitedBy = Literal["cgroup", "affinity", "none"]
PHASES = ("data_s", "pull_s", "compute_s", "push_s")
"""The phases of a worker's step, as `ReplicaMetrics` names their seconds."""


class ReplicaMetrics(Record):
    """The metrics of one replica, identified by role and `index`.

    Seconds, bytes and counts are sums since it started; `at_s` and `last_step_at_s` are times of its clock.
    `runqueue_s` are seconds in which its threads were ready but had no core, or were throttled by its quota.

    Workers report `steps` and `samples`, seconds by phase, the `unique_rows` that they pulled, and the sum of each
    step's `loss`. PS report the `exchanges` that they served, `pushes` among them, `lookups` of rows, and the rows and
    bytes that they hold. Both report `bytes_sent` and `bytes_received`.

    Where NVML tells, workers of a command report the seconds in which a GPU computed (`gpu_busy_s`) and the joules that
    it used (`gpu_energy_j`), means over the GPUs of the worker, and what these are (`gpu_product`).
    """

    role: Role
    index: int
    at_s: float
    cpu_s: float
    throttled_s: float
    memory_peak_bytes: int
    runqueue_s: float = 0.0
    limited_by: LimitedBy | None = None
    """The mechanism that limits its cores; None where it is unknown."""
    cfs_period_ms: float | None = None

    steps: int = 0
    samples: int = 0
    last_step_at_s: float = 0.0
    data_s: float = 0.0
    pull_s: float = 0.0
    compute_s: float = 0.0
    push_s: float = 0.0
    wait_s: float = 0.0
    unique_rows: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    device_memory_bytes: int = 0
    loader_cpu_s: float | None = None
    """CPU seconds of its processes that report no samples, such as data loaders; None where they are not told apart."""
    gpu_busy_s: float | None = None
    gpu_energy_j: float | None = None
    gpu_product: str | None = None
    loss: float = 0.0

    exchanges: int = 0
    pushes: int = 0
    busy_s: float = 0.0
    lookups: int = 0
    rows: int = 0
    embedding_bytes: int = 0
    index_bytes: int = 0

    @property
    def name(self) -> str:
        """A name such as `ps-1`; names of replicas that ended are not reused."""
        return f"{self.role}-{self.index}"

    @property
    def network_bytes(self) -> int:
        """Bytes sent and received."""
        return self.bytes_sent + self.bytes_received


@dataclass(frozen=True)
class ReplicaLog:
    """The log of a replica that runs elsewhere, identified by role and `index`: its lines, each with its Unix time."""

    role: Role
    index: int
    lines: tuple[tuple[float, str], ...]
    cores: float | None = None
    """Cores that the platform says it uses; None where it does not tell."""
    memory_bytes: int | None = None
    """Memory that the platform says it uses."""


class Metrics(Record):
    """The metrics of all replicas, CPU seconds of the engine, and `samples_trained` by present and past workers."""

    replicas: tuple[ReplicaMetrics, ...]
    engine_cpu_s: float = 0.0
    samples_trained: int = 0
    samples_left: int | None = Field(default=None, description="still to be trained, where its executor knows")
    allocation: Allocation | None = Field(default=None, description="current allocation, where its executor knows")
    trains_s: float | None = Field(
        default=None,
        description="seconds since training began, where its executor knows; changes are counted from there",
    )

    @property
    def limited_by(self) -> LimitedBy | None:
        """The weakest mechanism that limits the cores of any replica; None where it is unknown."""
        kinds: tuple[LimitedBy, ...] = ("none", "affinity", "cgroup")
        reported = {replica.limited_by for replica in self.replicas}
        return next((kind for kind in kinds if kind in reported), None)

    def of(self, role: Role) -> tuple[ReplicaMetrics, ...]:
        """Return the replicas of a role."""
        return tuple(replica for replica in self.replicas if replica.role == role)
