"""Snapshots on disk are read back unchanged, and any damage is named."""

from __future__ import annotations

import hashlib
import json
import logging
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sizewright.errors import EngineError, JobError
from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.ps import snapshot_files
from sizewright.training.ps.applied import AppliedGroup
from sizewright.training.ps.routing import PARTS
from sizewright.training.ps.snapshot_files import (
    ARRAYS,
    SnapshotInfo,
    check_folder,
    lock_folder,
    read_snapshot,
    resumed_info,
    snapshots,
    write_snapshot,
)
from tests.helpers.training_parts import small_job

JOB = small_job(optimizer="adam")


def some_arrays(rows: int = 40, seed: int = 0) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(seed)
    keys = np.sort(rng.choice(10**6, rows, replace=False)).astype(np.int64)
    shapes = {"weights": (rows, 4), "state": (rows, 9), "dense": (7, 1), "dense_state": (7, 2)}
    return {"keys": keys} | {name: rng.random(shape, dtype=np.float32) for name, shape in shapes.items()}


def write(folder: Path, samples: int = 640, seed: int = 0, previous: Path | None = None) -> dict[str, NDArray[Any]]:
    arrays = some_arrays(seed=seed)
    info = SnapshotInfo(JOB.hash, len(arrays["keys"]), [AppliedGroup(np.arange(PARTS), SampleRanges([(0, samples)]))])
    write_snapshot(folder, info, arrays, lambda _: None, previous)
    return arrays


def rewrite_meta(snapshot: Path, **changes: Any) -> None:
    """Change the list of a snapshot, with a checksum that fits."""
    document = json.loads((snapshot / "snapshot.json").read_text()) | changes
    del document["checksum"]
    (snapshot / "snapshot.json").write_text(json.dumps({**document, "checksum": snapshot_files._checksum(document)}))


def test_written_snapshot_is_read_back(tmp_path: Path) -> None:
    arrays = write(tmp_path)
    info, contents = read_snapshot(tmp_path, JOB)
    assert (info.job_hash, info.rows, list(info.trained), info.partly_applied) == (JOB.hash, 40, [(0, 640)], [])
    for name in ARRAYS:
        np.testing.assert_array_equal(contents[name], arrays[name])


@pytest.mark.parametrize("seed", range(6))
def test_every_damage_is_detected_or_harmless(tmp_path: Path, seed: int) -> None:
    """Bits, bytes, lengths and files: each damage is one error that names the snapshot, or changes nothing."""
    rng = random.Random(seed)
    arrays = write(tmp_path / "whole")
    for number in range(40):
        folder = tmp_path / f"{number}"
        shutil.copytree(tmp_path / "whole", folder)
        what = damage(snapshots(folder)[0], rng)
        assert outcome(folder, arrays) in ("damaged", "none", "whole"), what
        shutil.rmtree(folder)


def outcome(folder: Path, arrays: dict[str, NDArray[Any]]) -> str:
    """Return the result of reading the snapshot."""
    try:
        info, contents = read_snapshot(folder, JOB)
    except JobError as error:
        return (
            "damaged" if "is damaged" in error.message else "none" if "is no snapshot" in error.message else str(error)
        )
    same = info.trained.total == 640 and all(np.array_equal(contents[name], arrays[name]) for name in ARRAYS)
    return "whole" if same else "silently another"


def damage(snapshot: Path, rng: random.Random) -> str:
    path = rng.choice(sorted(snapshot.iterdir()))
    data, other = bytearray(path.read_bytes()), rng.choice(sorted(snapshot.iterdir()))
    at = rng.randrange(len(data))
    kind = rng.choice(("bit", "byte", "cut", "longer", "zeros", "gone", "swapped", "folder"))
    if kind == "bit":
        data[at] ^= 1 << rng.randrange(8)
    elif kind == "byte":
        data[at] = rng.randrange(256)
    elif kind == "cut":
        del data[at:]
    elif kind == "longer":
        data += data[at:]
    elif kind == "zeros":
        data[at:] = bytes(len(data) - at)
    elif kind == "swapped":
        data = bytearray(other.read_bytes())
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind != "gone":
        path.write_bytes(data)
    return f"{kind} of {path.name} at {at}"


