"""Parquet files, whose few bytes on disk may stand for any number in memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sizewright.errors import InputError
from sizewright.spec.units import format_bytes

if TYPE_CHECKING:
    import pyarrow as pa

MOST_BYTES = 4 << 30
_LEAST_BITS = 1
"""What a value takes at least, as a truth value does."""


def read_parquet(path: str | Path, most_bytes: int = MOST_BYTES) -> pa.Table:
    """Return the table of a file, read batch by batch. Raises InputError where it takes more than `most_bytes`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        cells = file.metadata.num_rows * len(file.schema_arrow)
        size = cells * _LEAST_BITS // 8  # by what the file says of itself, before anything is read
        batches = []
        if size <= most_bytes:
            size = 0
            for batch in file.iter_batches():
                size += batch.nbytes
                if size > most_bytes:
                    break
                batches.append(batch)
        if size > most_bytes:
            raise InputError(
                f"{path} takes more than {format_bytes(most_bytes)} when it is read "
                f"({file.metadata.num_rows:,} rows of {len(file.schema_arrow)} columns).",
                "Check what wrote it, or keep only the rows and columns that are needed.",
            )
        return pa.Table.from_batches(batches, schema=file.schema_arrow)
