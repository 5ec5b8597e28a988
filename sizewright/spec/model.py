"""The model of a job: its family, its layer widths and its embedding tables."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from sizewright.spec._base import Record
from sizewright.spec._shorthand import BY_NAME
from sizewright.spec.units import Count, Number, format_count

Family = Literal["dlrm", "wide_deep", "dcn", "xdeepfm"]
OptimizerName = Literal["sgd", "adagrad", "rowwise_adagrad", "adam"]

CRITEO_KAGGLE_ROWS: tuple[int, ...] = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306,
    10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
"""Distinct values of the 26 categorical columns of the whole Criteo Kaggle log: 33,762,577 in all."""

FIRST_CRITEO_ROWS: tuple[int, ...] = (
    1396, 553, 2594031, 698469, 290, 23, 12048, 608, 3, 65156, 5309, 2186509, 3128, 26, 12750, 1537323,
    10, 5002, 2118, 4, 1902327, 17, 15, 135790, 94, 84305,
)  # fmt: skip
"""Distinct values in a part of the log, 9,247,304 in all, from DeepRec's README. The shipped measurements used tables
of these sizes, which `criteo-kaggle` stood for at first."""

# Far beyond any model: larger numbers are typing errors.
_MAX_ROWS = 10**12
_MAX_WIDTH = 10**6


class Tables(Record):
    """The embedding tables: their number, rows and width."""

    count: Count = Field(default=26, ge=1, le=4096, description="number of embedding tables")
    rows: Count | tuple[Count, ...] | Literal["criteo-kaggle", "from-data"] = Field(
        default="criteo-kaggle",
        description="rows of each table: one number, a list, `criteo-kaggle` (the log's 33,762,577 ids) or `from-data`",
    )
    dim: Count = Field(default=16, ge=1, le=4096, description="embedding dimension")
    max_rows: Count | None = Field(default=None, ge=1, description="ids are folded into at most this many rows a table")

    counted: tuple[Count, ...] | None = Field(default=None, description="filled in by Sizewright for rows: from-data")

    @model_validator(mode="after")
    def _rows_match_count(self) -> Tables:
        if isinstance(self.rows, tuple) and len(self.rows) != self.count:
            raise ValueError(f"rows lists {format_count(len(self.rows), 'table')} but count is {self.count}")
        if self.rows == "criteo-kaggle" and self.count != len(CRITEO_KAGGLE_ROWS):
            raise ValueError(f"criteo-kaggle has {len(CRITEO_KAGGLE_ROWS)} tables but count is {self.count}")
        sizes = (self.rows,) if isinstance(self.rows, int) else self.rows if isinstance(self.rows, tuple) else ()
        if any(not 1 <= size <= _MAX_ROWS for size in sizes):
            raise ValueError(f"every table needs 1 to {_MAX_ROWS:,} rows")
        return self

    @property
    def known(self) -> bool:
        """Return whether the rows are known without reading the data."""
        return self.rows != "from-data" or self.counted is not None

    def sizes(self, scale: float = 1.0) -> tuple[int, ...]:
        """Rows of each table after folding, times `scale` (at least one row each).

        Raises ValueError for `from-data` tables that are not counted yet.
        """
        if isinstance(self.rows, int):
            sizes: tuple[int, ...] = (self.rows,) * self.count
        elif isinstance(self.rows, tuple):
            sizes = self.rows
        elif self.counted is not None:
            sizes = self.counted
        elif self.rows == "criteo-kaggle":
            sizes = CRITEO_KAGGLE_ROWS
        else:
            raise ValueError("the rows of these tables are still to be counted in the data")
        cap = self.max_rows or max(sizes)
        return tuple(max(1, round(min(size, cap) * scale)) for size in sizes)


class Optimizer(Record):
    """The optimizer of embeddings and dense weights."""

    name: OptimizerName = Field(default="adagrad", description="of all weights")
    learning_rate: Number = Field(default=0.02, gt=0, description="step size, the same for all weights")


class Model(Record):
    """The model: a family with its layer widths, and its embedding tables."""

    family: Family = Field(default="dlrm", description="of the network")
    dense_features: Count = Field(default=13, ge=0, le=_MAX_WIDTH, description="numeric columns of the log")
    tables: Tables = Tables()
    bottom_mlp: tuple[Count, ...] = Field(default=(512, 256), description="widths over the numeric columns (dlrm)")
    top_mlp: tuple[Count, ...] = Field(default=(512, 256), description="widths up to the logit")
    cross_layers: Count = Field(default=3, ge=1, le=1000, description="cross layers (dcn)")
    cin: tuple[Count, ...] = Field(
        default=(64, 64), min_length=1, description="feature maps of the compressed interaction (xdeepfm)"
    )
    optimizer: Annotated[Optimizer, BY_NAME] = Optimizer()

    @field_validator("bottom_mlp", "top_mlp", "cin")
    @classmethod
    def _widths(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(not 1 <= width <= _MAX_WIDTH for width in value):
            raise ValueError(f"every width must be 1 to {_MAX_WIDTH:,}")
        return value

    @property
    def row_width(self) -> int:
        """Floats of one embedding row: the dimension, and one linear weight where the family has a wide part."""
        return self.tables.dim + (1 if self.family in ("wide_deep", "xdeepfm") else 0)
