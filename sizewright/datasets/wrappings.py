"""What files come wrapped in: compressed, in archives, click logs as Parquet or with CR line ends; opened as text.

A file of text is found by peeling layers off: `gzip`, then a `part` of the tar within it, for example. The same layers
open it again, from its beginning and without ever holding it whole.
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

from sizewright.datasets.bounded_parquet import check_plain, open_parquet, plain_bytes
from sizewright.errors import InputError
from sizewright.spec.units import format_bytes

LONGEST_LINE = 1 << 20
_HEAD = 1 << 16
_ROWS_AT_ONCE = 8192
_MOST_LAYERS = 5
_MOST_BYTES = 256 << 20
"""Of the rows of a Parquet file that are read at once."""

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
_JSON = tuple((mark, "JSON", "Write a row a line, as columns, or as Parquet.") for mark in (b"{", b"["))
DAMAGES = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError)
"""What reading raises where a file is damaged, and, with an `errno`, where it cannot be read."""
_CHECKS = {"gzip": "gzip -t", "bz2": "bzip2 -t", "xz": "xz -t", "zstd": "zstd -t", "lz4": "lz4 -t", "zip": "unzip -t"}


class Layer(NamedTuple):
    """One wrapping: its kind and, of a member of an archive, its name and where it lies."""

    kind: str
    name: str = ""
    start: int = 0
    size: int = 0
    columns: tuple[str, ...] = ()
    """Of Parquet: those that are read, in this order."""


class Reads(NamedTuple):
    """What a reader takes, beside text in columns."""

    what: str
    """What it reads, in words."""
    error: type[InputError]
    columns_of: Callable[[Any], tuple[str, ...]] | None = None
    """Chooses the columns of a Parquet schema; without it, the file is left to the reader."""
    json: bool = False
    utf_16: bool = False


class Text(NamedTuple):
    """A text within a file: how it is opened, its first line, and whether more follows; or why it is none."""

    layers: tuple[Layer, ...]
    line: bytes = b""
    more: bool = False
    fault: InputError | None = None

    @property
    def member(self) -> str:
        """Its name in the archive; empty where there is no archive."""
        return next((layer.name for layer in reversed(self.layers) if layer.name), "")


def texts_in(path: str, reads: Reads) -> Iterator[Text]:
    """The texts in a file, one by one. Raises InputError for a Parquet file whose columns are refused."""
    with open(path, "rb") as file:
        yield from _texts(path, file, (), reads)


@contextmanager
def opened(path: str, layers: tuple[Layer, ...]) -> Iterator[BinaryIO]:
    """The text behind these layers, from its beginning; it can be read, and sought forward."""
    with ExitStack() as stack:
        stream: BinaryIO = stack.enter_context(open(path, "rb"))
        for layer in layers:
            stream = _OPENERS[layer.kind](stream, layer)
        yield stream


def check_size(path: str, layers: tuple[Layer, ...], what: str, most_bytes: int) -> None:
    """Raise InputError for a text that takes more than `most_bytes` when it is unpacked, without holding it."""
    size = 0
    with opened(path, layers) as stream:
        while size <= most_bytes and (chunk := stream.read(_HEAD)):
            size += len(chunk)
    if size > most_bytes:
        raise InputError(
            f"The {what} {path} takes more than {format_bytes(most_bytes)} when it is unpacked.",
            "Check what wrote it, or keep only the rows and columns that are needed.",
        )


def check_of(path: str) -> str:
    """A command that says whether a file is damaged."""
    with open(path, "rb") as file:
        command = _CHECKS.get(_kind(file.read(512)), "")
    return f"Check it with: {command} {path}" if command else "Write or download it again."


def _kind(head: bytes) -> str:
    if head[257:262] == b"ustar":
        return "tar"
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), "")


def _texts(path: str, stream: BinaryIO, layers: tuple[Layer, ...], reads: Reads) -> Iterator[Text]:
    head = stream.read(_HEAD)
    kind = _kind(head)
    whole = _buffered(itertools.chain([head], _chunks(stream)))
    if len(layers) > _MOST_LAYERS:
        yield Text(layers, fault=reads.error(f"{path} is compressed again and again.", "Unpack it."))
    elif kind in _COMPRESSIONS:
        layer = Layer(kind)
        yield from _texts(path, _OPENERS[kind](whole, layer), (*layers, layer), reads)
    elif kind == "tar":
        for member, part in _tar_members(whole):
            yield from _texts(path, part, (*layers, member), reads)
    elif kind in ("zip", "parquet") and layers:
        what = "a zip archive" if kind == "zip" else "a Parquet file"
        yield Text(layers, fault=reads.error(f"{path} holds {what} within another file.", "Unpack it."))
    elif kind == "zip":
        for layer in _zip_members(stream):
            yield from _texts(path, _zip_member(stream, layer), (layer,), reads)
    elif kind == "parquet":
        layer = Layer(kind, columns=_parquet_columns(path, stream, reads.columns_of) if reads.columns_of else ())
        if not layer.columns:
            yield Text((layer,))
            return
        with_lines = _parquet_text(stream, layer)
        line = with_lines.readline(LONGEST_LINE)
        yield Text((layer,), line, bool(with_lines.read(1)))
    else:
        yield _text(path, head, stream, layers, reads)


def _text(path: str, head: bytes, stream: BinaryIO, layers: tuple[Layer, ...], reads: Reads) -> Text:
    refused = (*_FOREIGN, *(() if reads.json else _JSON), *(() if reads.utf_16 else _UTF_16))
    for magic, what, remedy in refused:
        if (
            head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(magic)
            if magic in (b"<", b"{", b"[")
            else head.startswith(magic)
        ):
            remedy = remedy.replace("FILE", path)
            return Text(layers, fault=reads.error(f"{path} is {what}, not a {reads.what}.", remedy))
    if b"\r" in head and b"\n" not in head:
        layers = (*layers, Layer("cr"))
        head = head.replace(b"\r", b"\n")
    line, feed, rest = head.partition(b"\n")
    if not feed and len(head) == _HEAD:
        line += stream.readline(LONGEST_LINE)
    return Text(layers, line + feed, bool(rest) or bool(stream.read(1)))


def _tar_members(stream: BinaryIO) -> Iterator[tuple[Layer, BinaryIO]]:
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if member.isfile() and member.size and not _is_hidden(member.name):
                part = archive.extractfile(member)
                yield Layer("part", member.name, member.offset_data, member.size), cast(BinaryIO, part)


def _zip_members(stream: BinaryIO) -> list[Layer]:
    with zipfile.ZipFile(stream) as archive:
        found = [info for info in archive.infolist() if info.file_size and not _is_hidden(info.filename)]
        if locked := [info.filename for info in found if info.flag_bits & 1]:
            raise InputError(f"{locked[0]} in the zip archive is encrypted.", "Unpack it with its password.")
        return [Layer("zip", info.filename, size=info.file_size) for info in found]


def _is_hidden(name: str) -> bool:
    """Whether it is what a desktop adds to archives."""
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
    """Decompressed by pyarrow; it can be read once, forward."""
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
        told = str(error).partition("\n")[0].rstrip(".")
        raise InputError(f"The Parquet file {path} is damaged: {told}.", "Write it again.") from None


def _parquet_text(stream: BinaryIO, layer: Layer) -> BinaryIO:
    file = open_parquet(stream)
    batches = file.iter_batches(_ROWS_AT_ONCE, columns=list(dict.fromkeys(layer.columns)), use_threads=False)
    return _buffered(_lines(batch, layer.columns) for batch in batches)


def _lines(batch: Any, columns: tuple[str, ...]) -> bytes:
    """Rows of a record batch, tab-separated; what is missing is empty."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as arrow_csv

    if sum(plain_bytes(batch.column(name)) for name in columns) > _MOST_BYTES:
        raise InputError(
            f"{batch.num_rows:,} rows of the Parquet file take more than {format_bytes(_MOST_BYTES)} when read.",
            "Check what wrote it, or keep only the columns that are needed.",
        )
    taken = [_as_text(batch.column(name)) for name in columns]
    options = arrow_csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    names = [str(number) for number in range(len(columns))]
    try:
        sink = pa.BufferOutputStream()
        arrow_csv.write_csv(pa.record_batch(taken, names), sink, options)
    except pa.ArrowInvalid:  # tokens with tabs, quotes or line ends in them
        plain = [
            pc.replace_substring_regex(each, '[\t\r\n"]', " ") if pa.types.is_large_string(each.type) else each
            for each in taken
        ]
        sink = pa.BufferOutputStream()
        arrow_csv.write_csv(pa.record_batch(plain, names), sink, options)
    return cast(bytes, sink.getvalue().to_pybytes())


