"""The remains of killed runs are removed; those of running ones and of other users stay."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sizewright.errors import EngineError
from sizewright.training.host.cgroups import CgroupTree, find_cgroups, own_trees
from sizewright.training.host.leftovers import group_name, hold, remove_leftovers, temporary_folder
from sizewright.training.ray.node_agent import NodeAgent

SESSION = """
import sys, time
from tests.helpers.training_parts import small_job
from sizewright.spec import Allocation
from sizewright.training.session import Session
with Session(small_job()) as session:
    session.scale(Allocation.of(1, 1, 0.5, 0.5, 32))
    print("trains", flush=True)
    time.sleep(300)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def ended() -> int:
    """The number of a process that is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@contextlib.contextmanager
def group_of(name: str) -> Iterator[CgroupTree]:
    tree = find_cgroups(name)
    if tree is None:
        pytest.skip("control groups cannot be created on this host")
    try:
        yield tree
    finally:
        tree.remove(grace_s=0.0, timeout_s=1.0)


def test_folders_of_ended_processes_are_removed(temporary: Path, ended: int) -> None:
    stale = temporary / f"szw-{ended}-abc"
    (stale / "ray").mkdir(parents=True)
    others = [temporary / name for name in ("szw-abc", f"other-{ended}-abc", "szw-")]
    for path in others:
        path.mkdir()
    file = temporary / f"szw-{ended}-file"
    file.touch()
    (temporary / f"szw-{ended}-link").symlink_to(others[0])
    with temporary_folder() as mine:
        remove_leftovers()
        assert mine.is_dir()
    assert not mine.exists()
    assert not stale.exists()
    assert all(path.is_dir() for path in others)
    assert file.exists()
    assert (temporary / f"szw-{ended}-link").is_symlink()


def test_reused_process_id_does_not_keep_a_folder(temporary: Path) -> None:
    stale = temporary / f"szw-{os.getpid()}-abc"
    stale.mkdir()
    before = psutil.Process().create_time() - 60
    os.utime(stale, (before, before))
    remove_leftovers()
    assert not stale.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes folders of others")
def test_folders_of_other_users_are_kept(temporary: Path, ended: int) -> None:
    theirs = temporary / f"szw-{ended}-abc"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    remove_leftovers()
    assert theirs.exists()


def test_folders_are_private(temporary: Path) -> None:
    with temporary_folder() as mine:
        assert mine.stat().st_mode & 0o077 == 0


def test_folder_of_a_live_process_in_another_namespace_is_kept(
    temporary: Path, ended: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process id is the one of an ended process here."""
    monkeypatch.setattr(os, "getpid", lambda: ended)
    with temporary_folder() as folder:
        remove_leftovers()
        assert folder.is_dir()


def test_folder_older_than_its_live_process_is_kept(temporary: Path) -> None:
    """The clock was set forward after the process had started."""
    with temporary_folder() as folder:
        before = psutil.Process().create_time() - 60
        os.utime(folder, (before, before))
        remove_leftovers()
        assert folder.is_dir()


@pytest.mark.skipif(not shutil.which("unshare") or os.getuid() != 0, reason="only root makes namespaces")
def test_sweep_from_another_namespace_keeps_folders_of_live_processes(temporary: Path) -> None:
    sweep = "from sizewright.training.host.leftovers import remove_leftovers; remove_leftovers()"
    with temporary_folder() as folder:
        command = ["unshare", "-pf", "--mount-proc", sys.executable, "-c", sweep]
        done = subprocess.run(command, env=os.environ | {"TMPDIR": str(temporary)}, capture_output=True, text=True)
        if "unshare:" in done.stderr:
            pytest.skip(done.stderr)
        assert (done.returncode, done.stderr) == (0, "")
        assert folder.is_dir()


def test_folder_that_others_could_replace_is_refused(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary.chmod(0o777)
    with pytest.raises(EngineError, match=f"Other users can replace the folders in {temporary}.*TMPDIR"):
        temporary_folder().__enter__()
    assert list(temporary.iterdir()) == []


def test_control_groups_of_ended_processes_are_removed_with_their_processes(ended: int) -> None:
    with group_of(f"sizewright-test.{ended}") as stale, group_of(group_name("sizewright-test")) as mine:
        replica = subprocess.Popen(["sleep", "300"])
        stale.child("worker-0").join(replica.pid)
        remove_leftovers()
        assert replica.wait(5) == -signal.SIGKILL
        assert not any(folder.exists() for folder in stale.folders.values())
        assert all(folder.exists() for folder in mine.folders.values())


def test_control_groups_of_live_processes_in_other_namespaces_are_kept(ended: int) -> None:
    with group_of(f"sizewright-test.{ended}") as group:
        with hold(group.folders.values()):
            remove_leftovers()
            assert all(folder.exists() for folder in group.folders.values())
        remove_leftovers()
        assert not any(folder.exists() for folder in group.folders.values())


def test_agent_holds_its_control_groups(ended: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sizewright.training.host.leftovers.os.getpid", lambda: ended)
    agent = NodeAgent("sizewright-test")
    monkeypatch.undo()
    if agent.tree is None:
        pytest.skip("control groups cannot be created on this host")
    remove_leftovers()
    folders = list(agent.tree.folders.values())
    assert all(folder.exists() for folder in folders)
    agent.close()
    assert not any(folder.exists() for folder in folders)


@pytest.mark.long
def test_next_run_removes_the_remains_of_a_killed_driver() -> None:
    path = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-c", SESSION], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path}, text=True
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "trains\n"
        driver.kill()
    remains = leavings(driver.pid)
    assert any(path.name.startswith("szw-") for path in remains)
    end = time.monotonic() + 60
    while leavings(driver.pid) and time.monotonic() < end:  # Ray's own processes end a little later
        remove_leftovers()
        time.sleep(0.5)
    assert leavings(driver.pid) == []


def leavings(pid: int) -> list[Path]:
    groups = [path for tree in own_trees() for f in tree.folders.values() for path in f.glob(f"sizewright-*.{pid}")]
    return [*Path(tempfile.gettempdir()).glob(f"szw-{pid}-*"), *groups]
