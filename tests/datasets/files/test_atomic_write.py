from __future__ import annotations

import os
from pathlib import Path

import pytest

from sizewright.datasets.files.atomic_write import atomic_file, write_text_atomically


def test_missing_parent_folders_are_created(tmp_path: Path) -> None:
    write_text_atomically(tmp_path / "a" / "b" / "c.txt", "text")
    assert (tmp_path / "a" / "b" / "c.txt").read_text() == "text"
    assert len(list((tmp_path / "a" / "b").iterdir())) == 1


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt(), ValueError("x")])
def test_interrupted_write_keeps_the_old_file(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "c.txt"
    path.write_text("old")

    def write() -> None:
        with atomic_file(path) as file:
            file.write_text("ne")
            assert path.read_text() == "old"
            raise error

    with pytest.raises(type(error)):
        write()
    assert [each.name for each in tmp_path.iterdir()] == ["c.txt"]
    assert path.read_text() == "old"


def test_links_modes_and_devices_are_preserved(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "real.txt").chmod(0o640)
    (tmp_path / "link.txt").symlink_to("real.txt")
    write_text_atomically(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"
    assert (tmp_path / "real.txt").stat().st_mode & 0o777 == 0o640
    write_text_atomically("/dev/null", "nothing")
    assert not os.path.isfile("/dev/null")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        write_text_atomically(tmp_path, "text")
