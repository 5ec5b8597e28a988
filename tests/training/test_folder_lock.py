"""A session takes the lock of its folder for snapshots when it is made, before Ray starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from sizewright.errors import EngineError
from sizewright.training import session
from sizewright.training.ps.snapshot_files import lock_folder
from sizewright.training.ray.engine import import_ray
from sizewright.training.session import Session
from tests.helpers.training_parts import small_job


class StartedError(Exception):
    """Ray would start now."""


@pytest.fixture
def refused_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object, **__: object) -> None:
        raise StartedError

    monkeypatch.setattr(session, "NodeAgent", start)
    monkeypatch.setattr(session, "Engine", start)


@pytest.mark.usefixtures("refused_start")
def test_folder_of_another_session_is_refused_before_ray_starts(tmp_path: Path) -> None:
    with lock_folder(tmp_path):
        with pytest.raises(EngineError, match=r"Another run writes its snapshots to .*Choose another folder"):
            Session(small_job(), samples=1000, folder=tmp_path)
        with pytest.raises(EngineError, match="Another run writes its snapshots"), lock_folder(tmp_path):
            pass
    assert not import_ray().is_initialized()


@pytest.mark.usefixtures("refused_start")
def test_folder_is_locked_while_ray_starts_and_free_after_a_failed_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object, **__: object) -> None:
        with pytest.raises(EngineError, match="Another run writes its snapshots"), lock_folder(tmp_path):
            pass
        raise StartedError

    monkeypatch.setattr(session, "NodeAgent", start)
    with pytest.raises(StartedError):
        Session(small_job(), samples=1000, folder=tmp_path)
    with lock_folder(tmp_path):
        pass
