"""A small Parquet file may stand for gigabytes: it is refused before they are there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sizewright.datasets.bounded_parquet import read_parquet
from sizewright.errors import InputError


def write_bomb(path: Path, rows: int) -> None:
    """The same long text in each row: a dictionary on disk, and gigabytes in memory."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * 4_000]))
    pq.write_table(pa.table({"throughput": column.cast(pa.string())}), path, compression="zstd")


def test_a_table_comes_back_as_it_was_written(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2, None], "b": ["x", "", None]}, index=pd.Index([5, 6, 7], name="n"))
    frame.to_parquet(tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(read_parquet(tmp_path / "t.parquet").to_pandas(), frame)


def test_what_takes_too_much_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    write_bomb(path, 20_000)
    assert path.stat().st_size < 200_000
    with pytest.raises(InputError, match=r"takes more than 1.0 MiB when it is read \(20,000 rows of 1 columns\)"):
        read_parquet(path, 1 << 20)


def test_reading_it_stays_within_little_memory(tmp_path: Path) -> None:
    """100,000 rows would be 400 MB, and objects beside them."""
    path = tmp_path / "bomb.parquet"
    write_bomb(path, 100_000)
    program = (
        "import re, sys\nfrom sizewright.datasets import read_trials\n"
        "from sizewright.errors import SizewrightError\n"
        "try: read_trials(sys.argv[1])\n"
        "except SizewrightError as error: print(error)\n"
        # The peak since this program began: `ru_maxrss` keeps that of the process which started it.
        "print(re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read()).group(1))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    said, peak = done.stdout.splitlines()
    assert "takes more than 256.0 MiB" in said
    assert int(peak) < 1_200_000  # KiB; libraries take a part of it
