from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizewright.errors import InputError
from sizewright.executors.quantities import cpu_quantity, memory_quantity, read_bytes, read_cores
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


def test_an_infinite_number_of_cores_is_refused() -> None:
    with pytest.raises(InputError, match="not a number of cores"):
        cpu_quantity(float("inf"))


@pytest.mark.parametrize(
    ("written", "cores"), [("400m", 0.4), ("0.4", 0.4), (2, 2.0), (0.5, 0.5), ("1e1", 10.0), (".5", 0.5), ("70m", 0.07)]
)
def test_cores_are_read(written: object, cores: float) -> None:
    assert read_cores(written, "cpu") == cores


@pytest.mark.parametrize(
    ("written", "size"),
    [("1Gi", GIB), ("1G", 10**9), ("512Mi", 512 * MIB), (GIB, GIB), ("1.5Gi", 3 * GIB // 2), ("1e9", 10**9),
     ("8192", 8192), ("100k", 100_000), ("1073741824000m", GIB)],
)  # fmt: skip
def test_memory_is_read(written: object, size: int) -> None:
    assert read_bytes(written, "memory") == size


@pytest.mark.parametrize(
    "wrong", ["", "1Gi", "1G", "0", "-1", "nan", "1e999", None, True, [], "0x10", "1 m", "½", "9" * 99]
)
def test_what_is_no_number_of_cores_is_refused(wrong: object) -> None:
    with pytest.raises(InputError, match=r"spec\.cpu is") as caught:
        read_cores(wrong, "spec.cpu")
    assert caught.value.remedy


@pytest.mark.parametrize("wrong", ["", "400m", "512", "1gi", "1GiB", "-1Gi", "nan", None, False, {}, "much"])
def test_what_is_no_amount_of_memory_is_refused(wrong: object) -> None:
    with pytest.raises(InputError, match=r"spec\.memory is") as caught:
        read_bytes(wrong, "spec.memory")
    assert caught.value.remedy


@given(st.integers(1, 10**15))
def test_memory_is_read_as_it_was_written(size: int) -> None:
    assert 0 <= read_bytes(memory_quantity(size), "") - size < MIB


@given(st.integers(1, 10**7))
def test_cores_are_read_as_they_were_written(millicores: int) -> None:
    assert read_cores(cpu_quantity(millicores / 1000), "") == millicores / 1000
