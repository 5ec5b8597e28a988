"""Snapshots on disk, written atomically and verified when they are read.

A snapshot is a folder of arrays with a file `snapshot.json`, which has the SHA-256 of every array and of itself, and
the samples that were applied to each part of the weights. Rows of different widths are in arrays of their own. The
first two formats lack the samples; they are read with a warning.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from sizewright.errors import EngineError, JobError
from sizewright.spec import Job
from sizewright.spec._paths import private
from sizewright.training.leases.sample_ranges import Range, Reconciled, SampleRanges, reconcile
from sizewright.training.ps.applied import AppliedGroup
from sizewright.training.ps.routing import PARTS, Parts

_ROWS = ("keys", "weights", "state")
_DENSE = ("dense", "dense_state")
ARRAYS = (*_ROWS, *_DENSE)
"""The arrays of a snapshot whose rows are all equally wide."""
_VERSION = 3
_SECOND_VERSION = 2
_META = "snapshot.json"
_LOCK = ".lock"
_PREFIX = "snapshot-"
_CHUNK_BYTES = 1 << 20
_LOG = logging.getLogger(__name__)


class SnapshotInfo(NamedTuple):
    """The content of a snapshot on disk: the samples that were applied to each part of its weights.

    `updates_lost` and `samples_repeated` are the counts of the run that wrote it.
    """

    job_hash: str
    rows: int
    applied: list[AppliedGroup]
    updates_lost: int = 0
    samples_repeated: int = 0

    @property
    def trained(self) -> SampleRanges:
        """The samples that were applied to all parts."""
        return SampleRanges(self._reconciled.all)

    @property
    def partly_applied(self) -> list[Range]:
        """The ranges of samples that were applied to some parts and not to others."""
        return self._reconciled.some

    @property
    def _reconciled(self) -> Reconciled:
        accounts = [group.samples for group in self.applied]
        last = max((end for account in accounts for _, end in account), default=0)
        return reconcile([(0, last)], accounts)


def _check_ascending(each: Range) -> Range:
    if each[0] > each[1]:
        raise ValueError("a range must not end before it starts")
    return each


def row_arrays(widths: Sequence[int]) -> list[tuple[str, ...]]:
    """Return the names of the keys, weights and state of the rows of each width."""
    suffixes = [""] if len(widths) == 1 else [f"-{width}" for width in widths]
    return [tuple(name + suffix for name in _ROWS) for suffix in suffixes]


def _check_complete(checksums: dict[str, str]) -> dict[str, str]:
    widths = [name.removeprefix("keys-") for name in checksums if name.startswith("keys-")]
    if not all(width.isdecimal() for width in widths):
        raise ValueError("the names of arrays end in a width")
    rows = row_arrays([int(width) for width in widths] or [0])
    if len(widths) == 1 or set(checksums) != {*itertools.chain(*rows), *_DENSE}:
        raise ValueError("every array must have a checksum")
    return checksums


def _check_covering(groups: list[_StoredGroup]) -> list[_StoredGroup]:
    runs = sorted(run for group in groups for run in group.parts)
    if [0, *(end for _, end in runs)] != [*(start for start, _ in runs), PARTS]:
        raise ValueError("every part of the weights must be in one group")
    return groups


_Count = Annotated[int, Field(strict=True, ge=0, lt=1 << 63)]
_StoredRange = Annotated[tuple[_Count, _Count], AfterValidator(_check_ascending)]
_Checksums = Annotated[dict[str, str], AfterValidator(_check_complete)]


class _Stored(BaseModel):
    """A part of `snapshot.json`, which may have been damaged or written by others."""

    model_config = ConfigDict(extra="forbid")


class _StoredGroup(_Stored):
    parts: list[_StoredRange]
    samples: list[_StoredRange]


class _ThirdFormat(_Stored):
    version: Literal[3]
    job_hash: str
    rows: _Count
    applied: Annotated[list[_StoredGroup], AfterValidator(_check_covering)]
    updates_lost: _Count
    samples_repeated: _Count
    sha256: _Checksums

    def info(self) -> SnapshotInfo:
        groups = [
            AppliedGroup(np.concatenate([np.arange(*run) for run in group.parts]), SampleRanges(group.samples))
            for group in self.applied
        ]
        return SnapshotInfo(self.job_hash, self.rows, groups, self.updates_lost, self.samples_repeated)


class _FirstFormat(_Stored):
    """The first two formats have one list of samples for all parts."""

    job_hash: str
    trained: list[_StoredRange]
    samples: _Count
    rows: _Count

    def info(self) -> SnapshotInfo:
        if sum(end - start for start, end in self.trained) != self.samples:
            raise ValueError("the ranges do not add up to the number of samples")
        return SnapshotInfo(self.job_hash, self.rows, [AppliedGroup(np.arange(PARTS), SampleRanges(self.trained))])


class _SecondFormat(_FirstFormat):
    version: Literal[2]
    sha256: _Checksums


class _DamagedError(Exception):
    """A file of a snapshot has changed since it was written."""


class _NewerFormatError(Exception):
    """A snapshot was written by a later version of Sizewright."""


def write_snapshot(
    folder: str | Path,
    info: SnapshotInfo,
    arrays: Mapping[str, NDArray[Any]],
    count: Callable[[int], None],
    previous: Path | None = None,
) -> None:
    """Write a snapshot into a new folder below `folder`, then remove all older ones except one.

    The older one that stays can be resumed if the new one is damaged. It is `previous`, the snapshot that this run has
    written or loaded last, because a newer one may be damaged. Where `previous` is not in the folder, the latest stays.
    Nothing is removed before the new snapshot is complete.

    `count` is called with the number of bytes of each write. Raise EngineError if the disk refuses; older snapshots
    then stay.
    """
    number = 1 + max([_number(path) for path in snapshots(folder)], default=0)
    new = Path(folder) / f".{_PREFIX}{number:06d}"
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        new.mkdir(mode=0o700, exist_ok=True)
        checksums = {name: _write_array(new / f"{name}.npy", array, count) for name, array in arrays.items()}
        _write_meta(new / _META, info, checksums)
        _sync(new)
        os.replace(new, Path(folder) / new.name.removeprefix("."))
        _sync(Path(folder))
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        reason = (error.strerror or f"it may be full ({error})").lower()  # numpy gives no reason, only a byte count
        raise EngineError(
            f"The snapshot could not be written to {folder}: {reason}.",
            "Free space there or choose another folder.",
        ) from None
    *older, _ = snapshots(folder)
    kept = [path for path in older if previous and path.resolve() == previous.resolve()]
    for path in older:
        if path not in (kept or older[-1:]):
            shutil.rmtree(path, ignore_errors=True)


def read_snapshot(folder: str | Path, job: Job) -> tuple[SnapshotInfo, dict[str, NDArray[Any]]]:
    """Return the latest snapshot below a folder, or the folder itself if it is one, with memory-mapped arrays.

    Raise JobError if there is no snapshot, if it belongs to another job or has a newer format, or if one of its files
    has changed.
    """
    paths = snapshots(folder)
    if not paths:
        raise JobError(f"There is no snapshot in {folder}.", "Give the snapshot folder of an earlier run.")
    path = paths[-1]
    try:
        info, arrays, exact = _load(path, job)
    except _DamagedError as error:
        remedy = "Resume another one, or start a new run in another folder."
        older = [each for each in snapshots(path.parent) if _number(each) < _number(path)]
        if (whole := _latest_whole(older, job)) is not None:
            remedy = f"Go on from an older one (`--resume {whole}`), or start a new run in another folder."
        raise JobError(f"The snapshot {path} is damaged: {error}.", remedy) from None
    except _NewerFormatError as error:
        raise JobError(
            f"The snapshot {path} has format {error}, but this version of Sizewright reads formats up to {_VERSION}.",
            "Resume it with the version that wrote it, or start a new run in another folder.",
        ) from None
    if not exact:
        _LOG.warning(
            "The snapshot %s has an older format, which does not record all trained samples exactly. Samples that were "
            "trained while it was written may be trained twice.",
            path,
        )
    return info, arrays


def snapshots(folder: str | Path) -> list[Path]:
    """Return the snapshots below a folder, the latest last, or the folder itself if it is one. They may be damaged."""
    if _is_snapshot(Path(folder)):
        return [Path(folder)]
    return sorted(path for path in Path(folder).glob(_PREFIX + 6 * "[0-9]") if path.is_dir())


def resumed_info(folder: str | Path | None, job: Job, samples: int | None) -> SnapshotInfo:
    """Return the content of the latest snapshot below a folder, empty without a folder.

    Raise JobError as `read_snapshot` does, and if the snapshot was trained beyond the job's `samples`.
    """
    if folder is None:
        return SnapshotInfo("", 0, [])
    info, _ = read_snapshot(folder, job)
    last = max((end for group in info.applied for _, end in group.samples), default=0)
    if samples is not None and last > samples:
        raise JobError(
            f"The snapshot in {folder} was trained up to sample {last:,}, but the job has only {samples:,} samples.",
            "Give the job more samples, or start a new run in another folder.",
        )
    return info


def check_folder(folder: str | Path | None, resume: str | Path | None) -> None:
    """Raise JobError if snapshots of another run, which is not resumed, would be removed from the folder."""
    if folder is None:
        return
    if _is_snapshot(Path(folder).resolve()):
        raise JobError(
            f"{folder} is a snapshot, and snapshots cannot be written into it.",
            f"Write them to its folder: {Path(folder).resolve().parent}.",
        )
    if not snapshots(folder):
        return
    resumed = None if resume is None else Path(resume).resolve()
    if resumed is None or Path(folder).resolve() not in (resumed, resumed.parent):
        raise JobError(
            f"{folder} has snapshots of an earlier run, which this run would remove.",
            f"Resume them (`--resume {folder}`), or choose another folder.",
        )


@contextlib.contextmanager
def lock_folder(folder: str | Path | None) -> Iterator[None]:
    """Keep other runs from writing snapshots to a folder.

    Raise EngineError if another run writes there, or if the folder cannot be created.
    """
    if folder is None:
        yield
        return
    path = Path(folder) / _LOCK
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _try_lock(path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise EngineError(
            f"Snapshots cannot be written to {folder}: {reason}.", "Choose a folder that you may write to."
        ) from None
    if lock is None:
        raise EngineError(
            f"Another run writes its snapshots to {folder}.", "Choose another folder, or wait until that run has ended."
        )
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)


def _try_lock(path: Path) -> int | None:
    """Return the locked file, or None if another process has locked it.

    The file is tried again if its owner removed it after it was opened.
    """
    while True:
        lock = private(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        except BlockingIOError:
            os.close(lock)
            return None
        except OSError:
            os.close(lock)
            raise
        os.close(lock)


def _load(path: Path, job: Job) -> tuple[SnapshotInfo, dict[str, NDArray[Any]], bool]:
    """Return the content of a snapshot, its arrays, and whether the content is exact."""
    info, checksums, exact = _read_meta(path / _META)
    arrays = {name: _read_array(path / f"{name}.npy", checksums.get(name)) for name in checksums or ARRAYS}
    _check_rows(info, arrays)
    if info.job_hash not in job.hashes:
        raise JobError(
            f"The snapshot {path} belongs to another job: its model, data or training settings differ.",
            "Resume it with the job file of that run, or start a new run in another folder.",
        )
    return info, arrays, exact


def _latest_whole(paths: Sequence[Path], job: Job) -> Path | None:
    """Return the latest of these snapshots that can be resumed."""
    for path in reversed(paths):
        with contextlib.suppress(_DamagedError, _NewerFormatError, JobError):
            _load(path, job)
            return path
    return None


def _is_snapshot(path: Path) -> bool:
    return path.name.startswith(_PREFIX) and path.name.removeprefix(_PREFIX).isdecimal() and (path / _META).is_file()


def _number(path: Path) -> int:
    return int(path.name.removeprefix(_PREFIX))


def _write_array(path: Path, array: NDArray[Any], count: Callable[[int], None]) -> str:
    """Write an array, and return its checksum."""
    with open(path, "wb", opener=private) as stream:
        file = _HashingFile(stream, count)
        np.save(file, array)
        stream.flush()
        os.fsync(stream.fileno())
    return file.sha256.hexdigest()


def _read_array(path: Path, checksum: str | None) -> NDArray[Any]:
    try:
        if checksum is not None:
            with open(path, "rb") as stream:
                sha256 = hashlib.sha256()
                while chunk := stream.read(_CHUNK_BYTES):
                    sha256.update(chunk)
            if sha256.hexdigest() != checksum:
                raise _DamagedError(f"{path.name} has changed since it was written")
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise _DamagedError(f"{path.name} is missing") from None
    except (OSError, EOFError, ValueError, TypeError, SyntaxError, KeyError, OverflowError) as error:
        raise _DamagedError(f"{path.name} cannot be read ({type(error).__name__})") from None
    return array


def _check_rows(info: SnapshotInfo, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Check shapes and types: in the first format nothing else ensures that the files belong together."""
    for name, array in arrays.items():
        if (array.dtype.kind, array.ndim) != (("i", 1) if name.startswith("keys") else ("f", 2)):
            raise _DamagedError(f"{name}.npy has {array.ndim} dimensions of type {array.dtype}, which is not valid")
    for name, array in arrays.items():
        kind, _, width = name.partition("-")
        rows = len(arrays["dense"]) if kind in _DENSE else len(arrays[f"keys-{width}"]) if width else info.rows
        if len(array) != rows:
            raise _DamagedError(f"{name}.npy has {len(array):,} rows, but {rows:,} were written")
    stored = sum(len(array) for name, array in arrays.items() if name.startswith("keys"))
    if stored != info.rows:
        raise _DamagedError(f"its files have {stored:,} keys, but {info.rows:,} rows were written")


