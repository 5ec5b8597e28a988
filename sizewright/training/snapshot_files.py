"""Snapshots on disk: written whole or not at all, and read only where nothing of them has changed since.

A snapshot is a folder of arrays and of `snapshot.json`, which has the SHA-256 of every array and of itself, and says
which samples are in which part of the weights. Snapshots of the first two formats do not; they are read with a warning.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.errors import EngineError, JobError
from sizewright.spec import Job
from sizewright.spec._paths import private
from sizewright.training.leases.sample_ranges import Range, Reconciled, SampleRanges, reconcile
from sizewright.training.ps.applied import AppliedGroup
from sizewright.training.routing import PARTS, Parts

ARRAYS = ("keys", "weights", "state", "dense", "dense_state")
_VERSION = 3
_SECOND = 2
_FIRST_FORMAT = {"job_hash", "samples", "trained", "rows"}
_META, _LOCK, _PREFIX = "snapshot.json", ".lock", "snapshot-"
_KEPT = 2
"""Where the latest is damaged, the one before it is there."""
_CHUNK_BYTES = 1 << 20
_LOG = logging.getLogger(__name__)


class SnapshotInfo(NamedTuple):
    """What a snapshot on disk is of: the samples that are in each part of its weights.

    `updates_lost` and `samples_repeated` were told by the run that wrote it.
    """

    job_hash: str
    rows: int
    applied: list[AppliedGroup]
    updates_lost: int = 0
    samples_repeated: int = 0

    @property
    def trained(self) -> SampleRanges:
        """Samples that are in all parts."""
        return SampleRanges(self._reconciled.all)

    @property
    def again(self) -> list[Range]:
        """Pieces of samples that are in some parts and not in others."""
        return self._reconciled.some

    @property
    def _reconciled(self) -> Reconciled:
        accounts = [group.samples for group in self.applied]
        last = max((end for account in accounts for _, end in account), default=0)
        return reconcile([(0, last)], accounts)


class _DamagedError(Exception):
    """The file of a snapshot that is not as it was written."""


def write_snapshot(
    folder: str | Path, info: SnapshotInfo, arrays: Mapping[str, NDArray[Any]], count: Callable[[int], None]
) -> None:
    """Write one into a new folder below `folder`, then remove all but the one before it. `count` is told the bytes.

    Until then nothing goes: the one before may be damaged, and the one before that what a run went on from.

    Raises EngineError when the disk refuses; older ones then stay.
    """
    number = 1 + max([_number(path) for path in snapshots(folder)], default=0)
    new = Path(folder) / f".{_PREFIX}{number:06d}"
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        new.mkdir(mode=0o700, exist_ok=True)
        sums = {name: _write_array(new / f"{name}.npy", arrays[name], count) for name in ARRAYS}
        _write_meta(new / _META, info, sums)
        _sync(new)
        place = Path(folder) / new.name.removeprefix(".")
        os.replace(new, place)
        _sync(Path(folder))
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        reason = (error.strerror or f"it may be full ({error})").lower()  # numpy tells only what is left out
        raise EngineError(
            f"A snapshot could not be written to {folder}: {reason}.",
            "Free some space there or name another folder; training goes on with the snapshot in memory.",
        ) from None
    for path in snapshots(folder)[:-_KEPT]:
        shutil.rmtree(path, ignore_errors=True)


def read_snapshot(folder: str | Path, job: Job) -> tuple[SnapshotInfo, dict[str, NDArray[Any]]]:
    """The latest snapshot below a folder, or the one that it is, with its arrays, which are not in memory.

    Raises JobError for none, for one of another job, and for one of which a file is not as it was written.
    """
    found = snapshots(folder)
    if not found:
        raise JobError(f"There is no snapshot in {folder}.", "Name the folder that an earlier run was given.")
    path = found[-1]
    try:
        info, sums, exact = _read_meta(path / _META)
        arrays = {name: _read_array(path / f"{name}.npy", sums.get(name)) for name in ARRAYS}
        _check_rows(path, info, arrays)
    except _DamagedError as error:
        earlier = found[-2] if len(found) > 1 else None
        raise JobError(
            f"The snapshot {path} is damaged: {error}.",
            f"Go on from the one before it (resume {earlier}), or start anew in another folder."
            if earlier
            else "Resume another one, or start anew in another folder.",
        ) from None
    if info.job_hash not in job.hashes:
        raise JobError(
            f"The snapshot in {folder} is of another job: its model, data or training settings differ.",
            "Resume it with the job file that it was made with, or start anew in another folder.",
        )
    if not exact:
        _LOG.warning(
            "The snapshot %s is of an older version, which did not say exactly what it has seen: samples that were "
            "trained while it was written may be trained twice.",
            path,
        )
    return info, arrays


def snapshots(folder: str | Path) -> list[Path]:
    """The snapshots below a folder, the latest last; a folder that is one itself is alone. They may be damaged."""
    if _is_snapshot(Path(folder)):
        return [Path(folder)]
    return sorted(path for path in Path(folder).glob(_PREFIX + 6 * "[0-9]") if path.is_dir())


def resumed_info(folder: str | Path | None, job: Job, samples: int | None) -> SnapshotInfo:
    """What the latest snapshot below a folder has seen; nothing without a folder. Raises JobError as `read_snapshot`
    does, and where that is not all among the job's `samples`."""
    if folder is None:
        return SnapshotInfo("", 0, [])
    info, _ = read_snapshot(folder, job)
    last = max((end for group in info.applied for _, end in group.samples), default=0)
    if samples is not None and last > samples:
        raise JobError(
            f"The snapshot in {folder} has been trained up to sample {last:,}, and the job has {samples:,}.",
            "Give the job more samples, or start anew in another folder.",
        )
    return info


