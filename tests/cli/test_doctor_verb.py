"""`sizewright doctor` tries what a machine can do, and says what each lack means."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sizewright.api import checking
from sizewright.errors import EngineError
from sizewright.spec.diagnosis import Diagnosis
from sizewright.training.host import cgroups


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the other checks are looked at: starting Ray takes seconds."""

    def refused(address: str | None) -> checking.Check:
        return checking.Check(name="Ray", level="ok", found="not looked at")

    monkeypatch.setattr(checking, "_ray", refused)


def by_name(told: Diagnosis) -> dict[str, Any]:
    return {check.name: check for check in told.checks}


def test_a_machine_that_measures_is_found_fit(call: Callable[..., Any], store: str) -> None:
    done = call("doctor", "--store", store, "--output", "json")
    assert done.code == 0
    found = by_name(Diagnosis.model_validate(json.loads(done.out)))
    assert found["Ray"].level == "ok"
    assert "started here with" in found["Ray"].found
    assert found["store"].found.endswith("8 trials")
    assert found["ports"].level == found["extra profile"].level == "ok"
    assert all(check.means for check in found.values() if check.level != "ok")


@pytest.mark.parametrize(("cores", "level"), [(0.0, "ok"), (64.0, "lacking")])
def test_busy_host_is_found(monkeypatch: pytest.MonkeyPatch, cores: float, level: str) -> None:
    began = time.monotonic()
    monkeypatch.setattr(checking, "others_busy_s", lambda: cores * (time.monotonic() - began))
    found = checking._other_work()
    assert found.level == level
    assert found.found.startswith(f"uses {cores:.1f} of this host's")
    assert bool(found.remedy) == (level != "ok")


def test_its_control_groups_are_gone_afterwards(without_ray: None) -> None:
    found = by_name(checking.doctor())["control groups"]
    tree = cgroups.find_cgroups("sizewright-left")
    if tree is None:
        assert found.level == "lacking"
        assert "whole cores" in found.means
        return
    tree.remove()
    assert found.level == "ok"
    left = [name for folder in tree.folders.values() for name in os.listdir(folder.parent) if "doctor" in name]
    assert left == []


def test_what_is_lacking_is_told_with_what_it_means(
    call: Callable[..., Any], without_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "find_cgroups", lambda name: None)
    monkeypatch.setattr(checking, "host_cores", lambda: 1.0)
    monkeypatch.setattr(checking, "available_memory_bytes", lambda: 1 << 20)
    monkeypatch.setattr(checking, "_SHARED_MEMORY", Path("/nowhere"))
    monkeypatch.setattr(checking.importlib.util, "find_spec", lambda name: None)
    done = call("doctor")
    assert done.code == 0
    for words in (
        "whole cores",
        "share a core",
        "fraction of their size",
        "no /dev/shm",
        "sizewright[plots]",
        "no mlflow",
    ):
        assert words in done.out
    assert "Sizewright works here" in done.out


def test_what_is_broken_ends_with_1(
    call: Callable[..., Any], without_ray: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(*_: object, **__: object) -> socket.socket:
        raise OSError("not permitted")

    monkeypatch.setattr(checking.socket, "create_server", refused)
    (tmp_path / "text.db").write_text("this is no database, and longer than a header of one would have to be" * 9)
    done = call("doctor", "--store", tmp_path / "text.db")
    assert done.code == 1
    assert "Workers cannot reach PS" in done.out
    assert "Measurements cannot be stored" in done.out
    assert "cannot work here" in done.out


def test_a_store_that_cannot_be_made_is_broken(without_ray: None) -> None:
    found = by_name(checking.doctor(store="/proc/nowhere/trials.db"))["store"]
    assert found.level == "broken"
    assert "another file as the store" in found.remedy


def test_a_ray_that_does_not_answer_is_lacking(call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: object) -> None:
        raise EngineError("No Ray answers at 127.0.0.1:1.", "Start one.")

    monkeypatch.setattr("sizewright.training.ray.engine.Engine", refused)
    done = call("doctor", "--address", "127.0.0.1:1")
    assert done.code == 0
    assert "No Ray answers" in done.out
