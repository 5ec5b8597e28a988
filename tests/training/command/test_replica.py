"""A replica on a host without writable control groups is pinned to whole cores and measured by its processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from sizewright.spec import Job, Resources
from sizewright.training.command.rendezvous import ReplicaCommand, ReplicaSlot
from sizewright.training.command.replica import CommandReplica

PROGRAM = """
import subprocess, sys, time
from sizewright import log_samples
kept = b"x" * (80 << 20)
child = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
while True:
    time.sleep(0.01)
    log_samples(10)
"""


def cpu_s(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def test_replica_without_control_groups_is_pinned_measured_and_ended(tmp_path: Path) -> None:
    job = Job.model_validate({"name": "own", "command": {"run": "x", "folder": str(tmp_path)}})
    slot = ReplicaSlot("worker", 0, Resources(cpu=1.0, memory_bytes=1 << 30))
    replica = CommandReplica(job, slot, 32, None, tmp_path / "logs")
    replica.start(ReplicaCommand((sys.executable, "-c", PROGRAM), {}))
    try:
        deadline = time.monotonic() + 30
        while not replica.observe().metrics.samples:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        replica.hold()
        children = [p for p in psutil.Process().children(recursive=True) if p.cmdline()[0] == sys.executable]
        assert len(children) >= 2
        earlier_s = cpu_s(children)
        first = replica.observe().metrics
        began_s = cpu_s(children)
        while cpu_s(children) < began_s + 0.3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        ended_s = cpu_s(children)
        second = replica.observe().metrics
        assert second.limited_by == "affinity"
        used_s, ticks_s = second.cpu_s - first.cpu_s, 0.01 * len(children)
        assert ended_s - began_s - ticks_s <= used_s <= cpu_s(children) - earlier_s + ticks_s
        assert used_s <= 1.2 * (second.at_s - first.at_s), "all of them share one core"
        assert second.memory_peak_bytes > 80 << 20
        assert all(len(process.cpu_affinity()) == 1 for process in children)
    finally:
        replica.kill()
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in children)
