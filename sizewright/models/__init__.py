"""Throughput and memory models.

    from sizewright.models import ThroughputModel
    model = ThroughputModel().fit(trials, trials["throughput"])
    lower, upper = model.predict_interval(allocations, coverage=0.9)

`ThroughputModel` is the default one; `get_model(name)` makes any of `model_names()`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sizewright.models.default import ThroughputModel
    from sizewright.models.registry import get_model, model_names

_HOMES = {
    "ThroughputModel": "sizewright.models.default",
    "get_model": "sizewright.models.registry",
    "model_names": "sizewright.models.registry",
}

__all__ = ["ThroughputModel", "get_model", "model_names"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sizewright.models' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