def _as_text(column: Any) -> Any:
    """A column that can be written as text: whole numbers without a decimal point, the rest as it is."""
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
        whole = pc.all(pc.equal(pc.round(known), known)).as_py() and (pc.max(pc.abs(known)).as_py() or 0) < 2**53
        return known.cast(pa.int64()) if whole else known
    return column


_COMPRESSIONS = ("gzip", "bz2", "xz", "zstd", "lz4")
_OPENERS: dict[str, Callable[[BinaryIO, Layer], BinaryIO]] = {
    "gzip": lambda stream, _: cast(BinaryIO, gzip.GzipFile(fileobj=stream, mode="rb")),
    "bz2": lambda stream, _: cast(BinaryIO, bz2.BZ2File(stream)),
    "xz": lambda stream, _: cast(BinaryIO, lzma.LZMAFile(stream)),  # noqa: SIM115
    "zstd": _by_arrow, "lz4": _by_arrow, "zip": _zip_member, "part": _part, "cr": _cr, "parquet": _parquet_text,
}  # fmt: skip


def _chunks(stream: Any, size: int | None = None) -> Iterator[bytes]:
    left = size
    while left is None or left > 0:
        chunk = stream.read(_HEAD if left is None else min(_HEAD, left))
        if not chunk:
            if left:
                raise EOFError("the archive ends before its member does")
            return
        left = None if left is None else left - len(chunk)
        yield bytes(chunk)


