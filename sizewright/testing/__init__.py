"""For tests: an executor in memory, what every executor, model and allocator keeps, and a test bed.

The test bed is several machines on one host, joined by links of known bandwidth and delay: `sizewright.testing.bed`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sizewright.testing.allocator_contract import AllocatorContract
    from sizewright.testing.clock import ManualClock
    from sizewright.testing.contract import ExecutorContract
    from sizewright.testing.fake import Call, FakeExecutor
    from sizewright.testing.model_contract import ModelContract

_HOMES = {
    "AllocatorContract": "sizewright.testing.allocator_contract",
    "Call": "sizewright.testing.fake",
    "ExecutorContract": "sizewright.testing.contract",
    "FakeExecutor": "sizewright.testing.fake",
    "ManualClock": "sizewright.testing.clock",
    "ModelContract": "sizewright.testing.model_contract",
}

__all__ = ["AllocatorContract", "Call", "ExecutorContract", "FakeExecutor", "ManualClock", "ModelContract"]


def __getattr__(name: str) -> Any:
    # On first use: the contracts alone need pytest, and the test bed none of these.
    if name not in _HOMES:
        raise AttributeError(f"module 'sizewright.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
