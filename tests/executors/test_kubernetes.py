from __future__ import annotations

import pytest

from sizewright.errors import InputError
from sizewright.executors.kubernetes import cpu_quantity, memory_quantity, resource_requirements
from sizewright.spec import Gpu, Group
from sizewright.spec.units import GIB, MIB


@pytest.mark.parametrize(
    ("cores", "quantity"), [(0.5, "500m"), (2, "2"), (1.1, "1100m"), (0.0001, "1m"), (0.2501, "251m"), (1.9999, "2")]
)
def test_cores_are_rounded_up_to_millicores(cores: float, quantity: str) -> None:
    assert cpu_quantity(cores) == quantity


@pytest.mark.parametrize(("cores", "quantity"), [(0.25, "300m"), (0.3, "300m"), (0.95, "1"), (0.01, "100m")])
def test_cores_are_rounded_up_to_coarser_steps(cores: float, quantity: str) -> None:
    assert cpu_quantity(cores, 100) == quantity


def test_every_count_of_millicores_is_itself() -> None:
    for millicores in range(1, 5000):
        quantity = cpu_quantity(millicores / 1000)
        assert (int(quantity[:-1]) if quantity.endswith("m") else int(quantity) * 1000) == millicores


@pytest.mark.parametrize(("size", "quantity"), [(1, "1Mi"), (MIB, "1Mi"), (MIB + 1, "2Mi"), (2 * GIB, "2048Mi")])
def test_memory_is_rounded_up_to_mi(size: int, quantity: str) -> None:
    assert memory_quantity(size) == quantity


def test_a_replica_asks_for_what_its_group_has() -> None:
    group = Group(replicas=1, cpu=4, memory_bytes=GIB, gpu=Gpu(kind="a100", count=2))
    asked = resource_requirements(group)
    assert asked["requests"] == asked["limits"] == {"cpu": "4", "memory": "1024Mi", "nvidia.com/gpu": 2}
    assert resource_requirements(Group(replicas=1, cpu=4, memory_bytes=0))["requests"] == {"cpu": "4"}


def test_an_infinite_number_of_cores_is_refused() -> None:
    with pytest.raises(InputError, match="not a number of cores"):
        cpu_quantity(float("inf"))
