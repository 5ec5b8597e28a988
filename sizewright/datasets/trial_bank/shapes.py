"""The jobs of the bank: model shapes after published ones, scaled to a small host, three variations of each.

Widths, numbers of tables and cardinalities follow MLPerf's DLRM and DCNv2 (facebookresearch/dlrm, MLPerf logs), the
Criteo Kaggle log (DeepRec's model zoo), and RM1 to RM3, Wide&Deep, NCF, DIN and DIEN (DeepRecSys). Scaled: the largest
tables are cut, the widest layers and rows are halved, and where a model looks up a table many times a sample it has
more tables instead, since the jobs of the bank look up each table once per sample.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sizewright.spec import Job
from sizewright.spec.model import FIRST_CRITEO_ROWS

BATCH_SIZES = (256, 512, 1024)
TABLE_SCALES = (1.0, 1 / 4, 1 / 16)
ZIPFS = (1.05, 0.9, 1.2)
OPTIMIZERS = ("adam", "rowwise_adagrad", "sgd")
HELD_OUT = ("rm2", "dien", "xdeepfm-criteo", "deep-dcn")
"""Base shapes held out from the tuning of all models."""


class Base(NamedTuple):
    """A published model shape; its variations keep its name."""

    name: str
    family: str
    tables: dict[str, Any]
    widths: dict[str, Any]
    dense_features: int = 13


class BankJob(NamedTuple):
    """A job, the name of its base shape, and `table_scale`, the share of its table rows that is measured."""

    base: str
    job: Job
    table_scale: float = 1.0


def _criteo(max_rows: int, dim: int) -> dict[str, Any]:
    return {"count": 26, "rows": FIRST_CRITEO_ROWS, "max_rows": max_rows, "dim": dim}


def _even(count: int, rows: int, dim: int) -> dict[str, Any]:
    return {"count": count, "rows": rows, "dim": dim}


_DIN = (100_000, 10_000, *(50_000,) * 2, *(20_000,) * 36)
_MT = (*(20_000,) * 41, *(80_000,) * 2)
_NCF = (140_000, 140_000, 28_000, 28_000)

BASES = (
    Base("mlperf-dlrm", "dlrm", _criteo(20_000, 64), {"bottom_mlp": [256, 128], "top_mlp": [512, 512, 256]}),
    Base("criteo-dlrm", "dlrm", _criteo(100_000, 16), {"bottom_mlp": [512, 256], "top_mlp": [512, 256]}),
    Base("rm1", "dlrm", _even(24, 40_000, 32), {"bottom_mlp": [128, 64], "top_mlp": [256, 64]}),
    Base("rm2", "dlrm", _even(48, 20_000, 32), {"bottom_mlp": [256, 128], "top_mlp": [128, 64]}),
    Base("rm3", "dlrm", _even(10, 50_000, 32), {"bottom_mlp": [1280, 512, 128], "top_mlp": [512, 256]}, 64),
    Base("small-dlrm", "dlrm", _even(8, 10_000, 8), {"bottom_mlp": [64], "top_mlp": [64]}),
    Base("wide-and-deep", "wide_deep", _even(27, 40_000, 32), {"top_mlp": [1024, 512, 256]}),
    Base("mt-wide-and-deep", "wide_deep", {"count": 43, "rows": list(_MT), "dim": 32}, {"top_mlp": [1024, 512]}),
    Base("ncf", "wide_deep", {"count": 4, "rows": list(_NCF), "dim": 64}, {"top_mlp": [256, 256, 128, 64, 64]}, 0),
    Base("din", "wide_deep", {"count": 40, "rows": list(_DIN), "dim": 32}, {"top_mlp": [200, 80]}),
    Base("dien", "wide_deep", {"count": 43, "rows": list(_MT), "dim": 16}, {"top_mlp": [200, 80]}),
    Base("mlperf-dcnv2", "dcn", _criteo(40_000, 32), {"cross_layers": 3, "top_mlp": [512, 512, 256]}),
    Base("criteo-dcn", "dcn", _criteo(100_000, 16), {"cross_layers": 3, "top_mlp": [256, 128]}),
    Base("deep-dcn", "dcn", _criteo(30_000, 16), {"cross_layers": 6, "top_mlp": [768, 768]}),
    Base("wide-dcn", "dcn", _even(48, 20_000, 8), {"cross_layers": 2, "top_mlp": [128]}),
    Base("xdeepfm-criteo", "xdeepfm", _criteo(100_000, 8), {"cin": [64, 64], "top_mlp": [256, 256]}),
    Base("xdeepfm-small", "xdeepfm", _even(13, 50_000, 16), {"cin": [32], "top_mlp": [128]}),
    Base("xdeepfm-wide", "xdeepfm", _even(32, 20_000, 8), {"cin": [48, 24], "top_mlp": [400, 400]}),
)


def bank_jobs() -> list[BankJob]:
    """Return three variations of each base: unchanged, with rows of half the width, and with layers of half the width.

    Batch sizes, table scales, id distributions and modes rotate, so that they are hardly correlated.
    """
    return [_variation(base, number, variation) for number, base in enumerate(BASES) for variation in range(3)]


def _variation(base: Base, number: int, variation: int) -> BankJob:
    batch = BATCH_SIZES[(number + variation) % 3]
    narrow_rows, narrow_layers = variation == 1, variation == 2
    tables = base.tables | {"dim": base.tables["dim"] // (2 if narrow_rows else 1)}
    widths = {name: _halved(value) if narrow_layers else value for name, value in base.widths.items()}
    third = number // 3
    optimizer = OPTIMIZERS[(number + third) % 3] if narrow_layers else "adagrad"
    model = {
        "family": base.family, "dense_features": base.dense_features,
        "tables": tables, "optimizer": optimizer, **widths,
    }  # fmt: skip
    sync = "sync" if (2 * number + third + variation) % 3 == 1 else "async"
    description = {
        "name": f"{base.name}-{'abc'[variation]}",
        "model": model,
        "data": {"zipf": ZIPFS[(third + variation) % 3]},
        "training": {"batch_size": batch, "sync": sync},
    }
    return BankJob(base.name, Job.model_validate(description), TABLE_SCALES[(number + third + variation) % 3])


def _halved(widths: Any) -> Any:
    return [max(1, width // 2) for width in widths] if isinstance(widths, list) else widths
