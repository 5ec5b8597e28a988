"""Read Parquet files with a limit on memory: a few bytes on disk can take any number of bytes in memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from sizewright.errors import InputError
from sizewright.formatting import format_bytes

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

MAX_BYTES = 4 << 30
_MIN_BYTES_PER_VALUE = 8
"""The least that a value takes in a data frame or a list. Arrow needs one bit for a Boolean and none for a null."""
_BATCH_ROWS = 8192


def read_parquet(path: str | Path, max_bytes: int = MAX_BYTES) -> pa.Table:
    """Read the table of a file batch by batch.

    Raises InputError where it takes more than `max_bytes`, or has columns of lists or records.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_parquet(path) as file:
        schema = pq.read_schema(path)
        check_plain(schema, path)
        size = file.metadata.num_rows * len(schema) * _MIN_BYTES_PER_VALUE  # a lower bound from the metadata
        batches = []
        if size <= max_bytes:
            size = 0
            for batch in file.iter_batches(_BATCH_ROWS, use_threads=False):
                size += max(sum(map(plain_bytes, batch.columns)), batch.num_rows * len(schema) * _MIN_BYTES_PER_VALUE)
                if size > max_bytes:
                    break
                batches.append(batch)
        if size > max_bytes:
            raise InputError(
                f"{path} takes more than {format_bytes(max_bytes)} when it is read "
                f"({file.metadata.num_rows:,} rows of {len(schema)} columns).",
                "Check the program that wrote it, or keep only the rows and columns that are needed.",
            )
        return pa.Table.from_batches(batches, file.schema_arrow).cast(schema)


def open_parquet(source: str | Path | BinaryIO) -> pq.ParquetFile:
    """Open a file with its texts as dictionary codes, so that a long text in all rows is in memory once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def is_text(kind: pa.DataType) -> bool:
        types = pa.types
        checks = (types.is_string, types.is_binary, types.is_large_string, types.is_large_binary)
        return any(check(kind) for check in checks)

    names = [field.name for field in pq.read_schema(source) if is_text(field.type)]
    if not isinstance(source, str | Path):
        source.seek(0)
    return pq.ParquetFile(source, read_dictionary=names)


def check_plain(fields: Iterable[pa.Field], path: str | Path) -> None:
    """Raise InputError for lists and records: their size is unknown before they are read, and no table has them."""
    import pyarrow as pa

    for field in fields:
        kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
        if pa.types.is_nested(kind) or pa.types.is_fixed_size_binary(kind):
            raise InputError(
                f"The column {field.name} of {path} holds {kind!s:.60}, but a table has numbers, texts and times.",
                "Leave it out.",
            )


def plain_bytes(column: pa.Array) -> int:
    """Return the bytes that a column takes once its dictionary codes are replaced by their values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = pc.cast(pc.binary_length(column.dictionary), pa.int64())
    return int(column.nbytes) + int(pc.sum(pc.take(lengths, column.indices)).as_py() or 0)
