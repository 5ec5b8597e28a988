"""Helpers for your own tests: an executor in memory, a manual clock, and contract tests for your own classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sizewright.testing.allocator_contract import AllocatorContract
    from sizewright.testing.clock import ManualClock
    from sizewright.testing.contract import ExecutorContract
    from sizewright.testing.fake_executor import Call, FakeExecutor
    from sizewright.testing.model_contract import ModelContract

_HOMES = {
    "AllocatorContract": "sizewright.testing.allocator_contract",
    "Call": "sizewright.testing.fake_executor",
    "ExecutorContract": "sizewright.testing.contract",
    "FakeExecutor": "sizewright.testing.fake_executor",
    "ManualClock": "sizewright.testing.clock",
    "ModelContract": "sizewright.testing.model_contract",
}

__all__ = [
    "AllocatorContract",
    "Call",
    "ExecutorContract",
    "FakeExecutor",
    "ManualClock",
    "ModelContract",
]

if not TYPE_CHECKING:  # a type checker sees the imports above, and says what is not there
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)
