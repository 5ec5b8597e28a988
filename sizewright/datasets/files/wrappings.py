"""Open text inside wrappings: compression, archives, click logs as Parquet, and CR line ends.

Layers are peeled off one by one, for example `gzip`, then a `part` of the tar in it. The same layers open the text
again from its beginning, as a stream that is never in memory as a whole.
"""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO, NamedTuple, cast

from sizewright.datasets.files.bounded_parquet import check_plain, open_parquet, plain_bytes
from sizewright.errors import InputError
from sizewright.formatting import format_bytes

MAX_LINE_BYTES = 1 << 20
_HEAD = 1 << 16
_BATCH_ROWS = 8192
_CELL_ENDS = b",;\t|\n"
_MIN_BYTES_PER_CELL = 8
"""The least that a cell takes in a data frame, also one that is empty in the text."""
_MAX_LAYERS = 5
_MAX_BYTES = 256 << 20
"""Limit for the rows of a Parquet file that are read at once."""

_MAGIC = {
    b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4",
    b"PK\x03\x04": "zip", b"PAR1": "parquet",
}  # fmt: skip
_FOREIGN: tuple[tuple[bytes, str, str], ...] = (
    (b"ORC", "an ORC file", "Write it as Parquet or as text."),
    (b"Obj\x01", "an Avro file", "Write it as Parquet or as text."),
    (b"ARROW1", "an Arrow (Feather) file", "Write it as Parquet or as text."),
    (b"SEQ\x06", "a Hadoop sequence file", "Write it as Parquet or as text."),
    (b"\x89HDF", "an HDF5 file", "Write it as Parquet or as text."),
    (b"\x93NUMPY", "a NumPy array", "Write it as Parquet or as text."),
    (b"SQLite format 3", "an SQLite database", "Write its rows as Parquet or as text."),
    (b"7z\xbc\xaf", "a 7z archive", "Unpack it: 7z x FILE"),
    (b"Rar!", "a RAR archive", "Unpack it: unrar x FILE"),
    (b"\x1f\x9d", "compressed by compress", "Unpack it: uncompress FILE"),
    (b"\xff\x06\x00\x00sNaPpY", "compressed by Snappy", "Unpack it, or compress it with gzip or zstd."),
    (b"version https://git-lfs", "a pointer of Git LFS", "Fetch the file itself: git lfs pull"),
    (b"%PDF", "a PDF", "Name another file."),
    (b"<", "a web page or XML", "Download the file itself; a login may be needed."),
)
_UTF_16 = tuple(
    (mark, "text in UTF-16", "Convert it: iconv -f UTF-16 -t UTF-8 FILE") for mark in (b"\xff\xfe", b"\xfe\xff")
)
_JSON = tuple((mark, "JSON", "Write one row per line, as columns, or as Parquet.") for mark in (b"{", b"["))
READ_ERRORS = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError)
"""Errors of a damaged file and, with an `errno`, of one that cannot be read."""
_CHECKS = {"gzip": "gzip -t", "bz2": "bzip2 -t", "xz": "xz -t", "zstd": "zstd -t", "lz4": "lz4 -t", "zip": "unzip -t"}


class Layer(NamedTuple):
    """One wrapping: its kind, and the name and position of a member of an archive."""

    kind: str
    name: str = ""
    start: int = 0
    size: int = 0
    columns: tuple[str, ...] = ()
    """Columns to read from Parquet, in this order."""


class ReaderOptions(NamedTuple):
    """The formats that a reader accepts besides text in columns, and how its errors are raised."""

    what: str
    """Name of the content in messages, such as "click log"."""
    error: type[InputError]
    columns_of: Callable[[Any], tuple[str, ...]] | None = None
    """Chooses the columns of a Parquet schema; without it, the reader handles Parquet itself."""
    json: bool = False
    utf_16: bool = False


class Text(NamedTuple):
    """A text within a file: its layers, its first line, and whether more follows; or the fault that prevents it."""

    layers: tuple[Layer, ...]
    line: bytes = b""
    more: bool = False
    fault: InputError | None = None

    @property
    def member(self) -> str:
        """Name of the text in its archive; empty where there is no archive."""
        return next((layer.name for layer in reversed(self.layers) if layer.name), "")


