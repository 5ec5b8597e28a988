"""Prices of hosts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizewright.formatting import GIB
from sizewright.spec import Gpu, HostKind, Prices
from sizewright.spec.objective import host_price


@given(st.integers(1, 512), st.integers(1, 4096), st.integers(0, 16))
def test_hosts_without_a_price_cost_what_opencost_says(cores: int, gib: int, gpus: int) -> None:
    gpu = Gpu(count=gpus) if gpus else None
    host = HostKind(kind="a", cpu=cores, memory_bytes=gib * GIB, gpu=gpu)
    assert host_price(host) == pytest.approx(0.0316 * cores + 0.0042 * gib + 0.95 * gpus)


@pytest.mark.parametrize("price", [0.0, 32.77])
def test_a_host_costs_its_own_price(price: float) -> None:
    host = HostKind(kind="a", count=7, cpu=96, memory_bytes=GIB, price_hour=price, spot_price_hour=1.0)
    assert host_price(host) == price, "of one host, and not of a spot one"


def test_prices_of_a_job_keep_their_defaults() -> None:
    assert Prices() == Prices(core_hour=1.0, gib_hour=0.13, gpu_hour=10.0)
