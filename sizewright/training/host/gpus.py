"""The GPUs of this host and their use, from NVIDIA's management library (NVML) where `nvidia-ml-py` is installed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable that names the GPUs that a process may use."""
_EVERY_S = 0.1
_DEVICES = Path("/dev")


class GpuUse(NamedTuple):
    """The use of GPUs since they are watched; None where NVML does not tell.

    `memory_bytes` is the greatest peak of one of them beyond what was in use before. `busy_s`, the seconds in which a
    kernel ran, and `energy_j` are means over the GPUs.
    """

    memory_bytes: int | None = None
    busy_s: float | None = None
    energy_j: float | None = None


def load_nvml() -> Any:
    """Return the module `pynvml`, ready to be asked; None without it, without its library, or without a driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # ImportError, or whatever NVML raises without its library or driver
        return None
    return pynvml


def gpu_ids(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the GPUs of this host that a process with this environment may use, as `CUDA_VISIBLE_DEVICES` names them.

    Only those of NVIDIA are known.
    """
    nvml = load_nvml()
    count = nvml.nvmlDeviceGetCount() if nvml else sum(path.name[6:].isdigit() for path in _DEVICES.glob("nvidia*"))
    if VISIBLE not in environ or not count:
        return [str(number) for number in range(count)]
    named = [each.strip() for each in environ[VISIBLE].split(",")]
    valid = [each for each in named if each.startswith(("GPU-", "MIG-")) or (each.isdigit() and int(each) < count)]
    return named[: next((i for i, each in enumerate(named) if each not in valid), len(named))]


def gpu_product(ids: Sequence[str]) -> str | None:
    """Return the product of the first of these GPUs as Kubernetes' node labels write it, `NVIDIA-H100-80GB-HBM3`."""
    nvml = load_nvml()
    handles = _handles(nvml, ids[:1]) if nvml else []
    name = _ask(lambda: nvml.nvmlDeviceGetName(handles[0])) if handles else None
    text = name.decode() if isinstance(name, bytes) else name
    return "-".join(text.split()) if text else None


class GpuWatch:
    """Looks at some GPUs ten times a second until it is closed. Without NVML `use` knows nothing."""

    def __init__(
        self, ids: Sequence[str], *, every_s: float = _EVERY_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._nvml: Any = load_nvml() if ids else None
        self._gpus = _handles(self._nvml, ids) if self._nvml else []
        self._every_s, self._clock = every_s, clock
        self._before = [self._memory(gpu) for gpu in self._gpus]
        self._use = GpuUse()
        self._looked_at_s = clock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="watch of GPUs")
        if self._gpus:
            self._thread.start()

    @property
    def use(self) -> GpuUse:
        """The use since it began."""
        return self._use

    def close(self) -> None:
        """Stop looking."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def __enter__(self) -> GpuWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _watch(self) -> None:
        while not self._closed.wait(self._every_s):
            self._look()

    def _look(self) -> None:
        """Add what the GPUs do now to their use, for the time since the last look."""
        now_s = self._clock()
        seconds, self._looked_at_s = now_s - self._looked_at_s, now_s
        grown = [
            now - before
            for now, before in zip(map(self._memory, self._gpus), self._before, strict=True)
            if now is not None and before is not None
        ]
        percent = _mean([self._busy_percent(gpu) for gpu in self._gpus])
        milliwatts = _mean([self._milliwatts(gpu) for gpu in self._gpus])
        last = self._use
        self._use = GpuUse(
            max([*grown, last.memory_bytes or 0]) if grown else last.memory_bytes,
            last.busy_s if percent is None else (last.busy_s or 0.0) + percent / 100 * seconds,
            last.energy_j if milliwatts is None else (last.energy_j or 0.0) + milliwatts / 1000 * seconds,
        )

    def _memory(self, gpu: Any) -> int | None:
        value = _ask(lambda: self._nvml.nvmlDeviceGetMemoryInfo(gpu).used)
        return None if value is None else int(value)

    def _busy_percent(self, gpu: Any) -> float | None:
        value = _ask(lambda: self._nvml.nvmlDeviceGetUtilizationRates(gpu).gpu)
        return None if value is None else float(value)

    def _milliwatts(self, gpu: Any) -> float | None:
        value = _ask(lambda: self._nvml.nvmlDeviceGetPowerUsage(gpu))
        return None if value is None else float(value)


def _handles(nvml: Any, ids: Sequence[str]) -> list[Any]:
    def handle(name: str) -> Any:
        return nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdigit() else nvml.nvmlDeviceGetHandleByUUID(name)

    handles = [_ask(partial(handle, name)) for name in ids]
    return [each for each in handles if each is not None]


def _ask(question: Callable[[], Any]) -> Any:
    """Return the answer of NVML; None where a GPU does not support the question, or is lost."""
    try:
        return question()
    except Exception:  # NVMLError, which is of a module that may not be installed
        return None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
