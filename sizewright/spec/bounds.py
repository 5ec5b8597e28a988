"""Bounds of a recommendation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from sizewright.formatting import GIB, format_bytes
from sizewright.spec._base import Record
from sizewright.spec._shorthand import ONE_FOR_BOTH, PLATFORM_NAME, Shorthand
from sizewright.spec.allocation import ANY_GPU, read_gpus
from sizewright.spec.units import Bytes, Cores, Count

# Far beyond any cluster: larger numbers are typing errors.
MAX_REPLICAS = 10_000
Replicas = Annotated[Count, Field(le=MAX_REPLICAS)]
Gpus = Annotated[Count, Field(ge=0, le=1000)]
Loaders = Annotated[Count, Field(ge=0, le=1000)]
BatchSize = Annotated[Count, Field(ge=1, le=10**9)]
NO_REPLICAS = (0, 0)


class GpuBounds(Record):
    """The minimum and maximum of the GPUs of one worker, all of one kind."""

    kind: Annotated[str, PLATFORM_NAME] = Field(default=ANY_GPU, description="as hosts name theirs")
    count: Annotated[tuple[Gpus, Gpus], ONE_FOR_BOTH] = Field(description="of each worker; from 0: also without GPUs")

    @field_validator("count")
    @classmethod
    def _ordered(cls, value: tuple[int, int]) -> tuple[int, int]:
        if value[0] > value[1]:
            raise ValueError(f"the minimum ({value[0]}) is above the maximum ({value[1]})")
        if value[1] < 1:
            raise ValueError("the maximum is 0; leave gpu out for workers without GPUs")
        return value


def _short_gpu_bounds(_: Any) -> dict[str, Any]:
    """Return the schema of `2`, `[1, 8]` and `a100:2`."""
    count = {"type": "integer", "minimum": 0}
    pair = {"type": "array", "prefixItems": [count, count], "minItems": 2, "maxItems": 2}
    return {"anyOf": [count, pair, {"type": "string"}]}


def _gpu_bounds(value: Any) -> Any:
    named = value if isinstance(value, (list, tuple)) else value.get("kind") if isinstance(value, Mapping) else ()
    if isinstance(named, (list, tuple)) and any(isinstance(kind, str) and kind[:1].isalpha() for kind in named):
        raise ValueError("kinds of GPUs are not mixed; name one, such as {kind: a100, count: [1, 8]}")
    return {"count": value} if isinstance(value, (list, tuple)) else read_gpus(value)


class RoleBounds(Record):
    """The minimum and maximum of replicas and size of one role; one number stands for both."""

    replicas: Annotated[tuple[Replicas, Replicas], ONE_FOR_BOTH] = Field(default=(1, 8), description="how many of them")
    cpu: Annotated[tuple[Cores, Cores], ONE_FOR_BOTH] = Field(default=(0.5, 4.0), description="of each replica")
    memory_bytes: Annotated[tuple[Bytes, Bytes], ONE_FOR_BOTH] = Field(
        default=(256 * 1024**2, 16 * GIB),
        validation_alias="memory",
        serialization_alias="memory",
        description="of each replica",
    )
    gpu: Annotated[GpuBounds | None, Shorthand(expand=_gpu_bounds, short=_short_gpu_bounds)] = Field(
        default=None, description="GPUs of each worker, never of a PS; absent: as in the trials"
    )

    model_config = ConfigDict(populate_by_name=True)

    @field_validator("replicas", "cpu", "memory_bytes")
    @classmethod
    def _ordered(cls, value: tuple[float, float], info: ValidationInfo) -> tuple[float, float]:
        if value[0] > value[1]:
            low, high = map(format_bytes if info.field_name == "memory_bytes" else "{:g}".format, value)
            raise ValueError(f"the minimum ({low}) is above the maximum ({high})")
        if value[0] < 0:
            raise ValueError("bounds must not be below 0")
        return value

    @model_validator(mode="after")
    def _positive(self) -> RoleBounds:
        if self.replicas[0] < 1 and self.replicas != NO_REPLICAS:
            raise ValueError("replicas start at 1; for none write replicas: 0")
        if self.cpu[0] <= 0:
            raise ValueError("cpu must be above 0")
        if self.memory_bytes[1] <= 0:
            raise ValueError("memory must be above 0")
        return self


class Bounds(Record):
    """The smallest and largest allocation that may be recommended."""

    worker: RoleBounds = Field(default=RoleBounds(), description="minimum and maximum of workers")
    ps: RoleBounds = Field(
        default=RoleBounds(replicas=(1, 4)),
        description="minimum and maximum of parameter servers; replicas: 0 for a command without PS",
    )
    batch_size: tuple[BatchSize, BatchSize] | None = Field(
        default=None, description="absent: the batch size stays as the job says"
    )
    loaders: Annotated[tuple[Loaders, Loaders], ONE_FOR_BOTH] | None = Field(
        default=None, description="loader processes of a worker; absent: their number stays as the job says"
    )
    tested_workers: Count | None = Field(
        default=None,
        ge=1,
        description="asynchronous workers that the model's quality was tested with; more are warned of",
    )

    @model_validator(mode="after")
    def _has_workers(self) -> Bounds:
        if self.worker.replicas == NO_REPLICAS:
            raise ValueError("a job has at least 1 worker, and worker.replicas is 0")
        return self

    @model_validator(mode="after")
    def _gpus_of_workers(self) -> Bounds:
        if self.ps.gpu:
            raise ValueError("ps.gpu is set, but only workers have GPUs; write worker.gpu")
        return self

    @model_validator(mode="after")
    def _batch_ordered(self) -> Bounds:
        if self.batch_size and self.batch_size[0] > self.batch_size[1]:
            raise ValueError("batch_size must be [minimum, maximum]")
        if self.loaders and self.loaders[0] > self.loaders[1]:
            raise ValueError("loaders must be [minimum, maximum]")
        return self
