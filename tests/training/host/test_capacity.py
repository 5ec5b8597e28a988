from __future__ import annotations

import os

import psutil
import pytest

from sizewright.container import ContainerUsage
from sizewright.training.host.capacity import available_memory_bytes, host_cores

MIB = 1 << 20


def test_without_a_container_it_is_the_hosts() -> None:
    assert host_cores(ContainerUsage()) == len(os.sched_getaffinity(0))
    assert available_memory_bytes(ContainerUsage()) == pytest.approx(psutil.virtual_memory().available, rel=0.2)


def test_a_container_has_less() -> None:
    own = ContainerUsage(cpu_limit=0.5, memory_left_bytes=70 * MIB)
    assert (host_cores(own), available_memory_bytes(own)) == (0.5, 70 * MIB)


def test_a_container_cannot_have_more() -> None:
    own = ContainerUsage(cpu_limit=1e6, memory_left_bytes=1 << 59)
    assert host_cores(own) == len(os.sched_getaffinity(0))
    assert available_memory_bytes(own) < psutil.virtual_memory().total