def _write_meta(path: Path, info: SnapshotInfo, checksums: Mapping[str, str]) -> None:
    groups = [{"parts": list(_runs(group.parts)), "samples": list(group.samples)} for group in info.applied]
    document = {"version": _VERSION, **info._asdict(), "applied": groups, "sha256": dict(checksums)}
    with open(path, "w", encoding="utf-8", opener=private) as text:
        text.write(json.dumps({**document, "checksum": _checksum(document)}))
        text.flush()
        os.fsync(text.fileno())


def _read_meta(path: Path) -> tuple[SnapshotInfo, dict[str, str], bool]:
    """Return the content of a snapshot, the checksums of its arrays, and whether the content is exact.

    Checksums are missing in the first format.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if set(document) == set(_FirstFormat.model_fields):
            return _FirstFormat.model_validate(document).info(), {}, False
        checksum = document.pop("checksum")
        if checksum != _checksum(document):
            raise _DamagedError(f"{path.name} has changed since it was written")
        if document["version"] == _SECOND_VERSION:
            second = _SecondFormat.model_validate(document)
            return second.info(), second.sha256, False
        if document["version"] > _VERSION:
            raise _NewerFormatError(document["version"])
        third = _ThirdFormat.model_validate(document)
        return third.info(), third.sha256, True
    except FileNotFoundError:
        raise _DamagedError(f"{path.name} is missing") from None
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise _DamagedError(f"{path.name} has no valid value of {place}") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _DamagedError(f"{path.name} cannot be read ({type(error).__name__})") from None


def _runs(parts: Parts) -> Iterator[tuple[int, int]]:
    """Yield sorted part numbers as ranges [start, end)."""
    for run in np.split(parts, np.flatnonzero(np.diff(parts) > 1) + 1):
        if len(run):
            yield int(run[0]), int(run[-1]) + 1


def _checksum(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _sync(folder: Path) -> None:
    """Flush a folder to disk, so that created and renamed entries survive a crash of the machine."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class _HashingFile:
    """A file that hashes and counts the written bytes."""

    def __init__(self, stream: BinaryIO, count: Callable[[int], None]) -> None:
        self._stream = stream
        self._count = count
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        written = self._stream.write(data)
        self.sha256.update(data)
        self._count(written)
        return written
