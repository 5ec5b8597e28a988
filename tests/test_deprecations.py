"""Deprecated names still work and warn: shown on a small package with an old name, option and field."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sizewright.errors import SizewrightDeprecationWarning
from sizewright.lazy_exports import warn_deprecated

PACKAGE = """
from __future__ import annotations

from typing import Any

from pydantic import model_validator
from typing_extensions import deprecated

from sizewright.lazy_exports import lazy_exports, warn_deprecated
from sizewright.errors import SizewrightDeprecationWarning
from sizewright.spec._base import Record

_HOMES = {"parse_bytes": "sizewright.spec.units"}
__all__ = ["Box", "measure", "parse_bytes", "weigh"]
OLD = {"read_bytes": ("0.3", "sizewright.spec.units.parse_bytes")}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES, deprecated=OLD)


def measure(seconds_s: float = 1.0, *, seconds: float | None = None) -> float:
    if seconds is not None:
        warn_deprecated("measure(seconds=...)", since="0.3", instead="seconds_s")
    return seconds_s if seconds is None else seconds


@deprecated(
    "weigh is deprecated since 0.3 and will be removed in 0.5; use measure.", category=SizewrightDeprecationWarning
)
def weigh() -> float:
    return measure()


class Box(Record):
    memory_bytes: int

    @model_validator(mode="before")
    @classmethod
    def _old_keys(cls, data: dict[str, Any]) -> dict[str, Any]:
        if "memory_mb" in data:
            warn_deprecated("memory_mb of a box", since="0.3", instead="memory_bytes")
            data = {"memory_bytes": data["memory_mb"] * 1024**2} | {k: v for k, v in data.items() if k != "memory_mb"}
        return data
"""

OLD_NAME = (
    r"going_out.read_bytes is deprecated since 0.3 and will be removed in 0.5; use sizewright.spec.units.parse_bytes\."
)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "going_out.py").write_text(PACKAGE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "going_out", raising=False)
    return importlib.import_module("going_out")


def test_old_name_is_the_new_object(package: Any) -> None:
    with pytest.warns(SizewrightDeprecationWarning, match=OLD_NAME) as caught:
        assert package.read_bytes("4Ki") == 4096
    assert [Path(each.filename).name for each in caught] == [Path(__file__).name]


def test_an_old_name_can_be_imported_but_is_not_listed(package: Any) -> None:
    with pytest.warns(SizewrightDeprecationWarning, match=OLD_NAME):
        exec("from going_out import read_bytes")
    assert dir(package) == ["Box", "measure", "parse_bytes", "weigh"]


def test_new_names_do_not_warn(package: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert package.parse_bytes("4Ki") == 4096
        assert package.measure(2.0) == 2.0
        assert package.Box(memory_bytes=1).memory_bytes == 1
        with pytest.raises(AttributeError, match="module 'going_out' has no attribute 'write_bytes'"):
            package.write_bytes  # noqa: B018


def test_an_old_option_works_on(package: Any) -> None:
    with pytest.warns(SizewrightDeprecationWarning, match=r"measure\(seconds=...\) is .* 0.5; use seconds_s") as caught:
        assert package.measure(seconds=3.0) == 3.0
    assert Path(caught[0].filename).name == Path(__file__).name


def test_an_old_function_works_on(package: Any) -> None:
    with pytest.warns(SizewrightDeprecationWarning, match="use measure"):
        assert package.weigh() == 1.0


def test_an_old_field_of_a_file_is_read(package: Any) -> None:
    with pytest.warns(SizewrightDeprecationWarning, match="memory_mb of a box is .* use memory_bytes"):
        box = package.Box.model_validate({"memory_mb": 2})
    assert box.model_dump() == {"memory_bytes": 2 * 1024**2}


def test_removal_is_two_minor_releases_later() -> None:
    with pytest.warns(SizewrightDeprecationWarning, match="since 1.9 and will be removed in 1.11; use y"):
        warn_deprecated("x", since="1.9", instead="y")
    with pytest.raises(ValueError, match="unpack"):
        warn_deprecated("x", since="1", instead="y")


def test_warning_is_shown_unless_filtered(package: Any, tmp_path: Path) -> None:
    """Also in code that is imported, where Python hides a DeprecationWarning."""
    (tmp_path / "pipeline.py").write_text("import going_out\nprint(going_out.read_bytes('4Ki'))\n", encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    completed = subprocess.run(
        [sys.executable, "-c", "import pipeline"], capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
    assert completed.stdout == "4096\n"
    assert "pipeline.py:2: SizewrightDeprecationWarning: going_out.read_bytes is deprecated" in completed.stderr