def find_texts(path: str, options: ReaderOptions) -> Iterator[Text]:
    """Yield the texts in a file. Raises InputError for a Parquet file whose columns are refused."""
    with open(path, "rb") as file:
        yield from _texts(path, file, (), options)


@contextmanager
def open_text(path: str, layers: tuple[Layer, ...]) -> Iterator[BinaryIO]:
    """Open the text behind these layers at its beginning, as a stream that can only seek forward."""
    with ExitStack() as stack:
        stream: BinaryIO = stack.enter_context(open(path, "rb"))
        for layer in layers:
            stream = _OPENERS[layer.kind](stream, layer)
        yield stream


def check_size(path: str, layers: tuple[Layer, ...], what: str, max_bytes: int) -> None:
    """Raise InputError for a text that takes more than `max_bytes`, unpacked or as cells; it is read in chunks."""
    size = cells = 0
    with open_text(path, layers) as stream:
        while max(size, cells * _MIN_BYTES_PER_CELL) <= max_bytes and (chunk := stream.read(_HEAD)):
            size += len(chunk)
            cells += len(chunk) - len(chunk.translate(None, _CELL_ENDS))
    if max(size, cells * _MIN_BYTES_PER_CELL) > max_bytes:
        raise InputError(
            f"The {what} {path} takes more than {format_bytes(max_bytes)} when it is unpacked and read.",
            "Check the program that wrote it, or keep only the rows and columns that are needed.",
        )


def check_command(path: str) -> str:
    """Return a remedy with the command that checks whether a file is damaged."""
    with open(path, "rb") as file:
        command = _CHECKS.get(_kind(file.read(512)), "")
    return f"Check it with: {command} {path}" if command else "Write or download it again."


def _kind(head: bytes) -> str:
    if head[257:262] == b"ustar":
        return "tar"
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), "")


def _texts(path: str, stream: BinaryIO, layers: tuple[Layer, ...], options: ReaderOptions) -> Iterator[Text]:
    head = stream.read(_HEAD)
    kind = _kind(head)
    stream_from_start = _buffered(itertools.chain([head], _chunks(stream)))
    if len(layers) > _MAX_LAYERS:
        yield Text(layers, fault=options.error(f"{path} is compressed more than {_MAX_LAYERS} times.", "Unpack it."))
    elif kind in _COMPRESSIONS:
        layer = Layer(kind)
        yield from _texts(path, _OPENERS[kind](stream_from_start, layer), (*layers, layer), options)
    elif kind == "tar":
        for member, part in _tar_members(stream_from_start):
            yield from _texts(path, part, (*layers, member), options)
    elif kind in ("zip", "parquet") and layers:
        what = "a zip archive" if kind == "zip" else "a Parquet file"
        yield Text(layers, fault=options.error(f"{path} holds {what} within another file.", "Unpack it."))
    elif kind == "zip":
        for layer in _zip_members(stream):
            yield from _texts(path, _zip_member(stream, layer), (layer,), options)
    elif kind == "parquet":
        layer = Layer(kind, columns=_parquet_columns(path, stream, options.columns_of) if options.columns_of else ())
        if not layer.columns:
            yield Text((layer,))
            return
        with_lines = _parquet_text(stream, layer)
        line = with_lines.readline(MAX_LINE_BYTES)
        yield Text((layer,), line, bool(with_lines.read(1)))
    else:
        yield _text(path, head, stream, layers, options)


def _text(path: str, head: bytes, stream: BinaryIO, layers: tuple[Layer, ...], options: ReaderOptions) -> Text:
    refused = (*_FOREIGN, *(() if options.json else _JSON), *(() if options.utf_16 else _UTF_16))
    stripped = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    for magic, what, remedy in refused:
        if (stripped if magic in (b"<", b"{", b"[") else head).startswith(magic):
            remedy = remedy.replace("FILE", path)
            return Text(layers, fault=options.error(f"{path} is {what}, not a {options.what}.", remedy))
    if b"\r" in head and b"\n" not in head:
        layers = (*layers, Layer("cr"))
        head = head.replace(b"\r", b"\n")
    line, feed, rest = head.partition(b"\n")
    if not feed and len(head) == _HEAD:
        line += stream.readline(MAX_LINE_BYTES)
    return Text(layers, line + feed, bool(rest) or bool(stream.read(1)))


