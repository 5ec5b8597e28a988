"""Throughput and memory models.

    from sizewright.models import ThroughputModel
    model = ThroughputModel().fit(trials, trials["throughput"])
    lower, upper = model.predict_interval(allocations, coverage=0.9)

`ThroughputModel` is the default one; `get_model(name)` makes any of `model_names()`. What a model of one's own needs is
here too; `docs/extend.md` shows one.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sizewright.models._base import BaseThroughputModel, Explanation, Kind, check_interval
    from sizewright.models.axes import count_distinct, measured
    from sizewright.models.default import ThroughputModel
    from sizewright.models.registry import get_model, model_names

_HOMES = {
    "BaseThroughputModel": "sizewright.models._base",
    "Explanation": "sizewright.models._base",
    "Kind": "sizewright.models._base",
    "ThroughputModel": "sizewright.models.default",
    "check_interval": "sizewright.models._base",
    "count_distinct": "sizewright.models.axes",
    "get_model": "sizewright.models.registry",
    "measured": "sizewright.models.axes",
    "model_names": "sizewright.models.registry",
}

__all__ = [
    "BaseThroughputModel",
    "Explanation",
    "Kind",
    "ThroughputModel",
    "check_interval",
    "count_distinct",
    "get_model",
    "measured",
    "model_names",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sizewright.models' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
