"""Snapshots at an interval, with stand-ins for the servers and the store."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from sizewright.errors import EngineError, ReplicaDiedError
from sizewright.training.ps.snapshots import Snapshots


def snapshots_of(monkeypatch: pytest.MonkeyPatch, failures: int) -> tuple[Snapshots, list[int]]:
    group = SimpleNamespace(job=None, servers=SimpleNamespace(handover=contextlib.nullcontext()))
    snapshots = Snapshots(cast(Any, group), b"", cast(Any, None), interval_s=0.01, folder=None)
    attempts: list[int] = []

    def take() -> None:
        attempts.append(len(attempts))
        if len(attempts) <= failures:
            raise EngineError("The store cannot be reached.")

    monkeypatch.setattr(snapshots, "take", take)
    return snapshots, attempts


@pytest.mark.parametrize(("failures", "faults"), [(1, 0), (3, 2)])
def test_only_snapshots_that_fail_again_are_reported(
    monkeypatch: pytest.MonkeyPatch, failures: int, faults: int
) -> None:
    """One may fail because a server has died, which recovery replaces."""
    snapshots, attempts = snapshots_of(monkeypatch, failures)
    snapshots.start(lambda: True)
    while len(attempts) < failures + 2:
        time.sleep(0.01)
    snapshots.stop()
    assert snapshots.faults == faults
    assert ("cannot be reached" in snapshots.fault) is bool(faults)


def test_store_that_fails_to_start_is_not_kept() -> None:
    """Otherwise every later snapshot would be sent to no address."""

    def fail(_: object) -> None:
        raise EngineError("The store does not answer.")

    snapshots = Snapshots(cast(Any, SimpleNamespace(job=None)), b"", cast(Any, None), interval_s=None, folder=None)
    store = SimpleNamespace(
        **{name: SimpleNamespace(remote=lambda: None) for name in ("address", "pid", "node")},
    )
    actor_class = SimpleNamespace(remote=lambda *_: store)
    ray = SimpleNamespace(remote=lambda **_: lambda _: actor_class)
    engine = SimpleNamespace(local=True, ip=lambda: "127.0.0.1")
    snapshots._replica_group = cast(Any, SimpleNamespace(pool=SimpleNamespace(engine=engine, ray=ray, get=fail)))
    with pytest.raises(EngineError):
        snapshots.open(np.zeros(1, np.float32))
    assert not snapshots.on


def test_store_is_told_the_last_good_snapshot_and_starts_again_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The run resumes the first snapshot in its folder, since the second is damaged."""
    for number in (1, 2):
        (tmp_path / f"snapshot-{number:06d}").mkdir()
        (tmp_path / f"snapshot-{number:06d}" / "snapshot.json").touch()
    loaded: list[str] = []
    kept: list[Path | None] = []

    def save(folder: str, lost: int, repeated: int, previous: Path | None) -> None:
        kept.append(previous)
        (Path(folder) / f"snapshot-{len(kept) + 2:06d}").mkdir(parents=True)

    def get(refs: list[object]) -> list[object]:
        if refs == ["pid"]:
            raise ReplicaDiedError("It has ended.")
        return refs

    store = SimpleNamespace(
        load=SimpleNamespace(remote=loaded.append), save=SimpleNamespace(remote=save),
        pid=SimpleNamespace(remote=lambda: "pid"),
    )  # fmt: skip
    group = SimpleNamespace(job=None, pool=SimpleNamespace(get=get, get_all=lambda refs, _: refs))
    account = SimpleNamespace(updates_lost=0, samples_repeated=0)
    held = Snapshots(cast(Any, group), b"", cast(Any, account), interval_s=None, folder=str(tmp_path))
    held._store = store
    monkeypatch.setattr(held, "open", lambda _: setattr(held, "_store", store))
    monkeypatch.setattr(held, "_from_a_worker", lambda: None)
    held.load(str(tmp_path / "snapshot-000001"))
    held._restart_dead_store()
    held.save(str(tmp_path / "elsewhere"))
    held.save(str(tmp_path))
    held.save(str(tmp_path))
    assert loaded == [str(tmp_path / "snapshot-000001")] * 2
    assert kept == [None, tmp_path / "snapshot-000001", tmp_path / "snapshot-000004"]