def _tar_members(stream: BinaryIO) -> Iterator[tuple[Layer, BinaryIO]]:
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if member.isfile() and member.size and not _is_hidden(member.name):
                part = archive.extractfile(member)
                yield Layer("part", member.name, member.offset_data, member.size), cast(BinaryIO, part)


def _zip_members(stream: BinaryIO) -> list[Layer]:
    with zipfile.ZipFile(stream) as archive:
        members = [info for info in archive.infolist() if info.file_size and not _is_hidden(info.filename)]
        if encrypted := [info.filename for info in members if info.flag_bits & 1]:
            raise InputError(f"{encrypted[0]} in the zip archive is encrypted.", "Unpack it with its password.")
        return [Layer("zip", info.filename, size=info.file_size) for info in members]


def _is_hidden(name: str) -> bool:
    """Return whether the member is one that desktops add to archives."""
    return name.startswith("__MACOSX/") or name.rpartition("/")[2].startswith(".")


def _zip_member(stream: BinaryIO, layer: Layer) -> BinaryIO:
    try:
        return cast(BinaryIO, zipfile.ZipFile(stream).open(layer.name))
    except NotImplementedError as error:
        raise InputError(f"{layer.name} in the zip archive cannot be read: {error}.", "Unpack it.") from None


def _part(stream: BinaryIO, layer: Layer) -> BinaryIO:
    stream.seek(layer.start)
    return _buffered(_chunks(stream, layer.size))


def _cr(stream: BinaryIO, layer: Layer) -> BinaryIO:
    return _buffered(chunk.replace(b"\r", b"\n") for chunk in _chunks(stream))


def _by_arrow(stream: BinaryIO, layer: Layer) -> BinaryIO:
    """Decompress with pyarrow, as a stream that can be read once, forward."""
    import pyarrow as pa

    return _buffered(_chunks(pa.CompressedInputStream(pa.PythonFile(stream, "r"), layer.kind)))


def _parquet_columns(path: str, stream: BinaryIO, columns_of: Callable[[Any], tuple[str, ...]]) -> tuple[str, ...]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.ParquetFile(stream).schema_arrow
        columns = columns_of(schema)
        check_plain((schema.field(name) for name in dict.fromkeys(columns)), path)
        return columns
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise InputError(f"The Parquet file {path} is damaged: {reason}.", "Write it again.") from None


def _parquet_text(stream: BinaryIO, layer: Layer) -> BinaryIO:
    file = open_parquet(stream)
    batches = file.iter_batches(_BATCH_ROWS, columns=list(dict.fromkeys(layer.columns)), use_threads=False)
    return _buffered(_lines(batch, layer.columns) for batch in batches)


def _lines(batch: Any, columns: tuple[str, ...]) -> bytes:
    """Return the rows of a record batch as tab-separated text; missing values are empty."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as arrow_csv

    if sum(plain_bytes(batch.column(name)) for name in columns) > _MAX_BYTES:
        raise InputError(
            f"{batch.num_rows:,} rows of the Parquet file take more than {format_bytes(_MAX_BYTES)} when read.",
            "Check the program that wrote it, or keep only the columns that are needed.",
        )
    text_columns = [_as_text(batch.column(name)) for name in columns]
    options = arrow_csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    names = [str(number) for number in range(len(columns))]
    try:
        sink = pa.BufferOutputStream()
        arrow_csv.write_csv(pa.record_batch(text_columns, names), sink, options)
    except pa.ArrowInvalid:  # tokens with tabs, quotes or line ends in them
        escaped = [
            pc.replace_substring_regex(each, '[\t\r\n"]', " ") if pa.types.is_large_string(each.type) else each
            for each in text_columns
        ]
        sink = pa.BufferOutputStream()
        arrow_csv.write_csv(pa.record_batch(escaped, names), sink, options)
    return cast(bytes, sink.getvalue().to_pybytes())


def _as_text(column: Any) -> Any:
    """Convert a column for writing as text: whole numbers get no decimal point, other values stay unchanged."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _as_text(column.cast(kind.value_type))
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    if pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.binary()).cast(pa.large_string(), safe=False)
    if pa.types.is_string(kind) or pa.types.is_null(kind):
        return column.cast(pa.large_string())
    if pa.types.is_floating(kind):
        known = pc.if_else(pc.is_finite(column), column, pa.scalar(None, kind))
        is_whole = pc.all(pc.equal(pc.round(known), known)).as_py() and (pc.max(pc.abs(known)).as_py() or 0) < 2**53
        return known.cast(pa.int64()) if is_whole else known
    return column


