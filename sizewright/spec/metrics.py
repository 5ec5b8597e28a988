"""What an executor reports of a running job: sums since each replica began, so that two reports give a rate."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sizewright.spec._base import Record
from sizewright.spec.allocation import Allocation, Role

LimitedBy = Literal["cgroup", "affinity", "none"]


class ReplicaMetrics(Record):
    """One replica, by role and `index`. Seconds, bytes and counts are sums since it began; `at_s` and `last_step_at_s`
    are its clock. `runqueue_s` are seconds that its threads were ready and had no core, or were held back by its quota.

    Workers tell their `steps` and `samples`, seconds by phase, the `unique_rows` they pulled and the sum of each
    step's `loss`; PS the `exchanges` they served, `pushes` among them, `lookups` of rows, and what they hold. Both tell
    `bytes_sent` and `bytes_received`.
    """

    role: Role
    index: int
    at_s: float
    cpu_s: float
    throttled_s: float
    memory_peak_bytes: int
    runqueue_s: float = 0.0
    limited_by: LimitedBy | None = None
    """What holds it to its cores; None where that is unknown."""
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
        """Such as `ps-1`; a replica that comes later never gets the name of one that went."""
        return f"{self.role}-{self.index}"

    @property
    def network_bytes(self) -> int:
        """Bytes sent and received."""
        return self.bytes_sent + self.bytes_received


class Metrics(Record):
    """All replicas of a job, the CPU seconds of the engine itself, and `samples_trained` by all workers ever."""

    replicas: tuple[ReplicaMetrics, ...]
    engine_cpu_s: float = 0.0
    samples_trained: int = 0
    samples_left: int | None = Field(default=None, description="still to be trained, where its executor knows")
    allocation: Allocation | None = Field(default=None, description="what the job runs at, where its executor knows")
    trains_s: float | None = Field(
        default=None,
        description="seconds since training began, where its executor knows; changes are counted from there",
    )

    def sums(self, role: Role | None = None) -> dict[str, float]:
        """What the replicas of a role, or all, have used and done together, by the names of ReplicaMetrics."""
        told = [r for r in self.replicas if role in (None, r.role)]
        return {name: sum(getattr(replica, name) for replica in told) for name in _SUMMED}

    @property
    def limited_by(self) -> LimitedBy | None:
        """What holds the replica that is held the least; None where none is told of."""
        kinds: tuple[LimitedBy, ...] = ("none", "affinity", "cgroup")
        found = {replica.limited_by for replica in self.replicas}
        return next((kind for kind in kinds if kind in found), None)

    def of(self, role: Role) -> tuple[ReplicaMetrics, ...]:
        """The replicas of a role."""
        return tuple(replica for replica in self.replicas if replica.role == role)


_SUMMED = (
    "cpu_s", "throttled_s", "runqueue_s", "memory_peak_bytes", "steps", "samples", "data_s", "pull_s", "compute_s",
    "push_s", "wait_s", "unique_rows", "bytes_sent", "bytes_received", "device_memory_bytes", "loss", "exchanges",
    "pushes", "busy_s", "lookups", "rows", "embedding_bytes", "index_bytes",
)  # fmt: skip
