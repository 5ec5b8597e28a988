"""What NVML says of the first GPU of this host while a trial runs."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

_EVERY_S = 0.1


class GpuUse(NamedTuple):
    """The use of a GPU: bytes at most beyond those in use before, and means of busy time (share) and power (watts)."""

    memory_bytes: int
    busy: float
    power_w: float


class GpuWatch:
    """Looks at the first GPU ten times a second while it is open. Without a GPU or NVML `use` is None."""

    def __init__(self) -> None:
        self._nvml: Any = _nvml()
        self._ended = threading.Event()
        self._looks: list[tuple[int, float, float]] = []
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> GpuWatch:
        if self._nvml:
            self._gpu = self._nvml.nvmlDeviceGetHandleByIndex(0)
            self._before = self._look()[0]
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._nvml:
            self._thread.join()

    @property
    def name(self) -> str:
        """The name of the GPU, or `cpu` without one."""
        return self._nvml.nvmlDeviceGetName(self._nvml.nvmlDeviceGetHandleByIndex(0)) if self._nvml else "cpu"

    def use(self, seconds: float) -> GpuUse | None:
        """Return the use over the last `seconds`, and the peak of memory since it was opened."""
        if not self._looks:
            return None
        memory, busy, power = map(np.array, zip(*self._looks, strict=True))
        last = slice(-max(1, int(seconds / _EVERY_S)), None)
        return GpuUse(int(memory.max() - self._before), float(busy[last].mean()), float(power[last].mean()))

    def _watch(self) -> None:
        while not self._ended.wait(_EVERY_S):
            self._looks.append(self._look())

    def _look(self) -> tuple[int, float, float]:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(self._gpu).used
        busy = self._nvml.nvmlDeviceGetUtilizationRates(self._gpu).gpu / 100
        return memory, busy, self._nvml.nvmlDeviceGetPowerUsage(self._gpu) / 1000


def _nvml() -> Any:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return None
    return pynvml
