from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from sizewright.training.host.cgroups import CgroupTree
from sizewright.training.host.limits import ReplicaLimits
from tests.helpers.training_parts import writable_group

# A replica's limits are those of its process, so each test runs one of its own and reads what it prints.
PRELUDE = """
import json, os, threading
from pathlib import Path
from sizewright.errors import ReplicaDiedError, LimitError
from sizewright.training.host.cgroups import CgroupTree
from sizewright.training.host.limits import ReplicaLimits
tree = {tree}
def masks():
    return [sorted(os.sched_getaffinity(int(t))) for t in os.listdir("/proc/self/task")]
"""

needs_affinity = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins no cores")


def replica(code: str, tree: CgroupTree | None = None) -> Any:
    source = "None"
    if tree:
        plain = {name: str(folder) for name, folder in tree.folders.items()}
        source = f"CgroupTree({tree.version}, {{name: Path(path) for name, path in {plain}.items()}})"
    command = [sys.executable, "-c", PRELUDE.replace("{tree}", source) + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def group() -> Iterator[CgroupTree]:
    tree = writable_group("limits")
    yield tree
    tree.remove(grace_s=0.0)


@needs_affinity
def test_every_thread_is_pinned_to_whole_cores_without_groups() -> None:
    code = """
ended = threading.Event()
threading.Thread(target=ended.wait).start()
limits = ReplicaLimits(None, "worker-0")
before = limits.limited_by
limits.set_cpu(0.5, 1)
held, how, period = masks(), limits.limited_by, limits.period_ms
limits.set_cpu(None)
print(json.dumps([before, held, how, period, masks(), limits.limited_by]))
ended.set()
"""
    host = sorted(os.sched_getaffinity(0))
    if len(host) < 2:
        pytest.skip("one core cannot be distinguished from all")
    before, pinned, how, period, freed, after = replica(code)
    assert (before, how, after, period) == ("none", "affinity", "none", None)
    assert pinned == [[host[1]]] * 2
    assert freed == [host] * 2


@needs_affinity
def test_all_cores_are_recorded_as_unlimited() -> None:
    host = sorted(os.sched_getaffinity(0))
    code = "limits = ReplicaLimits(None, 'ps-0')\nlimits.set_cpu(1000)\nprint(json.dumps([masks(), limits.limited_by]))"
    pinned, how = replica(code)
    assert all(mask == host for mask in pinned)
    assert how == "none"


@needs_affinity
def test_threads_unknown_to_python_are_pinned() -> None:
    """torch's own threads start before the limit comes."""
    code = """
import torch
torch.set_num_threads(2)
torch.rand(3000, 3000) @ torch.rand(3000, 3000)
torch.rand(4_000_000).exp()
limits = ReplicaLimits(None, "worker-0")
limits.set_cpu(1)
print(json.dumps([threading.active_count(), masks()]))
"""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core cannot be distinguished from all")
    listed, pinned = replica(code)
    assert len(pinned) > listed
    assert all(len(mask) == 1 for mask in pinned)


def test_joined_group_limits_by_quota(group: CgroupTree) -> None:
    code = """
limits = ReplicaLimits(tree, "worker-3")
joined = os.getpid() in tree.child("worker-3").pids()
before = limits.limited_by
limits.set_cpu(0.5)
how, period = limits.limited_by, limits.period_ms
limits.set_cpu(None)
print(json.dumps([joined, before, how, period, limits.limited_by, limits.period_ms]))
"""
    assert replica(code, group) == [True, "none", "cgroup", 20.0, "none", None]


def test_usage_reports_cpu_and_peak_memory(group: CgroupTree) -> None:
    code = """
limits = ReplicaLimits(tree, "worker-4")
first = limits.usage()
block = bytearray(os.urandom(1)) * (100 << 20)
del block
sum(range(3_000_000))
second = limits.usage()
print(json.dumps([vars(first), vars(second)]))
"""
    for tree in (group, None):
        first, second = replica(code, tree)
        assert second["cpu_s"] > first["cpu_s"]
        assert second["at_s"] > first["at_s"]
        assert second["memory_peak_bytes"] > first["memory_peak_bytes"] + (90 << 20)


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="this kernel cannot reset a peak")
def test_memory_peak_can_be_reset(group: CgroupTree) -> None:
    code = """
limits = ReplicaLimits(tree, "worker-5")
block = bytearray(b"x") * (150 << 20)
high = limits.usage().memory_peak_bytes
del block
limits.reset_peaks()
print(json.dumps([high, limits.usage().memory_peak_bytes]))
"""
    high, low = replica(code, group if group.version == 1 else None)
    assert low < high - (100 << 20)


def test_freed_memory_counts_neither_for_the_limit_nor_for_the_peak(group: CgroupTree) -> None:
    code = """
import numpy as np
from sizewright.datasets.malloc import keep_freed_memory
keep_freed_memory()
limits = ReplicaLimits(tree, "ps-6")
kept = []
for _ in range(20):
    block = np.ones(10 << 20, np.uint8)
    kept.append(np.ones(4096, np.uint8))  # the end of the heap stays in use, so that it does not shrink by itself
    kept.append(block)
high = limits.usage().memory_peak_bytes
del block, kept[1::2]
limits.set_memory(high - (120 << 20))
limits.reset_peaks()
print(json.dumps([high, limits.usage().memory_peak_bytes]))
"""
    high, low = replica(code, group)
    if group.version == 1:
        assert low < high - (150 << 20)


@pytest.mark.parametrize("limit_mib", [1, 8])
def test_limit_below_the_idle_process_is_an_oom(group: CgroupTree, limit_mib: int) -> None:
    code = f"""
limits = ReplicaLimits(tree, "ps-9")
try:
    limits.set_memory({limit_mib} << 20)
except ReplicaDiedError as error:
    print(json.dumps([error.oom, str(error)]))
"""
    oom, message = replica(code, group)
    assert oom
    assert f"given {limit_mib}.0 MiB, but uses" in message


def test_limit_below_the_charged_memory_is_an_oom(group: CgroupTree) -> None:
    if group.version == 2:
        pytest.skip("version 2 accepts the limit and ends the process")
    code = """
limits = ReplicaLimits(tree, "ps-8")
block = bytearray(b"x") * (200 << 20)
try:
    limits.set_memory(100 << 20)
except ReplicaDiedError as error:
    print(json.dumps([error.oom, len(block)]))
"""
    assert replica(code, group) == [True, 200 << 20]


def test_memory_limit_includes_memory_used_before_the_group(group: CgroupTree) -> None:
    code = """
name = "memory.max" if tree.version == 2 else "memory.limit_in_bytes"
limits = ReplicaLimits(tree, "ps-7")
limits.set_memory(1 << 30)
held = int((tree.child("ps-7").folders["memory"] / name).read_text())
limits.set_memory(0)
print(json.dumps([held, (tree.child("ps-7").folders["memory"] / name).read_text().strip()]))
"""
    limited, lifted = replica(code, group)
    assert (1 << 30) - (200 << 20) < limited < (1 << 30) - (5 << 20)
    assert lifted == "max" or int(lifted) > 1 << 50


def test_without_groups_memory_is_not_limited() -> None:
    limits = ReplicaLimits(None, "ps-0")
    limits.set_memory(1)
    assert limits.usage().memory_peak_bytes > 1
