"""The memory report: how much memory the embedding tables need, and on how many servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict, Field

from sizewright.spec._answer import Answer
from sizewright.spec._base import Record
from sizewright.spec._frames import frame
from sizewright.spec.model import TableDtype, TableOptimizer

if TYPE_CHECKING:
    import pandas as pd


class TableMemory(Record):
    """The rows and bytes of one embedding table; `rows_lower` to `rows_upper` where rows were counted in a log."""

    table: int
    rows: int
    rows_lower: int
    rows_upper: int
    weight_bytes: int
    state_bytes: int
    index_bytes: int
    dim: int | None = Field(default=None, description="embedding dimension")
    pooling: float = Field(default=1, description="mean ids that a sample has in it")
    dtype: TableDtype = Field(default="float32", description="data type of its weights")
    optimizer: TableOptimizer | None = Field(default=None, description="optimizer of its weights")

    @property
    def total_bytes(self) -> int:
        """Bytes of weights, optimizer state and index."""
        return self.weight_bytes + self.state_bytes + self.index_bytes


class ServerOption(Record):
    """The memory of each PS for a given number of PS."""

    ps: int
    memory_bytes: int = Field(description="to ask for, per PS, margin included")
    fits: bool = Field(description="within the job's bounds, and the cluster's hosts where they are known")
    reason: str = Field(default="", description="why it does not fit")
    oom_probability: float | None = Field(
        default=None, description="that the rows to come need more, where rows were counted"
    )


class WorkerOption(Record):
    """The memory of each worker of a command without PS for a given number of workers, which share the tables."""

    workers: int
    memory_bytes: int = Field(description="to ask for, per worker, margin included")
    table_bytes: int = Field(description="weights and optimizer state on each: in GPU memory with training.device cuda")
    fits: bool = Field(description="within the job's bounds, and the cluster's hosts where they are known")
    reason: str = Field(default="", description="why it does not fit")


class MemoryReport(Answer):
    """The memory of each table, and of each server."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True, populate_by_name=True)

    schema_: Literal["sizewright/memory/v1"] = Field(default="sizewright/memory/v1", alias="schema")
    job: str
    optimizer: str
    tables: tuple[TableMemory, ...]
    embedding_bytes: int
    index_bytes: int
    servers: tuple[ServerOption, ...] = Field(description="empty for a command without PS")
    workers: tuple[WorkerOption, ...] = Field(default=(), description="of a command without PS")
    least_ps: int | None = Field(description="fewest PS that fit, if any")
    needed_ps: int | None = Field(
        default=None, description="fewest PS within the memory bounds, regardless of the bounds on replicas"
    )
    least_workers: int | None = Field(default=None, description="fewest workers that fit, where they share the tables")
    worker_memory_bytes: int
    margin: float = Field(description="share of the forecast that is asked for on top")
    rests_on: str
    assumptions: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Return whether the tables fit on some number of replicas within the bounds."""
        return bool(self.least_ps or self.least_workers)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per table, in bytes."""
        return frame(table.model_dump() | {"total_bytes": table.total_bytes} for table in self.tables)
