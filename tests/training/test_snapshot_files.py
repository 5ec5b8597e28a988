"""Snapshots on disk: what was written comes back, and whatever has changed since is named."""

from __future__ import annotations

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
from training_parts import small_job

from sizewright.errors import EngineError, JobError
from sizewright.training.snapshot_files import (
    ARRAYS,
    SnapshotInfo,
    check_folder,
    held,
    read_snapshot,
    resumed_ranges,
    snapshots,
    write_snapshot,
)

JOB = small_job(optimizer="adam")


def some_arrays(rows: int = 40, seed: int = 0) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(seed)
    keys = np.sort(rng.choice(10**6, rows, replace=False)).astype(np.int64)
    shapes = {"weights": (rows, 4), "state": (rows, 9), "dense": (7, 1), "dense_state": (7, 2)}
    return {"keys": keys} | {name: rng.random(shape, dtype=np.float32) for name, shape in shapes.items()}


def write(folder: Path, samples: int = 640, seed: int = 0) -> dict[str, NDArray[Any]]:
    arrays = some_arrays(seed=seed)
    info = SnapshotInfo(JOB.hash, samples, [[0, samples]], len(arrays["keys"]))
    write_snapshot(folder, info, arrays, lambda _: None)
    return arrays


def test_what_was_written_is_read(tmp_path: Path) -> None:
    arrays = write(tmp_path)
    info, found = read_snapshot(tmp_path, JOB)
    assert info == SnapshotInfo(JOB.hash, 640, [[0, 640]], 40)
    for name in ARRAYS:
        np.testing.assert_array_equal(found[name], arrays[name])


@pytest.mark.parametrize("seed", range(6))
def test_no_damage_is_read_as_if_there_were_none(tmp_path: Path, seed: int) -> None:
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
    """What reading it comes to."""
    try:
        info, found = read_snapshot(folder, JOB)
    except JobError as error:
        return (
            "damaged" if "is damaged" in error.message else "none" if "is no snapshot" in error.message else str(error)
        )
    same = info.samples == 640 and all(np.array_equal(found[name], arrays[name]) for name in ARRAYS)
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


def test_the_file_that_is_damaged_is_named_and_the_one_before_it_is_offered(tmp_path: Path) -> None:
    first, _ = write(tmp_path, 64, seed=1), write(tmp_path, 128, seed=2)
    earlier, latest = snapshots(tmp_path)
    data = bytearray((latest / "weights.npy").read_bytes())
    data[-1] ^= 1
    (latest / "weights.npy").write_bytes(data)
    with pytest.raises(JobError, match=r"snapshot-000002 is damaged: weights.npy has changed since") as caught:
        read_snapshot(tmp_path, JOB)
    assert f"resume {earlier}" in caught.value.remedy
    info, found = read_snapshot(earlier, JOB)
    assert info.samples == 64
    np.testing.assert_array_equal(found["weights"], first["weights"])
    check_folder(tmp_path, earlier)  # the run may go on in the same folder
    assert resumed_ranges(earlier, JOB, 640) == [(0, 64)]


def test_the_first_format_is_read_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    arrays = write(tmp_path)
    meta = snapshots(tmp_path)[0] / "snapshot.json"
    told = json.loads(meta.read_text())
    meta.write_text(json.dumps({name: told[name] for name in SnapshotInfo._fields}))
    with caplog.at_level(logging.WARNING):
        _, found = read_snapshot(tmp_path, JOB)
    np.testing.assert_array_equal(found["weights"], arrays["weights"])
    assert [record.message for record in caplog.records if "has no checksums" in record.message]
    assert len(caplog.records) == 1
    np.save(meta.with_name("state.npy"), arrays["state"][1:])
    with pytest.raises(JobError, match=r"state.npy has 39 rows where 40 were written"):
        read_snapshot(tmp_path, JOB)


def test_a_version_that_was_changed_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    meta = snapshots(tmp_path)[0] / "snapshot.json"
    meta.write_text(meta.read_text().replace('"version": 2', '"version": 3'))
    with pytest.raises(JobError, match=r"snapshot.json has changed"):
        read_snapshot(tmp_path, JOB)


def test_a_folder_is_of_one_run_at_a_time(tmp_path: Path) -> None:
    other = "import sys; from sizewright.training.snapshot_files import held\nwith held(sys.argv[1]): pass"
    command = [sys.executable, "-c", other, str(tmp_path / "new" / "folder")]
    with held(tmp_path / "new" / "folder"):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "Another run keeps its snapshots in" in done.stderr
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match="cannot be kept in"), held(tmp_path / "file" / "folder"):
        pass
