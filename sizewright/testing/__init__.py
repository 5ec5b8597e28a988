"""For tests: an executor in memory, what every executor, model and allocator keeps, and a test bed.

The test bed is several machines on one host, joined by links of known bandwidth and delay: `sizewright.testing.bed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.names import lazily

if TYPE_CHECKING:
    from sizewright.testing.allocator_contract import AllocatorContract
    from sizewright.testing.bed import Bed
    from sizewright.testing.clock import ManualClock
    from sizewright.testing.contract import ExecutorContract
    from sizewright.testing.fake import Call, FakeExecutor
    from sizewright.testing.model_contract import ModelContract

_HOMES = {
    "AllocatorContract": "sizewright.testing.allocator_contract",
    "Bed": "sizewright.testing.bed",
    "Call": "sizewright.testing.fake",
    "ExecutorContract": "sizewright.testing.contract",
    "FakeExecutor": "sizewright.testing.fake",
    "ManualClock": "sizewright.testing.clock",
    "ModelContract": "sizewright.testing.model_contract",
}

__all__ = [
    "AllocatorContract",
    "Bed",
    "Call",
    "ExecutorContract",
    "FakeExecutor",
    "ManualClock",
    "ModelContract",
]

if not TYPE_CHECKING:  # a type checker sees the imports above, and says what is not there
    __getattr__, __dir__ = lazily(__name__, _HOMES)