def check_folder(folder: str | Path | None, resume: str | Path | None) -> None:
    """Raises JobError for a folder whose snapshots would be lost: those of a run that is not resumed."""
    if folder is None or not snapshots(folder):
        return
    resumed = None if resume is None else Path(resume).resolve()
    if resumed is None or Path(folder).resolve() not in (resumed, resumed.parent):
        raise JobError(
            f"There are snapshots of an earlier run in {folder}, which this one would remove.",
            f"Go on from them (resume {folder}), or name another folder.",
        )


@contextlib.contextmanager
def held(folder: str | Path | None) -> Iterator[None]:
    """While it lasts, no other run writes snapshots to a folder.

    Raises EngineError where another does, and where the folder cannot be made.
    """
    if folder is None:
        yield
        return
    path = Path(folder) / _LOCK
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _locked(path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise EngineError(f"Snapshots cannot be kept in {folder}: {reason}.", "Name a folder of yours.") from None
    if lock is None:
        raise EngineError(
            f"Another run keeps its snapshots in {folder}.", "Name another folder, or wait until it has ended."
        )
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)


def _locked(path: Path) -> int | None:
    """The file, held; None where another process holds it. Whoever ends removes it, perhaps after we opened it."""
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


def _is_snapshot(path: Path) -> bool:
    return path.name.startswith(_PREFIX) and path.name.removeprefix(_PREFIX).isdecimal() and (path / _META).is_file()


def _number(path: Path) -> int:
    return int(path.name.removeprefix(_PREFIX))


def _write_array(path: Path, array: NDArray[Any], count: Callable[[int], None]) -> str:
    """Write it, and return its checksum."""
    with open(path, "wb", opener=private) as stream:
        summed = _Summed(stream, count)
        np.save(summed, array)
        stream.flush()
        os.fsync(stream.fileno())
    return summed.sum.hexdigest()


def _read_array(path: Path, checksum: str | None) -> NDArray[Any]:
    try:
        if checksum is not None:
            with open(path, "rb") as stream:
                found = hashlib.sha256()
                while part := stream.read(_CHUNK_BYTES):
                    found.update(part)
            if found.hexdigest() != checksum:
                raise _DamagedError(f"{path.name} has changed since it was written")
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise _DamagedError(f"{path.name} is missing") from None
    except (OSError, EOFError, ValueError, TypeError, SyntaxError, KeyError, OverflowError) as error:
        raise _DamagedError(f"{path.name} cannot be read ({type(error).__name__})") from None
    return array


