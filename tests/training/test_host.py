from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from sizewright.training.host import available_memory_bytes, host_cores

MIB = 1 << 20


def test_without_a_container_it_is_the_hosts(tmp_path: Path) -> None:
    assert host_cores(tmp_path) == len(os.sched_getaffinity(0))
    assert available_memory_bytes(tmp_path) == pytest.approx(psutil.virtual_memory().available, rel=0.2)


@pytest.mark.parametrize(
    "files",
    [
        {"cpu.max": "50000 100000", "memory.max": f"{100 * MIB}", "memory.current": f"{30 * MIB}"},
        {
            "cpu/cpu.cfs_quota_us": "10000",
            "cpu/cpu.cfs_period_us": "20000",
            "memory/memory.limit_in_bytes": f"{100 * MIB}",
            "memory/memory.usage_in_bytes": f"{30 * MIB}",
        },
    ],
    ids=["version 2", "version 1"],
)
def test_a_container_has_less(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert host_cores(tmp_path) == 0.5
    assert available_memory_bytes(tmp_path) == 70 * MIB


def test_no_limit_in_the_container(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert host_cores(tmp_path) == len(os.sched_getaffinity(0))
    assert available_memory_bytes(tmp_path) > 100 * MIB
