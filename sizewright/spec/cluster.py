"""The cluster file: which hosts there are, and how much of them a job may ask for."""

from __future__ import annotations

from pathlib import Path

from pydantic import ConfigDict, Field

from sizewright.spec._base import Record, load_yaml, parse
from sizewright.spec.allocation import Gpus
from sizewright.spec.units import Bytes, Cores, Count, Number


class HostKind(Record):
    """Equal hosts."""

    kind: str = Field(description="their name")
    count: Count = Field(default=1, ge=0, le=1_000_000, description="how many of them")
    cpu: Cores = Field(gt=0, description="of each")
    memory_bytes: Bytes = Field(gt=0, validation_alias="memory", serialization_alias="memory", description="of each")
    gpu: Gpus = None
    network_gbps: Number | None = Field(default=None, gt=0, description="bandwidth of one host's link")

    model_config = ConfigDict(populate_by_name=True)


class Quota(Record):
    """The most that one job may ask for in sum."""

    cpu: Cores | None = Field(default=None, gt=0, description="of all replicas of a job")
    memory_bytes: Bytes | None = Field(
        default=None, gt=0, validation_alias="memory", serialization_alias="memory",
        description="of all replicas of a job",
    )  # fmt: skip
    gpu: Count | None = Field(default=None, ge=0, description="GPUs of any kind")

    model_config = ConfigDict(populate_by_name=True)


class Cluster(Record):
    """Hosts and quota."""

    name: str = Field(default="cluster", description="for messages")
    hosts: tuple[HostKind, ...] = Field(min_length=1, description="kinds of equal hosts")
    quota: Quota = Quota()

    @classmethod
    def load(cls, path: str | Path) -> Cluster:
        """Read a cluster file. Raises JobError with one sentence for every user mistake."""
        return parse(cls, load_yaml(path, "cluster"), str(path))

    @property
    def cpu_limit(self) -> float:
        """Cores that one job may ask for."""
        capacity = sum(host.cpu * host.count for host in self.hosts)
        return min(capacity, self.quota.cpu or capacity)

    @property
    def memory_limit_bytes(self) -> int:
        """Bytes that one job may ask for."""
        capacity = sum(host.memory_bytes * host.count for host in self.hosts)
        return min(capacity, self.quota.memory_bytes or capacity)

    @property
    def gpu_limit(self) -> int:
        """GPUs of any kind that one job may ask for."""
        capacity = sum(host.gpu.count * host.count for host in self.hosts if host.gpu)
        return capacity if self.quota.gpu is None else min(capacity, self.quota.gpu)

    @property
    def largest_cpu(self) -> float:
        """Cores of the largest host: no replica can have more."""
        return max((host.cpu for host in self.hosts if host.count), default=0.0)

    @property
    def largest_memory_bytes(self) -> int:
        """Bytes of the largest host."""
        return max((host.memory_bytes for host in self.hosts if host.count), default=0)
