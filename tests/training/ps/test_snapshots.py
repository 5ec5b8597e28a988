"""Snapshots at an interval, with stand-ins for the servers and the store."""

from __future__ import annotations

import contextlib
import time
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from sizewright.errors import EngineError
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