def test_damaged_file_is_named_and_the_previous_snapshot_offered(tmp_path: Path) -> None:
    first, _ = write(tmp_path, 64, seed=1), write(tmp_path, 128, seed=2)
    earlier, latest = snapshots(tmp_path)
    data = bytearray((latest / "weights.npy").read_bytes())
    data[-1] ^= 1
    (latest / "weights.npy").write_bytes(data)
    with pytest.raises(JobError, match=r"snapshot-000002 is damaged: weights.npy has changed since") as caught:
        read_snapshot(tmp_path, JOB)
    assert f"resume {earlier}" in caught.value.remedy
    info, contents = read_snapshot(earlier, JOB)
    assert info.trained.total == 64
    np.testing.assert_array_equal(contents["weights"], first["weights"])
    check_folder(tmp_path, earlier)  # the run may go on in the same folder
    assert list(resumed_info(earlier, JOB, 640).trained) == [(0, 64)]


ALL_SAMPLES = {"samples": [[0, 640]]}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rows", "40"), ("rows", 40.0), ("rows", -1), ("rows", True), ("job_hash", 1), ("sha256", {}), ("sha256", None),
        ("updates_lost", "x"), ("samples_repeated", -1), ("applied", []), ("applied", {}), ("version", 2.5),
        ("applied", [ALL_SAMPLES | {"parts": [[0, 10**13]]}]),
        ("applied", [ALL_SAMPLES | {"parts": [[0, 10**13], [10**13, PARTS]]}]),
        ("applied", [ALL_SAMPLES | {"parts": [[1, PARTS]]}]),
        ("applied", [ALL_SAMPLES | {"parts": [[0, PARTS]]}, ALL_SAMPLES | {"parts": [[0, PARTS]]}]),
        ("applied", [{"parts": [[0, PARTS]], "samples": [[640, 0]]}]),
        ("applied", [{"parts": [[0, PARTS]], "samples": [[0, 10**30]]}]),
    ],
)  # fmt: skip
def test_invalid_list_with_a_fitting_checksum_is_damage(tmp_path: Path, field: str, value: Any) -> None:
    write(tmp_path)
    rewrite_meta(snapshots(tmp_path)[0], **{field: value})
    with pytest.raises(JobError, match=rf"snapshot-000001 is damaged: snapshot.json has no valid value of {field}"):
        read_snapshot(tmp_path, JOB)


def test_list_of_the_second_format_needs_the_checksums(tmp_path: Path) -> None:
    write(tmp_path)
    document = {"job_hash": JOB.hash, "samples": 640, "trained": [[0, 640]], "rows": 40, "version": 2, "sha256": {}}
    meta = snapshots(tmp_path)[0] / "snapshot.json"
    meta.write_text(json.dumps({**document, "checksum": snapshot_files._checksum(document)}))
    with pytest.raises(JobError, match="has no valid value of sha256"):
        read_snapshot(tmp_path, JOB)


def test_only_an_older_snapshot_that_loads_is_offered(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write(tmp_path / f"{number}")
        (tmp_path / "all").mkdir(exist_ok=True)
        shutil.copytree(tmp_path / f"{number}" / "snapshot-000001", tmp_path / "all" / f"snapshot-{number:06d}")
    first, second, third = snapshots(tmp_path / "all")
    for damaged in (second, third):
        (damaged / "dense.npy").write_bytes(b"")
    for resumed in (tmp_path / "all", third, second):
        with pytest.raises(JobError, match=r"is damaged: dense\.npy has changed") as caught:
            read_snapshot(resumed, JOB)
        assert f"--resume {first}`" in caught.value.remedy
    rewrite_meta(first, job_hash="another job")
    with pytest.raises(JobError) as caught:
        read_snapshot(tmp_path / "all", JOB)
    assert "--resume" not in caught.value.remedy


def test_resumed_snapshot_is_kept_rather_than_the_damaged_one_after_it(tmp_path: Path) -> None:
    write(tmp_path, 64), write(tmp_path, 128)
    resumed, damaged = snapshots(tmp_path)
    (damaged / "keys.npy").write_bytes(b"")
    write(tmp_path, 192, previous=resumed)
    assert [path.name for path in snapshots(tmp_path)] == ["snapshot-000001", "snapshot-000003"]
    write(tmp_path / "new", 64, previous=resumed), write(tmp_path / "new", 128, previous=resumed)
    assert len(snapshots(tmp_path / "new")) == 2


@pytest.mark.parametrize("name", ["snapshot.json", "keys.npy"])
def test_missing_file_does_not_fall_back_silently(tmp_path: Path, name: str) -> None:
    write(tmp_path, 64, seed=1), write(tmp_path, 128, seed=2)
    (snapshots(tmp_path)[-1] / name).unlink()
    with pytest.raises(JobError, match=rf"snapshot-000002 is damaged: {name} is missing"):
        read_snapshot(tmp_path, JOB)
    write(tmp_path, 192, seed=3)
    assert [path.name for path in snapshots(tmp_path)] == ["snapshot-000002", "snapshot-000003"]


@pytest.mark.parametrize("version", [1, 2])
def test_older_formats_are_read_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture, version: int) -> None:
    arrays = write(tmp_path)
    meta = snapshots(tmp_path)[0] / "snapshot.json"
    header = {"job_hash": JOB.hash, "samples": 640, "trained": [[0, 640]], "rows": 40}
    if version == 2:
        header |= {"version": 2, "sha256": json.loads(meta.read_text())["sha256"]}
        header["checksum"] = hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()
    meta.write_text(json.dumps(header))
    with caplog.at_level(logging.WARNING):
        info, contents = read_snapshot(tmp_path, JOB)
    np.testing.assert_array_equal(contents["weights"], arrays["weights"])
    assert (list(info.trained), info.partly_applied) == ([(0, 640)], [])
    assert [record.message for record in caplog.records if "has an older format" in record.message]
    assert len(caplog.records) == 1
    np.save(meta.with_name("state.npy"), arrays["state"][1:])
    expected = "state.npy has 39 rows, but 40 were written" if version == 1 else "state.npy has changed"
    with pytest.raises(JobError, match=expected):
        read_snapshot(tmp_path, JOB)


