"""Measures the sealed base shapes, which nothing was tuned on: `python -m benchmarks.sealed FOLDER [--resume]`.

They are shapes of published models that the bank lacks, two of them with tables of mixed dimensions and several ids a
sample, two more with several ids a sample. Some jobs of the bank are measured beside them: how much faster or slower
they are than in the bank tells the speed of the host, by which predictions from the bank are corrected.
`benchmarks.prior` scores the prior on `benchmarks/sealed_trials/`.
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

from benchmarks._report import SMOKE, finish
from sizewright.datasets.trial_bank.shapes import BankJob, bank_jobs
from sizewright.profiler.measure.measure import measure
from sizewright.profiler.series.bank_points import first_points
from sizewright.profiler.series.bank_series import BankSeries, BankStep, measure_bank, open_session
from sizewright.spec import Job
from sizewright.spec.model import FIRST_CRITEO_ROWS

PASSES = ("first", "again")
OF_THE_BANK = ("criteo-dlrm-a", "din-b", "wide-dcn-a")
"""Jobs of the bank that are measured beside the sealed ones."""

# Ids a sample of the 26 tables of MLPerf's multi-hot Criteo log; more than 20 are cut.
_MLPERF_IDS = [3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 20, 20, 10, 3, 1, 1]
# Rare ids get short rows, as in mixed-dimension embeddings (Ginart et al. 2019).
_MIXED_DIMS = [32 if rows < 100 else 16 if rows < 10_000 else 8 if rows < 200_000 else 4 for rows in FIRST_CRITEO_ROWS]
_AVAZU_ROWS = [
    7,
    7,
    4_737,
    7_745,
    26,
    8_552,
    559,
    36,
    60_000,
    60_000,
    8_251,
    5,
    4,
    2_626,
    8,
    9,
    435,
    4,
    68,
    172,
    60,
    240,
]
_MOVIELENS_ROWS = [138_493, 26_744, 21, 1_128, 3_439, 21, 7]


def _base(name: str, family: str, tables: dict[str, Any], model: dict[str, Any], **job: Any) -> BankJob:
    description = {"name": f"sealed-{name}", "model": {"family": family, "tables": tables, **model}, **job}
    return BankJob(name, Job.model_validate(description))


def sealed_jobs() -> list[BankJob]:
    """Return one job of each sealed base shape."""
    return [
        _base(
            "mlperf-dcnv2-multihot", "dcn",
            {"count": 26, "rows": FIRST_CRITEO_ROWS, "max_rows": 40_000, "dim": 16, "pooling": _MLPERF_IDS},
            {"cross_layers": 3, "top_mlp": [512, 256]},
            training={"batch_size": 256}, data={"zipf": 1.05},
        ),
        _base(
            "mixed-dlrm", "dlrm",
            {"count": 26, "rows": FIRST_CRITEO_ROWS, "max_rows": 60_000, "dim": _MIXED_DIMS,
             "pooling": [1 + table % 3 for table in range(26)]},
            {"bottom_mlp": [256, 128], "top_mlp": [256, 128]},
            training={"batch_size": 512}, data={"zipf": 0.9},
        ),
        _base(
            "rmc2-multihot", "dlrm",
            {"count": 24, "rows": 20_000, "dim": 32, "pooling": 6},
            {"bottom_mlp": [256, 128], "top_mlp": [128, 64], "optimizer": "rowwise_adagrad"},
            training={"batch_size": 256, "sync": "sync"}, data={"zipf": 1.05},
        ),
        _base(
            "avazu-dcn", "dcn",
            {"count": 22, "rows": _AVAZU_ROWS, "dim": 16},
            {"dense_features": 0, "cross_layers": 2, "top_mlp": [400, 400], "optimizer": "adam"},
            training={"batch_size": 1024}, data={"zipf": 1.2},
        ),
        _base(
            "movielens-mixed", "wide_deep",
            {"count": 7, "rows": _MOVIELENS_ROWS, "dim": [64, 32, 8, 16, 16, 8, 4], "pooling": [1, 1, 3, 8, 1, 2, 1]},
            {"dense_features": 2, "top_mlp": [256, 128]},
            training={"batch_size": 512}, data={"zipf": 1.05},
        ),
        _base(
            "kdd-xdeepfm", "xdeepfm",
            {"count": 11, "rows": 40_000, "dim": 12},
            {"dense_features": 3, "cin": [40, 20], "top_mlp": [400, 200]},
            training={"batch_size": 512}, data={"zipf": 0.9},
        ),
    ]  # fmt: skip


def all_series() -> list[BankSeries]:
    """Return the points of all jobs in two passes, so that each allocation is measured twice."""
    numbered = [(100 + i, job) for i, job in enumerate(sealed_jobs())]
    numbered += [(i, job) for i, job in enumerate(bank_jobs()) if job.job.name in OF_THE_BANK]
    return [
        BankSeries(f"{name}-{job.job.hash}", job, first_points(job, number))
        for name in PASSES
        for number, job in numbered
    ]


def smoke_series() -> list[BankSeries]:
    """Return one point of a job with rows of several widths."""
    job = next(job for job in sealed_jobs() if job.base == "movielens-mixed")
    return [BankSeries("smoke", job, first_points(job, 0)[:1])]


def main() -> None:
    def show(step: BankStep) -> None:
        print(f"{step.done} of {step.total}: {step.job}, {step.trial.throughput or step.trial.message}", flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        card = measure_bank(
            f"{scratch}/sealed" if SMOKE else sys.argv[1],
            open_session,
            series=smoke_series() if SMOKE else all_series(),
            resume="--resume" in sys.argv,
            measure=measure if SMOKE else None,  # a smoke run needs no idle host
            progress=show,
        )
    finish("sealed", {"trials": float(card["trials"]), "jobs": float(len(card["jobs"]))}, {}, keep=False)


if __name__ == "__main__":
    main()
