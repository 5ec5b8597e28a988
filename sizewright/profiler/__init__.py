"""Which trials to run, and how to run them.

from sizewright.profiler import TrialPlanner
planner = TrialPlanner(candidates, objective="balanced")
while (allocation := planner.ask()) is not None:
    planner.tell(allocation, throughput=measure(allocation))
planner.best()
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sizewright.profiler.planner import TrialPlanner

__all__ = ["TrialPlanner"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sizewright.profiler' has no attribute {name!r}")
    return getattr(importlib.import_module("sizewright.profiler.planner"), name)
