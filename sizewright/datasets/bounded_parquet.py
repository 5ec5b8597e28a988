"""Parquet files, whose few bytes on disk may stand for any number in memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from sizewright.errors import InputError
from sizewright.spec.units import format_bytes

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

MOST_BYTES = 4 << 30
_LEAST_BITS = 1
"""What a value takes at least, as a truth value does."""
_ROWS_AT_ONCE = 8192


def read_parquet(path: str | Path, most_bytes: int = MOST_BYTES) -> pa.Table:
    """Return the table of a file, read batch by batch. Raises InputError where it takes more than `most_bytes`, or
    has columns of lists or records."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_parquet(path) as file:
        schema = pq.read_schema(path)
        check_plain(schema, path)
        size = file.metadata.num_rows * len(schema) * _LEAST_BITS // 8  # by what it says of itself, before it is read
        batches = []
        if size <= most_bytes:
            size = 0
            for batch in file.iter_batches(_ROWS_AT_ONCE, use_threads=False):
                size += sum(map(plain_bytes, batch.columns))
                if size > most_bytes:
                    break
                batches.append(batch)
        if size > most_bytes:
            raise InputError(
                f"{path} takes more than {format_bytes(most_bytes)} when it is read "
                f"({file.metadata.num_rows:,} rows of {len(schema)} columns).",
                "Check what wrote it, or keep only the rows and columns that are needed.",
            )
        return pa.Table.from_batches(batches, file.schema_arrow).cast(schema)


def open_parquet(source: str | Path | BinaryIO) -> pq.ParquetFile:
    """Open a file whose texts come as codes and a dictionary: one long text in all rows is there once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def is_text(kind: pa.DataType) -> bool:
        types = pa.types
        return any(
            known(kind) for known in (types.is_string, types.is_binary, types.is_large_string, types.is_large_binary)
        )

    names = [field.name for field in pq.read_schema(source) if is_text(field.type)]
    if not isinstance(source, str | Path):
        source.seek(0)
    return pq.ParquetFile(source, read_dictionary=names)


def check_plain(fields: Iterable[pa.Field], path: str | Path) -> None:
    """Raises InputError for lists and records: what they hold is known when it is there, and no table has them."""
    import pyarrow as pa

    for field in fields:
        kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
        if pa.types.is_nested(kind) or pa.types.is_fixed_size_binary(kind):
            raise InputError(
                f"The column {field.name} of {path} holds {kind!s:.60}, and a table has numbers, texts and times.",
                "Leave it out.",
            )


def plain_bytes(column: pa.Array) -> int:
    """Return what a column takes once its codes are replaced by what they stand for."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = pc.cast(pc.binary_length(column.dictionary), pa.int64())
    return int(column.nbytes) + int(pc.sum(pc.take(lengths, column.indices)).as_py() or 0)
