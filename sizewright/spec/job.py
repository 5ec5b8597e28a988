"""The job file: what to train, within which bounds, at what prices, for which objective."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from sizewright.spec._base import Record, load_yaml, parse
from sizewright.spec.units import GIB, Bytes, Cores, Seconds

Family = Literal["dlrm", "wide_deep", "dcn", "xdeepfm"]
OptimizerName = Literal["sgd", "adagrad", "rowwise_adagrad", "adam"]
Objective = Literal["balanced", "cost", "time", "deadline"]

# Distinct values of the 26 categorical columns of the Criteo Kaggle log, as DeepRec's DLRM README lists them.
CRITEO_KAGGLE_ROWS: tuple[int, ...] = (
    1396, 553, 2594031, 698469, 290, 23, 12048, 608, 3, 65156, 5309, 2186509, 3128, 26, 12750, 1537323,
    10, 5002, 2118, 4, 1902327, 17, 15, 135790, 94, 84305,
)  # fmt: skip


class Tables(Record):
    """Embedding tables: how many, how many rows each, how wide."""

    count: int = Field(26, ge=1, le=4096, description="number of embedding tables")
    rows: int | tuple[int, ...] | Literal["criteo-kaggle", "from-data"] = Field(
        "criteo-kaggle",
        description="rows of each table: one number, a list, `criteo-kaggle` (published sizes) or `from-data`",
    )
    dim: int = Field(16, ge=1, le=4096, description="embedding dimension")
    max_rows: int | None = Field(None, ge=1, description="ids are folded into at most this many rows a table")

    @model_validator(mode="after")
    def _rows_match_count(self) -> Tables:
        if isinstance(self.rows, tuple) and len(self.rows) != self.count:
            raise ValueError(f"rows lists {len(self.rows)} tables but count is {self.count}")
        if self.rows == "criteo-kaggle" and self.count != len(CRITEO_KAGGLE_ROWS):
            raise ValueError(f"criteo-kaggle has {len(CRITEO_KAGGLE_ROWS)} tables but count is {self.count}")
        sizes = (self.rows,) if isinstance(self.rows, int) else self.rows if isinstance(self.rows, tuple) else ()
        if any(size < 1 for size in sizes):
            raise ValueError("every table needs at least one row")
        return self

    @property
    def known(self) -> bool:
        """Whether the rows are known without looking at the data."""
        return self.rows != "from-data"

    def sizes(self, scale: float = 1.0) -> tuple[int, ...]:
        """Rows of each table after folding, times `scale` (at least one row each).

        Raises ValueError for `from-data` tables that nobody has counted yet.
        """
        if isinstance(self.rows, int):
            sizes: tuple[int, ...] = (self.rows,) * self.count
        elif isinstance(self.rows, tuple):
            sizes = self.rows
        elif self.rows == "criteo-kaggle":
            sizes = CRITEO_KAGGLE_ROWS
        else:
            raise ValueError("the rows of these tables are still to be counted in the data")
        cap = self.max_rows or max(sizes)
        return tuple(max(1, round(min(size, cap) * scale)) for size in sizes)


class Optimizer(Record):
    """Optimizer of embeddings and dense weights."""

    name: OptimizerName = "adagrad"
    learning_rate: float = Field(0.02, gt=0)


class Model(Record):
    """The network: a family with its widths, and its embedding tables."""

    family: Family = "dlrm"
    dense_features: int = Field(13, ge=0, description="numeric columns of the log")
    tables: Tables = Tables()
    bottom_mlp: tuple[int, ...] = Field((512, 256), description="widths over the numeric columns (dlrm)")
    top_mlp: tuple[int, ...] = Field((512, 256), description="widths up to the logit")
    cross_layers: int = Field(3, ge=1, description="cross layers (dcn)")
    cin: tuple[int, ...] = Field((64, 64), description="feature maps of the compressed interaction (xdeepfm)")
    optimizer: Optimizer = Optimizer()

    @field_validator("bottom_mlp", "top_mlp", "cin")
    @classmethod
    def _widths(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(width < 1 for width in value):
            raise ValueError("every width must be at least 1")
        return value

    @field_validator("optimizer", mode="before")
    @classmethod
    def _optimizer_by_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @property
    def row_width(self) -> int:
        """Floats of one embedding row: the dimension, and one linear weight where the family has a wide part."""
        return self.tables.dim + (1 if self.family in ("wide_deep", "xdeepfm") else 0)


class Data(Record):
    """Where samples come from."""

    format: Literal["synthetic", "criteo"] = "synthetic"
    path: str | None = Field(None, description="a click log or a glob of them, plain or .gz")
    zipf: float = Field(1.05, ge=0, description="exponent of the id distribution of synthetic logs")
    max_broken_share: float = Field(0.01, ge=0, le=1, description="share of broken rows above which a log is refused")

    @model_validator(mode="after")
    def _path_for_logs(self) -> Data:
        if self.format == "criteo" and not self.path:
            raise ValueError("format criteo needs a path")
        if self.format == "synthetic" and self.path:
            raise ValueError("synthetic data takes no path; set format: criteo to read one")
        return self


class Training(Record):
    """How it is trained."""

    batch_size: int = Field(512, ge=1, description="samples per step of one worker")
    samples: int = Field(45_840_617, ge=1, description="samples to train in all (Criteo Kaggle has 45,840,617)")
    sync: Literal["async", "sync"] = "async"
    device: Literal["cpu", "cuda"] = "cpu"
    dense_sync_steps: int = Field(1, ge=1, description="steps between exchanges of the dense weights")


class RoleBounds(Record):
    """Least and greatest replicas and size of one role; one number stands for both."""

    replicas: tuple[int, int] = (1, 8)
    cpu: tuple[Cores, Cores] = (0.5, 4.0)
    memory_bytes: tuple[Bytes, Bytes] = Field((256 * 1024**2, 16 * GIB), alias="memory")

    model_config = ConfigDict(populate_by_name=True)

    @field_validator("replicas", "cpu", "memory_bytes", mode="before")
    @classmethod
    def _one_number_is_both(cls, value: Any) -> Any:
        return value if isinstance(value, (list, tuple)) else (value, value)

    @field_validator("replicas", "cpu", "memory_bytes")
    @classmethod
    def _ordered(cls, value: tuple[float, float]) -> tuple[float, float]:
        if value[0] > value[1]:
            raise ValueError(f"the least ({value[0]:g}) is above the greatest ({value[1]:g})")
        if value[1] <= 0 or value[0] < 0:
            raise ValueError("bounds must be positive")
        return value

    @model_validator(mode="after")
    def _positive(self) -> RoleBounds:
        if self.replicas[0] < 1:
            raise ValueError("replicas start at 1")
        if self.cpu[0] <= 0:
            raise ValueError("cpu must be above 0")
        return self


class Bounds(Record):
    """What a recommendation may ask for."""

    worker: RoleBounds = RoleBounds()
    ps: RoleBounds = RoleBounds(replicas=(1, 4))
    batch_size: tuple[int, int] | None = Field(None, description="absent: the batch size stays as the job says")

    @model_validator(mode="after")
    def _batch_ordered(self) -> Bounds:
        if self.batch_size and not 1 <= self.batch_size[0] <= self.batch_size[1]:
            raise ValueError("batch_size must be [least, greatest], both at least 1")
        return self


class Prices(Record):
    """Currency per hour."""

    core_hour: float = Field(1.0, ge=0)
    gib_hour: float = Field(0.13, ge=0)
    gpu_hour: float = Field(10.0, ge=0)


class Deploy(Record):
    """What a manifest needs to know of the container; used by executors that render one."""

    image: str = "registry.example.com/your-training:latest"
    command: tuple[str, ...] = ("python", "train.py")
    namespace: str = "default"


class Job(Record):
    """A training job as its submitter describes it."""

    name: str = Field("job", pattern=r"^[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?$")
    model: Model = Model()
    data: Data = Data()
    training: Training = Training()
    bounds: Bounds = Bounds()
    prices: Prices = Prices()
    objective: Objective = "balanced"
    deadline: Seconds | None = Field(None, gt=0, description="for objective: deadline, such as 4h")
    deploy: Deploy = Deploy()

    @model_validator(mode="after")
    def _deadline_given(self) -> Job:
        if self.objective == "deadline" and self.deadline is None:
            raise ValueError("objective deadline needs a `deadline`, such as 4h")
        return self

    @classmethod
    def load(cls, path: str | Path) -> Job:
        """Read a job file. Raises JobError with one sentence for every user mistake."""
        return parse(cls, load_yaml(path, "job"), str(path))

    @property
    def hash(self) -> str:
        """Twelve hex digits of what is trained and how; name, samples, bounds and prices do not count."""
        told = self.model_dump(mode="json", include={"model", "data", "training"})
        del told["training"]["samples"], told["data"]["max_broken_share"]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]

    def with_data(self, path: str) -> Job:
        """The same job over a click log instead of its own data."""
        data = self.data.model_dump() | {"format": "criteo", "path": path}
        return self.model_copy(update={"data": Data.model_validate(data)})

    def with_rows(self, rows: tuple[int, ...]) -> Job:
        """The same job with counted tables."""
        tables = self.model.tables.model_copy(update={"rows": rows})
        return self.model_copy(update={"model": self.model.model_copy(update={"tables": tables})})

    def with_batch_size(self, batch_size: int) -> Job:
        """The same job with another batch size per worker."""
        return self.model_copy(update={"training": self.training.model_copy(update={"batch_size": batch_size})})

    def with_objective(self, objective: str) -> Job:
        """The same job with another objective. Raises JobError for an unknown one."""
        return parse(Job, self.model_dump() | {"objective": objective}, "--objective")
