"""Rows per second of ClickLog, compared with pandas.read_csv on one core, in interleaved pairs.

The log has the Criteo format: whole numbers and eight hexadecimal digits. Logs with decimal fractions are slower to
read.
"""

from __future__ import annotations

import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from benchmarks._report import choose, finish
from sizewright.datasets.clicks.logs import ClickLog
from sizewright.datasets.clicks.synthetic import SyntheticLog, write_criteo
from sizewright.spec.model import FIRST_CRITEO_ROWS

ROWS, PAIRS = choose((200_000, 15), (50_000, 3), (2_000, 1))
BATCH_SIZE = 512


def click_log(path: Path) -> int:
    return sum(len(batch.labels) for batch in ClickLog(str(path)).batches(BATCH_SIZE))


def pandas_inferred(path: Path) -> int:
    return len(pd.read_csv(path, sep="\t", header=None))


def pandas_typed(path: Path) -> int:
    types = {0: "int8"} | dict.fromkeys(range(1, 14), "float32") | dict.fromkeys(range(14, 40), "str")
    return len(pd.read_csv(path, sep="\t", header=None, dtype=types))


READERS: dict[str, Callable[[Path], int]] = {
    "click_log": click_log,
    "pandas_inferred": pandas_inferred,
    "pandas_typed": pandas_typed,
}


def rate(read: Callable[[Path], int], path: Path) -> float:
    gc.collect()
    start = time.perf_counter()
    rows = read(path)
    return rows / (time.perf_counter() - start)


def one_core() -> None:
    """Use one core, because pandas passes parts of its work to threads of pyarrow."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def main() -> None:
    one_core()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "day.tsv"
        write_criteo(path, SyntheticLog(FIRST_CRITEO_ROWS), ROWS)
        for read in READERS.values():
            read(path)
        rates = {name: [0.0] * PAIRS for name in READERS}
        for k in range(PAIRS):
            for name, read in list(READERS.items())[:: 1 if k % 2 else -1]:
                rates[name][k] = rate(read, path)
    for name, samples in rates.items():
        print(f"{name:16} {statistics.median(samples):12,.0f} rows/s  ({min(samples):,.0f} to {max(samples):,.0f})")
    ratios = {name: [a / b for a, b in zip(rates["click_log"], rates[name], strict=True)] for name in READERS}
    inferred = sorted(ratios["pandas_inferred"])
    print(f"ClickLog over pandas.read_csv: {statistics.median(inferred):.2f} ({inferred[0]:.2f} to {inferred[-1]:.2f})")
    figures = {
        "reader_vs_pandas": statistics.median(inferred),
        "reader_vs_pandas_least": inferred[0],
        "reader_vs_pandas_typed": statistics.median(ratios["pandas_typed"]),
        "click_log_rows_per_s": statistics.median(rates["click_log"]),
    }
    finish("reader", figures, {"reader_vs_pandas": "≥ 1"}, {"rows": ROWS, "pairs": PAIRS})


if __name__ == "__main__":
    main()
