from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sizewright.errors import LimitError
from sizewright.training.host.cgroups import PERIOD_US, CgroupTree, _own_v1, _own_v2, find_cgroups
from tests.helpers.training_parts import writable_group

BUSY = "while True: pass"
WAITING = "import sys; sys.stdin.read()"
HUNGRY = "import sys; sys.stdin.readline(); block = b'x' * (256 << 20); print(len(block))"


@pytest.fixture
def group() -> Iterator[CgroupTree]:
    tree = writable_group("cgroups")
    yield tree.child("leaf")  # of the tree itself the kernel may still know the larger quota of a child just removed
    tree.remove(grace_s=0.0)


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for child in started:
        child.kill()
        child.communicate()


def start(children: list[subprocess.Popen[str]], code: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-S", "-c", code]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    children.append(child)
    return child


def quota_file(tree: CgroupTree) -> str:
    if tree.version == 2:
        return (tree.folders["cpu"] / "cpu.max").read_text().strip()
    return (tree.folders["cpu"] / "cpu.cfs_quota_us").read_text().strip()


def test_busy_process_gets_its_share(group: CgroupTree, children: list[subprocess.Popen[str]]) -> None:
    group.set_cpu(0.2)
    group.join(start(children, BUSY).pid)
    used, began = group.cpu_used_s(), time.monotonic()
    time.sleep(1.5)
    share = (group.cpu_used_s() - used) / (time.monotonic() - began)
    assert 0.05 < share < 0.3
    assert group.throttled_s() > 0


def test_quota_is_written_and_can_be_lifted(group: CgroupTree) -> None:
    group.set_cpu(1.25)
    assert quota_file(group).split()[0] == str(round(1.25 * PERIOD_US))
    group.set_cpu(None)
    assert quota_file(group).split()[0] in ("-1", "max")


@pytest.mark.parametrize("cores", [0.0, 0.05, 0.0999])
def test_quota_below_the_minimum_is_refused(group: CgroupTree, cores: float) -> None:
    group.set_cpu(0.5)
    before = quota_file(group)
    with pytest.raises(LimitError, match="below the minimum"):
        group.set_cpu(cores)
    assert quota_file(group) == before
    group.set_cpu(0.1)


def test_process_beyond_its_memory_is_killed_and_counted(
    group: CgroupTree, children: list[subprocess.Popen[str]]
) -> None:
    group.set_memory(64 << 20)
    child = start(children, HUNGRY)
    group.join(child.pid)
    assert group.oom_kills() == 0
    stdout, _ = child.communicate("go\n", timeout=60)
    assert stdout == ""
    assert child.returncode == -9
    assert group.oom_kills() == 1


def test_process_within_its_memory_survives_and_its_peak_is_read(
    group: CgroupTree, children: list[subprocess.Popen[str]]
) -> None:
    group.set_memory(1 << 30)
    child = start(children, HUNGRY)
    group.join(child.pid)
    stdout, _ = child.communicate("go\n", timeout=60)
    assert stdout == f"{256 << 20}\n"
    assert group.oom_kills() == 0
    if group.memory_peak_bytes() == 0:
        pytest.skip("this kernel reports no peak")
    assert 256 << 20 <= group.memory_peak_bytes() < 320 << 20
    if group.version == 1:  # v2 can reset it from Linux 6.12 on
        group.reset_memory_peak()
        assert group.memory_peak_bytes() < 64 << 20


def test_memory_limit_is_rounded_to_pages_and_can_be_lifted(group: CgroupTree) -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    name = "memory.max" if group.version == 2 else "memory.limit_in_bytes"
    file = group.folders["memory"] / name
    group.set_memory(100 * page + 17)
    assert int(file.read_text()) == 100 * page
    for none in (None, 0):
        group.set_memory(none)
        text = file.read_text().strip()
        assert text == "max" or int(text) > 1 << 50


def test_pids_are_those_of_joined_processes(group: CgroupTree, children: list[subprocess.Popen[str]]) -> None:
    inner = group.child("inner")
    joined = [start(children, WAITING).pid for _ in range(2)]
    start(children, WAITING)
    assert inner.pids() == set()
    for pid in joined:
        inner.join(pid)
    assert inner.pids() == set(joined)


def test_remove_ends_processes_and_leaves_nothing(children: list[subprocess.Popen[str]]) -> None:
    tree = writable_group("removed")
    inner = tree.child("one").child("deep")
    running = [start(children, WAITING) for _ in range(3)]
    for child in running:
        inner.join(child.pid)
    tree.remove(grace_s=0.0)
    assert [child.wait(10) for child in running] == [-9] * 3
    assert not any(folder.exists() for folder in (*tree.folders.values(), *inner.folders.values()))
    tree.remove()  # twice is fine


def test_remove_waits_for_processes_that_are_ending(children: list[subprocess.Popen[str]]) -> None:
    tree = writable_group("graceful")
    child = start(children, "import time; time.sleep(0.5)")
    tree.join(child.pid)
    tree.remove(grace_s=30.0)
    assert child.wait(10) == 0
    assert not any(folder.exists() for folder in tree.folders.values())


def test_child_group_has_its_own_limit(group: CgroupTree) -> None:
    one, two = group.child("one"), group.child("two")
    one.set_cpu(0.3)
    two.set_cpu(0.6)
    assert quota_file(one).split()[0] == str(round(0.3 * PERIOD_US))
    assert quota_file(group.child("one")) == quota_file(one)
    assert quota_file(two).split()[0] == str(round(0.6 * PERIOD_US))


def test_search_for_groups_leaves_no_probe() -> None:
    tree = writable_group("found")
    assert not any(list(folder.glob("*/")) for folder in tree.folders.values())
    assert find_cgroups(tree.folders["cpu"].name) == tree
    tree.remove(grace_s=0.0)


# Version 2 needs a kernel that mounts it with these controllers; its files are plain text and are laid out here.


@pytest.fixture
def version2(tmp_path: Path) -> CgroupTree:
    root = tmp_path / "cgroup"
    caller_group = root / "user.slice" / "session.scope"
    caller_group.mkdir(parents=True)
    (caller_group.parent / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (tmp_path / "proc").write_text("0::/user.slice/session.scope\n")
    tree = _own_v2(root, tmp_path / "proc")
    assert tree is not None
    return tree


def test_version_2_group_is_a_sibling_of_the_callers(version2: CgroupTree) -> None:
    assert version2.version == 2
    assert {folder.name for folder in version2.folders.values()} == {"user.slice"}
    child = version2.child("session")
    assert (version2.folders["cpu"] / "cgroup.subtree_control").read_text() == "+cpu +memory"
    assert {folder.parent.name for folder in child.folders.values()} == {"user.slice"}
    assert child.folders["cpu"].is_dir()


def test_version_2_writes_its_own_files(version2: CgroupTree) -> None:
    child = version2.child("worker-0")
    folder = child.folders["cpu"]
    child.set_cpu(0.5)
    assert (folder / "cpu.max").read_text() == "10000 20000"
    child.set_cpu(None)
    assert (folder / "cpu.max").read_text() == "max 20000"
    child.set_memory((1 << 20) + 5)
    assert (folder / "memory.max").read_text() == str(1 << 20)
    child.set_memory(1)  # never none by rounding
    assert (folder / "memory.max").read_text() == str(os.sysconf("SC_PAGE_SIZE"))
    child.set_memory(None)
    assert (folder / "memory.max").read_text() == "max"
    child.join(4321)
    assert child.pids() == {4321}


def test_version_2_reads_its_own_files(version2: CgroupTree) -> None:
    child = version2.child("worker-0")
    folder = child.folders["cpu"]
    assert child.oom_kills() == 0  # older kernels have no such file
    (folder / "cpu.stat").write_text("usage_usec 2500000\nnr_periods 3\nthrottled_usec 750000\n")
    (folder / "memory.events").write_text("low 0\noom 4\noom_kill 2\n")
    assert child.cpu_used_s() == 2.5
    assert child.throttled_s() == 0.75
    assert child.oom_kills() == 2
    (folder / "memory.peak").write_text("123456\n")
    assert child.memory_peak_bytes() == 0  # it cannot be reset, so the peak of the process counts


@pytest.mark.parametrize("controllers", ["cpu pids", "memory", ""])
def test_version_2_without_both_controllers_is_not_used(tmp_path: Path, controllers: str) -> None:
    (tmp_path / "scope").mkdir()
    (tmp_path / "cgroup.controllers").write_text(controllers)
    (tmp_path / "proc").write_text("0::/scope\n")
    assert _own_v2(tmp_path, tmp_path / "proc") is None


def test_version_1_uses_the_folder_of_each_controller(tmp_path: Path) -> None:
    for name in ("cpu", "cpuacct", "memory/jobs/7"):
        (tmp_path / name).mkdir(parents=True)
    lines = ["12:pids:/", "4:memory:/jobs/7", "3:cpu,cpuacct:/", "0::/"]
    (tmp_path / "proc").write_text("\n".join(lines))
    tree = _own_v1(tmp_path, tmp_path / "proc")
    folders = {"cpu": tmp_path / "cpu", "cpuacct": tmp_path / "cpuacct", "memory": tmp_path / "memory/jobs/7"}
    assert tree == CgroupTree(1, folders)
    (tmp_path / "proc").write_text("\n".join(lines[2:]))
    assert _own_v1(tmp_path, tmp_path / "proc") is None
    assert _own_v1(tmp_path, tmp_path / "none") is None
    assert _own_v2(tmp_path, tmp_path / "none") is None


def test_limit_that_the_host_alters_raises_an_error(tmp_path: Path) -> None:
    """A device that swallows what is written stands for a kernel that keeps another value."""
    (tmp_path / "cpu.max").symlink_to("/dev/null")
    with pytest.raises(LimitError, match="changed"):
        CgroupTree(2, {"cpu": tmp_path}).set_cpu(0.5)


def test_limit_that_the_host_refuses_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(LimitError, match="refused"):
        CgroupTree(2, {"cpu": tmp_path / "missing"}).set_cpu(0.5)
