"""A stand-in for the module `pynvml`: GPUs whose memory, use and power a test sets."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace


class NvmlError(Exception):
    """Raised in place of `NVMLError`."""


@dataclass
class StandInGpu:
    """One GPU; a value of None is not supported by it."""

    memory_bytes: int | None = 0
    percent: int | None = 0
    milliwatts: int | None = 0


class StandInNvml:
    """Answers as `pynvml` does, for some GPUs of one product."""

    def __init__(self, *gpus: StandInGpu, name: str | bytes = "NVIDIA H100 80GB HBM3", driver: bool = True) -> None:
        self.gpus = gpus
        self._name, self._driver = name, driver

    def nvmlInit(self) -> None:  # noqa: N802
        if not self._driver:
            raise NvmlError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> StandInGpu:  # noqa: N802
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> StandInGpu:  # noqa: N802
        return self.gpus[int(uuid.removeprefix("GPU-"))]

    def nvmlDeviceGetName(self, _: StandInGpu) -> str | bytes:  # noqa: N802
        return self._name

    def nvmlDeviceGetMemoryInfo(self, gpu: StandInGpu) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(used=_supported(gpu.memory_bytes))

    def nvmlDeviceGetUtilizationRates(self, gpu: StandInGpu) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(gpu=_supported(gpu.percent))

    def nvmlDeviceGetPowerUsage(self, gpu: StandInGpu) -> int:  # noqa: N802
        return _supported(gpu.milliwatts)


def _supported(value: int | None) -> int:
    if value is None:
        raise NvmlError("Not Supported")
    return value
