"""The cluster file: the hosts, and the quota of one job."""

from __future__ import annotations

from pathlib import Path

from pydantic import ConfigDict, Field, model_validator

from sizewright.spec._base import Record, load_yaml, parse
from sizewright.spec.allocation import Gpus
from sizewright.spec.units import Bytes, Cores, Count, Number


class HostKind(Record):
    """A kind of equal hosts."""

    kind: str = Field(description="their name")
    count: Count = Field(default=1, ge=0, le=1_000_000, description="how many of them")
    cpu: Cores = Field(gt=0, description="of each")
    memory_bytes: Bytes = Field(gt=0, validation_alias="memory", serialization_alias="memory", description="of each")
    gpu: Gpus = None
    gpu_memory_bytes: Bytes | None = Field(
        default=None, gt=0, validation_alias="gpu_memory", serialization_alias="gpu_memory", description="of each GPU"
    )
    network_gbps: Number | None = Field(default=None, gt=0, description="bandwidth of one host's link")

    price_hour: Number | None = Field(
        default=None, ge=0, description="of an hour of one host; absent: by OpenCost's prices of cores, memory and GPUs"
    )
    spot_price_hour: Number | None = Field(default=None, ge=0, description="of an hour of one host that may be taken")
    interruptions_hour: Number | None = Field(
        default=None, ge=0, description="how often a spot host is taken away, on average in an hour"
    )

    model_config = ConfigDict(populate_by_name=True)

    @model_validator(mode="after")
    def _gpu_memory_of_gpus(self) -> HostKind:
        if self.gpu_memory_bytes is not None and self.gpu is None:
            raise ValueError("gpu_memory is the memory of a GPU, but these hosts have no gpu")
        return self


class Quota(Record):
    """The maximum total resources that one job may request."""

    cpu: Cores | None = Field(default=None, gt=0, description="of all replicas of a job")
    memory_bytes: Bytes | None = Field(
        default=None, gt=0, validation_alias="memory", serialization_alias="memory",
        description="of all replicas of a job",
    )  # fmt: skip
    gpu: Count | None = Field(default=None, ge=0, description="GPUs of any kind")

    model_config = ConfigDict(populate_by_name=True)


class Cluster(Record):
    """The hosts of a cluster and the quota of one job."""

    name: str = Field(default="cluster", description="for messages")
    hosts: tuple[HostKind, ...] = Field(min_length=1, description="kinds of equal hosts")
    quota: Quota = Quota()

    @classmethod
    def load(cls, path: str | Path) -> Cluster:
        """Read a cluster file. Raises JobError for an invalid one."""
        return parse(cls, load_yaml(path, "cluster"), str(path))

    def only(self, host: HostKind) -> Cluster:
        """Return the cluster with the hosts of one kind only."""
        return self.model_copy(update={"hosts": (host,), "name": f"{self.name} ({host.kind})"})

    @property
    def cpu_limit(self) -> float:
        """Cores that one job may request."""
        capacity = sum(host.cpu * host.count for host in self.hosts)
        return min(capacity, self.quota.cpu or capacity)

    @property
    def memory_limit_bytes(self) -> int:
        """Memory that one job may request, in bytes."""
        capacity = sum(host.memory_bytes * host.count for host in self.hosts)
        return min(capacity, self.quota.memory_bytes or capacity)

    @property
    def largest_memory_bytes(self) -> int:
        """Memory of the largest host, in bytes."""
        return max((host.memory_bytes for host in self.hosts if host.count), default=0)