_COMPRESSIONS = ("gzip", "bz2", "xz", "zstd", "lz4")
_OPENERS: dict[str, Callable[[BinaryIO, Layer], BinaryIO]] = {
    "gzip": lambda stream, _: cast(BinaryIO, gzip.GzipFile(fileobj=stream, mode="rb")),
    "bz2": lambda stream, _: cast(BinaryIO, bz2.BZ2File(stream)),
    "xz": lambda stream, _: cast(BinaryIO, lzma.LZMAFile(stream)),  # noqa: SIM115
    "zstd": _by_arrow, "lz4": _by_arrow, "zip": _zip_member, "part": _part, "cr": _cr, "parquet": _parquet_text,
}  # fmt: skip


def _chunks(stream: Any, size: int | None = None) -> Iterator[bytes]:
    """Yield the stream in chunks, up to `size` bytes. Raises EOFError where the stream ends before."""
    remaining = size
    while remaining is None or remaining > 0:
        chunk = stream.read(_HEAD if remaining is None else min(_HEAD, remaining))
        if not chunk:
            if remaining:
                raise EOFError("the archive ends before its member does")
            return
        remaining = None if remaining is None else remaining - len(chunk)
        yield bytes(chunk)


def _buffered(chunks: Iterable[bytes]) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(_ChunkStream(chunks), _HEAD))


class _ChunkStream(io.RawIOBase):
    """A stream over an iterator of chunks that can only seek forward."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks, self._chunk, self._position = iter(chunks), memoryview(b""), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or offset < self._position:
            raise io.UnsupportedOperation("can only seek forward")
        while self._position < offset and self._fill():
            self._consume(offset - self._position)
        return self._position

    def readinto(self, buffer: Any) -> int:
        if not self._fill():
            return 0
        data = self._consume(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _fill(self) -> bool:
        while not self._chunk:
            chunk = next(self._chunks, None)
            if chunk is None:
                return False
            self._chunk = memoryview(chunk)
        return True

    def _consume(self, max_bytes: int) -> memoryview:
        data, self._chunk = self._chunk[:max_bytes], self._chunk[max_bytes:]
        self._position += len(data)
        return data


_CRITEO = ((re.compile(r"i(\d+)", re.I), re.compile(r"c(\d+)", re.I)),
           (re.compile(r"int_(\d+)", re.I), re.compile(r"cat_(\d+)", re.I)))  # fmt: skip
LABELS = ("label", "click", "clicked", "is_click", "target", "y")


def criteo_columns(names: list[str]) -> tuple[str, list[str], list[str]] | None:
    """Return the label, numeric and categorical columns that have Criteo's names; None where there are none."""
    label = next((name for known in LABELS for name in names if name.strip().lower() == known), None)
    if label is None:
        return None
    for pair in _CRITEO:
        dense, tables = (_numbered(names, pattern) for pattern in pair)
        if tables and (dense or len(names) == 1 + len(tables)):
            return label, dense, tables
    return None


def _numbered(names: list[str], pattern: re.Pattern[str]) -> list[str]:
    matches = [(int(match[1]), name) for name in names if (match := pattern.fullmatch(name.strip()))]
    return [name for _, name in sorted(matches)]