def _buffered(chunks: Iterable[bytes]) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(_Chunks(chunks), _HEAD))


class _Chunks(io.RawIOBase):
    """Bytes that come in chunks, as a stream that can be sought forward."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks, self._chunk, self._at = iter(chunks), memoryview(b""), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or offset < self._at:
            raise io.UnsupportedOperation("only forward")
        while self._at < offset and self._fill():
            self._take(offset - self._at)
        return self._at

    def readinto(self, buffer: Any) -> int:
        if not self._fill():
            return 0
        taken = self._take(len(buffer))
        buffer[: len(taken)] = taken
        return len(taken)

    def _fill(self) -> bool:
        while not self._chunk:
            chunk = next(self._chunks, None)
            if chunk is None:
                return False
            self._chunk = memoryview(chunk)
        return True

    def _take(self, most: int) -> memoryview:
        taken, self._chunk = self._chunk[:most], self._chunk[most:]
        self._at += len(taken)
        return taken


_CRITEO = ((re.compile(r"i(\d+)", re.I), re.compile(r"c(\d+)", re.I)),
           (re.compile(r"int_(\d+)", re.I), re.compile(r"cat_(\d+)", re.I)))  # fmt: skip
LABELS = ("label", "click", "clicked", "is_click", "target", "y")


def named_columns(names: list[str]) -> tuple[str, list[str], list[str]] | None:
    """Label, numeric and categorical columns by the names that Criteo's have; None where they have others."""
    label = next((name for wanted in LABELS for name in names if name.strip().lower() == wanted), None)
    if label is None:
        return None
    for pair in _CRITEO:
        dense, tables = (_numbered(names, pattern) for pattern in pair)
        if tables and (dense or len(names) == 1 + len(tables)):
            return label, dense, tables
    return None


def _numbered(names: list[str], pattern: re.Pattern[str]) -> list[str]:
    found = [(int(match[1]), name) for name in names if (match := pattern.fullmatch(name.strip()))]
    return [name for _, name in sorted(found)]
