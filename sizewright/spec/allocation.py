"""The resources of a replica, and the allocation of a job: the number and size of the replicas of each role."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_serializer

from sizewright.formatting import format_bytes, format_count
from sizewright.redaction import shortened
from sizewright.spec._base import Record
from sizewright.spec._shorthand import PLATFORM_NAME, Shorthand
from sizewright.spec.units import ByteCount, Cores, Count

Role = Literal["worker", "ps", "chief", "evaluator"]
ROLES: tuple[Role, ...] = ("worker", "ps", "chief", "evaluator")


ANY_GPU = "gpu"
"""The kind of GPUs whose kind is not named."""


class Gpu(Record):
    """GPUs of one replica."""

    kind: Annotated[str, PLATFORM_NAME] = Field(default=ANY_GPU, description="as hosts name theirs")
    count: Count = Field(ge=1, description="of each replica, or host")

    def describe(self) -> str:
        """Return a text such as `1 GPU` or `2 a100`."""
        return format_count(self.count, "GPU") if self.kind == ANY_GPU else f"{self.count} {self.kind}"


def same_kind(one: str, other: str) -> bool:
    """Return whether two names are of one kind of GPU, as `h100` and `NVIDIA-H100-80GB-HBM3` are.

    The words of one are all among those of the other.
    """
    words = [set(re.split(r"[^a-z0-9]+", name.lower())) for name in (one, other)]
    return words[0] <= words[1] or words[1] <= words[0]


def read_gpus(value: Any) -> Any:
    """Expand `2` and `a100:2` into a mapping, and 0 into None."""
    text = str(value).strip() if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    if text == "0":
        return None
    if match := re.fullmatch(r"(?:([A-Za-z][-\w.]*):)?(\d{1,9})", text, re.ASCII):
        return {"count": int(match[2])} | ({"kind": match[1]} if match[1] else {})
    if value is None or isinstance(value, (Mapping, Record)):
        return value
    raise ValueError(f"must look like {{kind: a100, count: 2}}, a100:2 or 2, got {shortened(value)}")


# `2` stands for `{count: 2}`, `a100:2` for `{kind: a100, count: 2}`.
Gpus = Annotated[
    Gpu | None,
    Shorthand(expand=read_gpus, short=lambda _: {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}),
]


class Resources(Record):
    """The resources that one replica may use: cores, bytes and GPUs."""

    cpu: Cores = Field(gt=0)
    memory_bytes: ByteCount = Field(ge=0)
    gpu: Gpus = None


class Group(Record):
    """Replicas of one size in one role."""

    replicas: Count = Field(ge=0, description="how many of this size")
    cpu: Cores = Field(gt=0, description="of each")
    memory_bytes: ByteCount = Field(ge=0, description="of each; 0 is no limit")
    gpu: Gpus = None

    def describe_memory(self) -> str:
        """Return a text such as `512.0 MiB`, or `no limit` when no memory is requested."""
        return format_bytes(self.memory_bytes) if self.memory_bytes else "no limit"


class Allocation(Record):
    """Groups of replicas for each role, and the batch size per worker."""

    worker: tuple[Group, ...] = Field(description="groups of equal workers, one nearly always")
    ps: tuple[Group, ...] = Field(default=(), description="groups of equal parameter servers")
    chief: tuple[Group, ...] = Field(default=(), description="of jobs that have one")
    evaluator: tuple[Group, ...] = Field(default=(), description="of jobs that have one")
    batch_size: Count = Field(ge=1, description="samples per step of one worker")
    loaders: Count | None = Field(
        default=None, ge=0, description="loader processes of one worker; null: as the job says"
    )

    @classmethod
    def of(
        cls,
        workers: int,
        ps: int,
        worker_cpu: float,
        ps_cpu: float,
        batch_size: int,
        worker_memory_bytes: int = 0,
        ps_memory_bytes: int = 0,
        worker_gpu: int = 0,
        gpu_kind: str = ANY_GPU,
        loaders: int | None = None,
    ) -> Allocation:
        """Return an allocation with one group per role, the usual case. Without PS their size is ignored.

        `worker_gpu` is the number of GPUs of each worker, of `gpu_kind`, and `loaders` the number of its loader
        processes, by default as many as the job says.
        """
        gpu = Gpu(kind=gpu_kind, count=worker_gpu) if worker_gpu else None
        return cls(
            worker=(Group(replicas=workers, cpu=worker_cpu, memory_bytes=worker_memory_bytes, gpu=gpu),),
            ps=(Group(replicas=ps, cpu=ps_cpu, memory_bytes=ps_memory_bytes),) if ps else (),
            batch_size=batch_size,
            loaders=loaders,
        )

    @property
    def groups(self) -> Iterator[tuple[Role, Group]]:
        """All groups with their roles."""
        for role in ROLES:
            for group in getattr(self, role):
                yield role, group

    def replicas(self, role: Role) -> int:
        """Return the number of replicas of a role."""
        return sum(group.replicas for group in getattr(self, role))

    def cores(self, role: Role | None = None) -> float:
        """Return the cores of a role, or of all roles."""
        return sum(g.cpu * g.replicas for r, g in self.groups if role in (None, r))

    def memory_bytes(self, role: Role | None = None) -> int:
        """Return the memory of a role, or of all roles, in bytes."""
        return sum(g.memory_bytes * g.replicas for r, g in self.groups if role in (None, r))

    def gpus(self, role: Role | None = None) -> int:
        """Return the GPUs of a role, or of all roles."""
        return sum(g.gpu.count * g.replicas for r, g in self.groups if g.gpu and role in (None, r))

    def each(self, role: Role) -> Iterator[Resources]:
        """Yield the resources of each replica of a role."""
        for group in getattr(self, role):
            for _ in range(group.replicas):
                yield Resources(cpu=group.cpu, memory_bytes=group.memory_bytes, gpu=group.gpu)

    def describe(self) -> str:
        """Return a text such as `2 workers × 0.5 cores, 1 PS × 0.2 cores, batch 512`."""
        parts = []
        for role, group in self.groups:
            name = {"worker": "worker", "ps": "PS"}.get(role, role)
            replicas = format_count(group.replicas, name, "PS" if role == "ps" else None)
            memory = f" and {format_bytes(group.memory_bytes)}" if group.memory_bytes else ""
            gpus = f" and {group.gpu.describe()}" if group.gpu else ""
            parts.append(f"{replicas} × {format_count(group.cpu, 'core')}{memory}{gpus}")
        loaders = [] if self.loaders is None else [format_count(self.loaders, "loader")]
        return ", ".join([*parts, f"batch {self.batch_size}", *loaders])

    @model_serializer(mode="wrap")
    def _drop_unused_roles(self, handler: Any) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        unused = {name for name in ("chief", "evaluator") if not data.get(name)}
        unused |= {"loaders"} if self.loaders is None else set()
        return {name: value for name, value in data.items() if name not in unused}