def _check_rows(path: Path, info: SnapshotInfo, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Of the first format nothing else says whether its files belong together."""
    kinds = {"keys": ("i", 1), "weights": ("f", 2), "state": ("f", 2), "dense": ("f", 2), "dense_state": ("f", 2)}
    for name, array in arrays.items():
        if (array.dtype.kind, array.ndim) != kinds[name]:
            raise _DamagedError(f"{name}.npy does not hold what it should")
        rows = len(arrays["dense"]) if name.startswith("dense") else info.rows
        if len(array) != rows:
            raise _DamagedError(f"{name}.npy has {len(array):,} rows where {rows:,} were written")


def _write_meta(path: Path, info: SnapshotInfo, sums: Mapping[str, str]) -> None:
    groups = [{"parts": list(_runs(group.parts)), "samples": list(group.samples)} for group in info.applied]
    told = {"version": _VERSION, **info._asdict(), "applied": groups, "sha256": dict(sums)}
    with open(path, "w", encoding="utf-8", opener=private) as text:
        text.write(json.dumps({**told, "checksum": _sum_of(told)}))
        text.flush()
        os.fsync(text.fileno())


def _read_meta(path: Path) -> tuple[SnapshotInfo, dict[str, str], bool]:
    """What it says, the checksums of its arrays (none in the first format), and whether it says all that it is of."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if "checksum" not in told and set(told) == _FIRST_FORMAT:
            return _old_info(told), {}, False
        checksum = told.pop("checksum")
        if checksum != _sum_of(told):
            raise _DamagedError(f"{path.name} has changed since it was written")
        if told["version"] == _SECOND:
            return _old_info(told), dict(told["sha256"]), False
        if told["version"] != _VERSION:
            raise _DamagedError(f"{path.name} is of format {told['version']}, which this version cannot read")
        return _info(told), dict(told["sha256"]), True
    except FileNotFoundError:
        raise _DamagedError(f"{path.name} is missing") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _DamagedError(f"{path.name} cannot be read ({type(error).__name__})") from None


def _info(told: Mapping[str, Any]) -> SnapshotInfo:
    info = SnapshotInfo(**{name: told[name] for name in SnapshotInfo._fields})
    groups = [
        AppliedGroup(np.concatenate([np.arange(a, b) for a, b in group["parts"]]), SampleRanges(group["samples"]))
        for group in told["applied"]
    ]
    return info._replace(applied=groups)


def _old_info(told: Mapping[str, Any]) -> SnapshotInfo:
    """Of a snapshot that knew one list of samples. Raises TypeError or ValueError for what is no such thing."""
    edges = [edge for begin, end in told["trained"] for edge in (begin, end)]
    if not all(isinstance(each, int) and each >= 0 for each in (told["samples"], told["rows"], *edges)):
        raise ValueError("no counts")
    if sum(end - begin for begin, end in told["trained"]) != told["samples"]:
        raise ValueError("other samples")
    return SnapshotInfo(told["job_hash"], told["rows"], [AppliedGroup(np.arange(PARTS), SampleRanges(told["trained"]))])


def _runs(parts: Parts) -> Iterator[tuple[int, int]]:
    """Numbers in order as ranges."""
    for run in np.split(parts, np.flatnonzero(np.diff(parts) > 1) + 1):
        if len(run):
            yield int(run[0]), int(run[-1]) + 1


def _sum_of(told: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _sync(folder: Path) -> None:
    """What was renamed or made in it outlasts a crash of the machine."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class _Summed:
    """A file that sums up, and tells, what is written to it."""

    def __init__(self, stream: BinaryIO, count: Callable[[int], None]) -> None:
        self._stream, self._count, self.sum = stream, count, hashlib.sha256()

    def write(self, data: bytes) -> int:
        written = self._stream.write(data)
        self.sum.update(data)
        self._count(written)
        return written