def test_samples_are_classified_by_the_parts_that_applied_them(tmp_path: Path) -> None:
    """Samples that all parts applied are trained; those of some parts are completed by the others."""
    arrays = some_arrays()
    ranges = ([(0, 100), (200, 300)], [(0, 90), (250, 320)])
    groups = [AppliedGroup(np.arange(PARTS)[i::2], SampleRanges(ranges[i])) for i in (0, 1)]
    write_snapshot(tmp_path, SnapshotInfo(JOB.hash, 40, groups, 3, 4), arrays, lambda _: None)
    info = resumed_info(tmp_path, JOB, 400)
    assert list(info.trained) == [(0, 90), (250, 300)]
    assert info.partly_applied == [(90, 100), (200, 250), (300, 320)]
    assert (info.updates_lost, info.samples_repeated) == (3, 4)
    with pytest.raises(JobError, match="up to sample 320, but the job has only 310 samples"):
        resumed_info(tmp_path, JOB, 310)
    assert list(resumed_info(None, JOB, 310).trained) == []


def test_altered_version_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    meta = snapshots(tmp_path)[0] / "snapshot.json"
    meta.write_text(meta.read_text().replace('"version": 3', '"version": 4'))
    with pytest.raises(JobError, match=r"snapshot.json has changed"):
        read_snapshot(tmp_path, JOB)


def test_newer_format_is_not_called_damaged(tmp_path: Path) -> None:
    write(tmp_path)
    rewrite_meta(snapshots(tmp_path)[0], version=4)
    with pytest.raises(JobError, match="has format 4, but this version of Sizewright reads formats up to 3"):
        read_snapshot(tmp_path, JOB)


def test_folder_is_locked_by_one_run(tmp_path: Path) -> None:
    other = (
        "import sys; from sizewright.training.ps.snapshot_files import lock_folder\nwith lock_folder(sys.argv[1]): pass"
    )
    command = [sys.executable, "-c", other, str(tmp_path / "new" / "folder")]
    with lock_folder(tmp_path / "new" / "folder"):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "Another run writes its snapshots to" in done.stderr
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match="cannot be written to"), lock_folder(tmp_path / "file" / "folder"):
        pass


def test_resumed_snapshot_is_kept_until_a_newer_one_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last snapshot is damaged, the one before it was resumed, and the next cannot be written."""
    for samples in (64, 128):
        write(tmp_path, samples)
    older, latest = snapshots(tmp_path)
    (latest / "keys.npy").write_bytes(b"")

    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sizewright.training.ps.snapshot_files._write_array", full)
    with pytest.raises(EngineError, match="could not be written"):
        write(tmp_path, 192)
    assert list(read_snapshot(older, JOB)[0].trained) == [(0, 64)]


def test_snapshot_is_no_folder_for_snapshots(tmp_path: Path) -> None:
    """Snapshots written into it would not be read when it is resumed."""
    write(tmp_path, 64, seed=1)
    (snapshot,) = snapshots(tmp_path)
    with pytest.raises(JobError, match="is a snapshot") as caught:
        check_folder(snapshot, snapshot)
    assert str(tmp_path) in caught.value.remedy
