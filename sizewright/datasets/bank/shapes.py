"""The jobs of the bank: model shapes after published ones, scaled to a small host, three variations of each.

Widths, numbers of tables and cardinalities follow MLPerf's DLRM and DCNv2 (facebookresearch/dlrm, MLPerf logs), the
Criteo Kaggle log (DeepRec's model zoo), and RM1 to RM3, Wide&Deep, NCF, DIN and DIEN (DeepRecSys). Scaled: the largest
tables are cut, the widest layers and rows are halved, and where a model looks up a table many times a sample it has
more tables instead, since each table is looked up once a sample here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sizewright.spec import Job
from sizewright.spec.model import FIRST_CRITEO_ROWS

BATCH_SIZES = (256, 512, 1024)
TABLE_SCALES = (1.0, 1 / 4, 1 / 16)
ZIPFS = (1.05, 0.9, 1.2)
OPTIMIZERS = ("adam", "rowwise_adagrad", "sgd")
SEALED = ("rm2", "dien", "xdeepfm-criteo", "deep-dcn")
"""Base shapes that no model is tuned on."""


class Base(NamedTuple):
    """A published shape: what is varied keeps its name."""

    name: str
    family: str
    tables: dict[str, Any]
    widths: dict[str, Any]
    dense_features: int = 13


class BankJob(NamedTuple):
    """A job, the base shape that it is a variation of, and `table_scale`, the share of its rows that is measured."""

    base: str
    job: Job
    table_scale: float = 1.0


def _criteo(most: int, dim: int) -> dict[str, Any]:
    return {"count": 26, "rows": FIRST_CRITEO_ROWS, "max_rows": most, "dim": dim}


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
    """Three variations of each base: as it is, with rows of half the width, and with layers of half the width; their
    batches, table scales, id distributions and modes rotate, so that hardly two of these go along with each other."""
    return [_variation(base, number, turn) for number, base in enumerate(BASES) for turn in range(3)]


def _variation(base: Base, number: int, turn: int) -> BankJob:
    batch = BATCH_SIZES[(number + turn) % 3]
    narrow_rows, narrow_layers = turn == 1, turn == 2
    tables = base.tables | {"dim": base.tables["dim"] // (2 if narrow_rows else 1)}
    widths = {name: _halved(value) if narrow_layers else value for name, value in base.widths.items()}
    third = number // 3
    optimizer = OPTIMIZERS[(number + third) % 3] if narrow_layers else "adagrad"
    model = {
        "family": base.family, "dense_features": base.dense_features,
        "tables": tables, "optimizer": optimizer, **widths,
    }  # fmt: skip
    sync = "sync" if (2 * number + third + turn) % 3 == 1 else "async"
    told = {
        "name": f"{base.name}-{'abc'[turn]}",
        "model": model,
        "data": {"zipf": ZIPFS[(third + turn) % 3]},
        "training": {"batch_size": batch, "sync": sync},
    }
    return BankJob(base.name, Job.model_validate(told), TABLE_SCALES[(number + third + turn) % 3])


def _halved(widths: Any) -> Any:
    return [max(1, width // 2) for width in widths] if isinstance(widths, list) else widths
