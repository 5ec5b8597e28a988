"""The model of a job: its family, its layer widths and its embedding tables."""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, TypeVar

from pydantic import Field, field_validator, model_validator

from sizewright.formatting import format_count
from sizewright.spec._base import Record
from sizewright.spec._shorthand import BY_NAME
from sizewright.spec.units import Count, Number

T = TypeVar("T")
Family = Literal["dlrm", "wide_deep", "dcn", "xdeepfm"]
OptimizerName = Literal["sgd", "adagrad", "rowwise_adagrad", "adam"]
TableDtype = Literal["float32", "float16", "bfloat16", "float64", "int8"]
TableOptimizer = Literal[
    "sgd", "lars_sgd", "adagrad", "rowwise_adagrad", "adam", "rowwise_adam", "lamb", "rowwise_lamb"
]
"""The optimizers of embedding tables in FBGEMM and TorchRec, `rowwise` where those say row-wise or partial row-wise."""

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
_MAX_DIM = 4096
_MAX_POOLING = 10_000


class TableGroup(NamedTuple):
    """The tables whose rows are alike, by their numbers from 0: the same number of values, data type and optimizer."""

    width: int
    tables: tuple[int, ...]


class Tables(Record):
    """The embedding tables: their number, and of each its rows, dimension and pooling."""

    count: Count = Field(default=26, ge=1, le=4096, description="number of embedding tables")
    rows: Count | tuple[Count, ...] | Literal["criteo-kaggle", "from-data"] = Field(
        default="criteo-kaggle",
        description="rows of each table: one number, a list, `criteo-kaggle` (the log's 33,762,577 ids) or `from-data`",
    )
    dim: Count | tuple[Count, ...] = Field(
        default=16, description="embedding dimension of each table: one number, or a list"
    )
    pooling: Number | tuple[Number, ...] = Field(
        default=1,
        description="mean ids of a sample in each table, whose rows are summed (1: one-hot): one number, or a list; "
        "the built-in engine trains whole numbers",
    )
    dtype: TableDtype | tuple[TableDtype, ...] = Field(
        default="float32",
        description="data type of the weights of each table: one, or a list; the built-in engine trains float32",
    )
    optimizer: TableOptimizer | tuple[TableOptimizer, ...] | None = Field(
        default=None, description="optimizer of each table: one, or a list; absent: that of the model"
    )
    max_rows: Count | None = Field(default=None, ge=1, description="ids are folded into at most this many rows a table")

    counted: tuple[Count, ...] | None = Field(default=None, description="filled in by Sizewright for rows: from-data")

    @field_validator("pooling")
    @classmethod
    def _whole_where_possible(cls, value: float | tuple[float, ...]) -> float | tuple[float, ...]:
        """Return whole numbers as such, so that `2.0` is the same table as `2`."""
        if isinstance(value, tuple):
            return tuple(int(each) if each == int(each) else each for each in value)
        return int(value) if value == int(value) else value

    @model_validator(mode="after")
    def _lists_match_count(self) -> Tables:
        for name in ("rows", "dim", "pooling", "dtype", "optimizer"):
            values = getattr(self, name)
            if isinstance(values, tuple) and len(values) != self.count:
                raise ValueError(f"{name} lists {format_count(len(values), 'table')} but count is {self.count}")
        if any(not 0 < pooling <= _MAX_POOLING for pooling in self.poolings):
            wrong = next(pooling for pooling in self.poolings if not 0 < pooling <= _MAX_POOLING)
            raise ValueError(f"pooling must be above 0 and at most {_MAX_POOLING:,} for every table, got {wrong:,}")
        for name, highest in (("rows", _MAX_ROWS), ("dim", _MAX_DIM)):
            values = getattr(self, name)
            for value in () if isinstance(values, str) else _listed(values, 1):
                if not 1 <= value <= highest:
                    raise ValueError(f"{name} must be 1 to {highest:,} for every table, got {value:,}")
        if self.rows == "criteo-kaggle" and self.count != len(CRITEO_KAGGLE_ROWS):
            if "rows" not in self.model_fields_set:
                raise ValueError(f"count is {self.count}, but rows are missing: give the rows of each table")
            raise ValueError(f"criteo-kaggle has {len(CRITEO_KAGGLE_ROWS)} tables but count is {self.count}")
        return self

    @property
    def known(self) -> bool:
        """Return whether the rows are known without reading the data."""
        return self.rows != "from-data" or self.counted is not None

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimension of each table."""
        return _listed(self.dim, self.count)

    @property
    def poolings(self) -> tuple[float, ...]:
        """The mean ids that a sample has in each table."""
        return _listed(self.pooling, self.count)

    @property
    def dtypes(self) -> tuple[TableDtype, ...]:
        """The data type of the weights of each table."""
        return _listed(self.dtype, self.count)

    @property
    def id_columns(self) -> tuple[int, ...]:
        """The table of each column of ids: a table has as many neighbouring columns as its pooling, a whole number."""
        return tuple(table for table, pooling in enumerate(self.poolings) for _ in range(int(pooling)))

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


def _listed(values: T | tuple[T, ...], count: int) -> tuple[T, ...]:
    return values if isinstance(values, tuple) else (values,) * count


class Optimizer(Record):
    """The optimizer of dense weights, and of the tables without one of their own."""

    name: OptimizerName = Field(default="adagrad", description="of all weights without one of their own")
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
    def row_widths(self) -> tuple[int, ...]:
        """Floats of a row of each table: the dimension, and one linear weight where the family has a wide part."""
        linear = self.family in ("wide_deep", "xdeepfm")
        return tuple(dim + linear for dim in self.tables.dims)

    @property
    def table_optimizers(self) -> tuple[TableOptimizer, ...]:
        """The optimizer of each table."""
        return _listed(self.tables.optimizer or self.optimizer.name, self.tables.count)

    @property
    def table_groups(self) -> tuple[TableGroup, ...]:
        """The tables by the width of their rows, data type and optimizer, narrow rows first. Mostly there is one group.

        The built-in engine has one data type and one optimizer, so its groups are those of the widths.
        """
        kinds = zip(self.row_widths, self.tables.dtypes, self.table_optimizers, strict=True)
        tables: dict[tuple[int, TableDtype, TableOptimizer], list[int]] = {}
        for table, kind in enumerate(kinds):
            tables.setdefault(kind, []).append(table)
        return tuple(TableGroup(kind[0], tuple(tables[kind])) for kind in sorted(tables))

    @property
    def beyond_engine(self) -> str:
        """The key and the value that the built-in engine cannot train; empty where it can train the tables."""
        dtypes = [dtype for dtype in self.tables.dtypes if dtype != "float32"]
        optimizers = [optimizer for optimizer in self.table_optimizers if optimizer != self.optimizer.name]
        if fractions := [pooling for pooling in self.tables.poolings if pooling != int(pooling)]:
            return f"model.tables.pooling {fractions[0]:g}"
        if dtypes:
            return f"model.tables.dtype {dtypes[0]}"
        return f"model.tables.optimizer {optimizers[0]}" if optimizers else ""
