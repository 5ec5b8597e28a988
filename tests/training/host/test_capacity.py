from __future__ import annotations

import os

import psutil
import pytest

from sizewright.container import ContainerUsage
from sizewright.training.host.capacity import available_memory_bytes, host_cores

MIB = 1 << 20


def test_capacity_without_a_container_is_the_hosts() -> None:
    assert host_cores(ContainerUsage()) == len(os.sched_getaffinity(0))
    assert available_memory_bytes(ContainerUsage()) == pytest.approx(psutil.virtual_memory().available, rel=0.2)


def test_container_limits_reduce_the_capacity() -> None:
    container = ContainerUsage(cpu_limit=0.5, memory_left_bytes=70 * MIB)
    assert (host_cores(container), available_memory_bytes(container)) == (0.5, 70 * MIB)


def test_container_limits_above_the_host_are_ignored() -> None:
    container = ContainerUsage(cpu_limit=1e6, memory_left_bytes=1 << 59)
    assert host_cores(container) == len(os.sched_getaffinity(0))
    assert available_memory_bytes(container) < psutil.virtual_memory().total
