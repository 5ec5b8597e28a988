"""Folders that other users could replace or write to are refused."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from sizewright.errors import EngineError
from sizewright.training.host.private_folders import _trusted_owners, check_import_folder, check_parents


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o773])
def test_parent_that_others_can_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    below = tmp_path / "above" / "below"
    below.mkdir(parents=True)
    check_parents(below)
    below.parent.chmod(mode)
    with pytest.raises(EngineError, match=rf"Other users can replace the folders in {below.parent}, .*Set TMPDIR"):
        check_parents(below)
    with monkeypatch.context() as patched:
        patched.setenv("SIZEWRIGHT_SOLE_USER", "1")
        check_parents(below)
    below.parent.chmod(mode | 0o1000)  # with the sticky bit only owners rename
    check_parents(below)


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes folders of others")
def test_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    with pytest.raises(EngineError, match="Other users can replace"):
        check_parents(tmp_path / "theirs")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "theirs")])
    with pytest.raises(EngineError, match="from which replicas load code"):
        check_import_folder()


@pytest.mark.parametrize("mode", [0o1777, 0o770, 0o702])
def test_import_folder_that_others_can_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.setattr(sys, "path", ["", "/"])
    monkeypatch.chdir(tmp_path)
    check_import_folder()
    tmp_path.chmod(mode)
    with pytest.raises(EngineError, match=f"Other users can write to {tmp_path}"):
        check_import_folder()


def test_unknown_users_are_trusted_only_where_root_is_one_of_them(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "sys" / "kernel").mkdir(parents=True)
    (tmp_path / "sys" / "kernel" / "overflowuid").write_text("65534\n")
    for uid_map, extra in (("0 0 4294967295\n", set()), ("1000 1000 1\n", {65534})):
        (tmp_path / "self" / "uid_map").write_text(uid_map)
        assert _trusted_owners(tmp_path) == {0, os.getuid()} | extra
    assert _trusted_owners(tmp_path / "none") == {0, os.getuid()}
