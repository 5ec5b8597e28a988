"""`sizewright doctor` checks what a machine can do, and explains each problem."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sizewright.api import checking
from sizewright.errors import EngineError
from sizewright.spec.diagnosis import Diagnosis
from sizewright.training.host import cgroups
from tests.helpers.stand_in_nvml import StandInGpu, StandInNvml


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the check of Ray, which takes seconds, where the test is about other checks."""

    def refused(address: str | None) -> checking.Check:
        return checking.Check(name="Ray", level="ok", found="not looked at")

    monkeypatch.setattr(checking, "_ray", refused)


def by_name(diagnosis: Diagnosis) -> dict[str, Any]:
    return {check.name: check for check in diagnosis.checks}


def test_doctor_finds_a_measuring_machine_fit(call: Callable[..., Any], store: str) -> None:
    result = call("doctor", "--store", store, "--output", "json")
    assert result.code == 0
    checks = by_name(Diagnosis.model_validate(json.loads(result.out)))
    assert checks["Ray"].level == "ok"
    assert "started here with" in checks["Ray"].found
    assert checks["store"].found.endswith("8 trials")
    assert checks["ports"].level == checks["extra profile"].level == "ok"
    assert all(check.means for check in checks.values() if check.level != "ok")


@pytest.mark.parametrize(("cores", "level"), [(0.0, "ok"), (64.0, "lacking")])
def test_other_work_on_the_host_is_reported(monkeypatch: pytest.MonkeyPatch, cores: float, level: str) -> None:
    began = time.monotonic()
    monkeypatch.setattr(checking, "others_busy_s", lambda: cores * (time.monotonic() - began))
    check = checking._other_work()
    assert check.level == level
    assert check.found.startswith(f"uses {cores:.1f} of this host's")
    assert bool(check.remedy) == (level != "ok")


def test_doctor_removes_its_control_groups(without_ray: None) -> None:
    check = by_name(checking.doctor())["control groups"]
    tree = cgroups.find_cgroups("sizewright-left")
    if tree is None:
        assert check.level == "lacking"
        assert "whole cores" in check.means
        return
    tree.remove()
    assert check.level == "ok"
    leftovers = [name for folder in tree.folders.values() for name in os.listdir(folder.parent) if "doctor" in name]
    assert leftovers == []


def test_missing_features_are_listed_with_their_consequences(
    call: Callable[..., Any], without_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "find_cgroups", lambda name: None)
    monkeypatch.setattr(checking, "host_cores", lambda: 1.0)
    monkeypatch.setattr(checking, "available_memory_bytes", lambda: 1 << 20)
    monkeypatch.setattr(checking, "_SHARED_MEMORY", Path("/nowhere"))
    monkeypatch.setattr(checking.importlib.util, "find_spec", lambda name: None)
    result = call("doctor")
    assert result.code == 0
    for phrase in (
        "whole cores",
        "share a core",
        "fraction of their size",
        "no /dev/shm",
        "sizewright[plots]",
        "no mlflow",
    ):
        assert phrase in result.out
    assert "Sizewright works here" in result.out


def test_broken_features_exit_1(
    call: Callable[..., Any], without_ray: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(*_: object, **__: object) -> socket.socket:
        raise OSError("not permitted")

    monkeypatch.setattr(checking.socket, "create_server", refused)
    (tmp_path / "text.db").write_text("this is no database, and longer than a header of one would have to be" * 9)
    result = call("doctor", "--store", tmp_path / "text.db")
    assert result.code == 1
    assert "Workers cannot reach PS" in result.out
    assert "Measurements cannot be stored" in result.out
    assert "cannot work here" in result.out


def test_store_that_cannot_be_created_is_broken(without_ray: None) -> None:
    check = by_name(checking.doctor(store="/proc/nowhere/trials.db"))["store"]
    assert check.level == "broken"
    assert "another file as the store" in check.remedy


def test_ray_that_does_not_answer_is_reported(call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: object) -> None:
        raise EngineError("No Ray answers at 127.0.0.1:1.", "Start one.")

    monkeypatch.setattr("sizewright.training.ray.engine.Engine", refused)
    result = call("doctor", "--address", "127.0.0.1:1")
    assert result.code == 0
    assert "No Ray answers" in result.out


@pytest.mark.parametrize(("answers", "level"), [(True, "ok"), (False, "lacking")])
def test_gpu_without_nvml_is_reported(monkeypatch: pytest.MonkeyPatch, answers: bool, level: str) -> None:
    cuda = SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 2,
        get_device_name=lambda _: "NVIDIA H100",
        get_device_properties=lambda _: SimpleNamespace(total_memory=80 << 30),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, __spec__=ModuleSpec("torch", None)))
    monkeypatch.setitem(sys.modules, "pynvml", StandInNvml(StandInGpu(), driver=answers))
    check = checking._gpu()
    assert check.level == level
    assert check.found.startswith("2 × NVIDIA H100 with 80.0 GiB")
    if not answers:
        assert check.found.endswith("and no answer of NVML")
        assert check.means == "Trials on GPUs do not record device memory, utilization and power."
        assert check.remedy.startswith("Run: pip install 'sizewright[gpu]'")
