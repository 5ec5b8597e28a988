"""Limits and usage from the control groups of a container; other tests use real control groups."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sizewright.container import ContainerUsage, container_usage
from sizewright.training.host.cgroups import find_cgroups

MIB = 1 << 20
VERSION_1 = {
    "cpu/cpu.cfs_quota_us": "10000", "cpu/cpu.cfs_period_us": "20000", "cpu/cpu.stat": "throttled_time 2000000000",
    "cpuacct/cpuacct.usage": "3000000000", "memory/memory.limit_in_bytes": f"{100 * MIB}",
    "memory/memory.usage_in_bytes": f"{30 * MIB}", "memory/memory.max_usage_in_bytes": f"{40 * MIB}",
}  # fmt: skip
VERSION_2 = {
    "cgroup.controllers": "cpu memory", "cpu.max": "50000 100000",
    "cpu.stat": "usage_usec 3000000\nthrottled_usec 2000000", "memory.max": f"{100 * MIB}",
    "memory.current": f"{30 * MIB}", "memory.peak": f"{40 * MIB}",
}  # fmt: skip
USAGE = ContainerUsage(3.0, 2.0, 30 * MIB, 40 * MIB, 0.5, 100 * MIB, 70 * MIB)


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        (root / name).write_text(text + "\n")


@pytest.mark.parametrize("files", [VERSION_1, VERSION_2], ids=["version 1", "version 2"])
@pytest.mark.parametrize(
    "membership", ["", "4:memory:/kubepods/pod1\n3:cpu,cpuacct:/kubepods/pod1\n0::/kubepods/pod1\n"]
)
def test_the_group_of_a_container_is_the_root_of_its_mounts(
    tmp_path: Path, files: dict[str, str], membership: str
) -> None:
    write(tmp_path / "fs", files)
    (tmp_path / "own").write_text(membership)
    assert container_usage(tmp_path / "fs", tmp_path / "own") == USAGE


def test_limits_of_parent_groups_apply(tmp_path: Path) -> None:
    around = {"cgroup.controllers": "", "pod/cpu.max": "200000 100000", "pod/memory.max": f"{50 * MIB}"}
    around |= {"pod/memory.current": f"{45 * MIB}"}
    write(tmp_path / "fs", around | {f"pod/main/{name}": text for name, text in VERSION_2.items()})
    (tmp_path / "own").write_text("0::/pod/main\n")
    usage = container_usage(tmp_path / "fs", tmp_path / "own")
    assert usage == USAGE._replace(memory_limit_bytes=50 * MIB, memory_left_bytes=5 * MIB)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"cgroup.controllers": "", "cpu.max": "max 100000", "memory.max": "max"},
        {"cpu/cpu.cfs_quota_us": "-1", "memory/memory.limit_in_bytes": "9223372036854771712"},
    ],
)
def test_missing_limits_are_none(tmp_path: Path, files: dict[str, str]) -> None:
    write(tmp_path, files)
    assert container_usage(tmp_path, tmp_path / "nothing") == ContainerUsage()


_PROGRAM = """
import os, sys, time
sys.stdin.readline()  # until it is in its group
from sizewright.container import container_usage
held = bytearray(os.urandom(1)) * (64 << 20)
enough = lambda used: used.throttled_s is not None and used.throttled_s > 0.05
while time.process_time() < 0.3 or (not enough(container_usage()) and time.process_time() < 15): pass
print(repr(container_usage()._asdict()))
"""


def test_container_usage_is_that_of_its_group_not_of_the_host() -> None:
    tree = find_cgroups(f"szwtest-{os.getpid()}-container")
    if tree is None:
        pytest.skip("this host lets nobody make control groups here")
    try:
        group = tree.child("leaf")
        group.set_cpu(0.1)  # little enough for a busy host
        group.set_memory(512 * MIB)
        args = [sys.executable, "-c", _PROGRAM]
        with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            group.join(child.pid)
            printed, _ = child.communicate("go\n", timeout=200)
        used = ContainerUsage(**ast.literal_eval(printed))
    finally:
        tree.remove(grace_s=0.0)
    assert (used.cpu_limit, used.memory_limit_bytes) == (pytest.approx(0.1), 512 * MIB)
    assert 0.2 < (used.cpu_s or 0) < 20.0
    assert (used.throttled_s or 0) > 0.05, "at 0.1 cores it was throttled"
    assert 64 * MIB < (used.memory_peak_bytes or 0) < 200 * MIB
