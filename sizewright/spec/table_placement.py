"""Where embedding tables lie: which server holds which rows of which table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict, Field

from sizewright.spec._answer import Answer
from sizewright.spec._base import Record
from sizewright.spec._frames import frame

if TYPE_CHECKING:
    import pandas as pd


class TablePart(Record):
    """Rows of one table, from `first_row` on."""

    table: int
    first_row: int = Field(description="number of its first row, from 0")
    rows: int
    load: float = Field(description="its share of the load of all tables")
    memory_bytes: int = Field(description="bytes of weights and optimizer state")


class PlacedServer(Record):
    """The parts of tables on one server or rank, numbered from 0."""

    server: int
    load: float = Field(description="its share of the load of all tables")
    memory_bytes: int = Field(description="bytes of weights and optimizer state")
    parts: tuple[TablePart, ...]


class TablePlacement(Answer):
    """An assignment of tables to servers with the smallest largest load that was found."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True, populate_by_name=True)

    schema_: Literal["sizewright/table-placement/v1"] = Field(default="sizewright/table-placement/v1", alias="schema")
    job: str
    servers: tuple[PlacedServer, ...]
    largest_load: float = Field(description="share of the load on the server that has most of it")
    gap: float = Field(description="no placement has a largest load that is lower by more than this share")
    split: tuple[int, ...] = Field(description="tables whose rows lie on several servers")
    load_of: str = Field(description="what the load of a table is")
    assumptions: tuple[str, ...] = Field(default=(), description="what the placement assumes without evidence")

    def to_frame(self) -> pd.DataFrame:
        """Return one row per part of a table, in bytes."""
        parts = ((server.server, part) for server in self.servers for part in server.parts)
        return frame({"server": number, **part.model_dump()} for number, part in parts)
