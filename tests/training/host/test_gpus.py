"""GPUs and their use, as a stand-in for NVML tells them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sizewright.training.host import gpus
from sizewright.training.host.gpus import GpuUse, GpuWatch, gpu_ids, gpu_product
from tests.helpers.stand_in_nvml import StandInGpu, StandInNvml


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> StandInNvml:
    stand_in = StandInNvml(StandInGpu(100, 50, 200_000), StandInGpu(30, 100, 300_000))
    monkeypatch.setitem(sys.modules, "pynvml", stand_in)  # type: ignore[arg-type]
    return stand_in


@pytest.mark.parametrize(
    ("visible", "ids"),
    [
        (None, ["0", "1"]), ("1", ["1"]), ("1, 0", ["1", "0"]), ("", []), ("-1", []), ("0,-1,1", ["0"]), ("0,7", ["0"]),
        ("GPU-1", ["GPU-1"]),
    ],
)  # fmt: skip
def test_gpus_are_those_that_the_environment_allows(nvml: StandInNvml, visible: str | None, ids: list[str]) -> None:
    assert gpu_ids({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}) == ids


def test_gpus_are_counted_without_nvml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(gpus, "_DEVICES", tmp_path)
    assert gpu_ids({"CUDA_VISIBLE_DEVICES": "0"}) == []
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert gpu_ids({}) == ["0", "1"]
    assert gpu_product(["0"]) is None
    with GpuWatch(["0"]) as watch:
        assert watch.use == GpuUse(None, None, None)


def test_library_without_a_driver_tells_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", StandInNvml(StandInGpu(), driver=False))  # type: ignore[arg-type]
    monkeypatch.setattr(gpus, "_DEVICES", tmp_path)
    assert gpu_ids({}) == []


@pytest.mark.parametrize("name", ["NVIDIA H100 80GB HBM3", b"NVIDIA H100 80GB HBM3"])
def test_product_is_written_as_node_labels_write_it(monkeypatch: pytest.MonkeyPatch, name: str | bytes) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", StandInNvml(StandInGpu(), name=name))  # type: ignore[arg-type]
    assert gpu_product(["0"]) == "NVIDIA-H100-80GB-HBM3"


def test_use_is_the_peak_of_the_fullest_gpu_and_means_over_time(nvml: StandInNvml) -> None:
    now_s = [10.0]
    with GpuWatch(["0", "1"], every_s=1e6, clock=lambda: now_s[0]) as watch:
        nvml.gpus[0].memory_bytes, nvml.gpus[1].memory_bytes = 150, 90  # 50 and 60 more than before
        now_s[0] += 2.0
        watch._look()
        assert watch.use == GpuUse(60, 2.0 * 0.75, 2.0 * 250)
        nvml.gpus[1].memory_bytes, nvml.gpus[1].percent = 40, 0
        now_s[0] += 1.0
        watch._look()
    assert watch.use == GpuUse(60, pytest.approx(1.5 + 0.25), pytest.approx(750.0))


def test_what_a_gpu_does_not_support_stays_unknown(nvml: StandInNvml) -> None:
    nvml.gpus[0].milliwatts = nvml.gpus[0].percent = None
    with GpuWatch(["0"], every_s=1e6) as watch:
        nvml.gpus[0].memory_bytes = 130
        watch._look()
    assert watch.use == GpuUse(30, None, None)


def test_gpus_are_looked_at_until_closed(nvml: StandInNvml) -> None:
    with GpuWatch(["0"], every_s=0.01) as watch:
        nvml.gpus[0].memory_bytes = 1100
        for _ in range(500):
            if watch.use.memory_bytes == 1000:
                break
            watch._closed.wait(0.01)
    assert watch.use.memory_bytes == 1000
    assert not watch._thread.is_alive()
