"""Throughput and memory models::

    from sizewright.models import ThroughputModel
    model = ThroughputModel().fit(trials, trials["throughput"])
    lower, upper = model.predict_interval(allocations, coverage=0.9)

`ThroughputModel` is the default; `get_model(name)` makes any of `model_names()`. This package also has what a custom
model needs; `docs/extend.md` shows an example.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sizewright.models._base import BaseThroughputModel, Explanation, Kind, check_interval
    from sizewright.models.axes import count_distinct, prepare_training_data
    from sizewright.models.default.predictor import ThroughputModel
    from sizewright.models.memory.memory_model import MemoryModel
    from sizewright.models.prior import JobCurve, LearnedPrior
    from sizewright.models.registry import get_model, model_names

_HOMES = {
    "BaseThroughputModel": "sizewright.models._base",
    "Explanation": "sizewright.models._base",
    "JobCurve": "sizewright.models.prior",
    "Kind": "sizewright.models._base",
    "LearnedPrior": "sizewright.models.prior",
    "MemoryModel": "sizewright.models.memory.memory_model",
    "ThroughputModel": "sizewright.models.default.predictor",
    "check_interval": "sizewright.models._base",
    "count_distinct": "sizewright.models.axes",
    "get_model": "sizewright.models.registry",
    "prepare_training_data": "sizewright.models.axes",
    "model_names": "sizewright.models.registry",
}

__all__ = [
    "BaseThroughputModel",
    "Explanation",
    "JobCurve",
    "Kind",
    "LearnedPrior",
    "MemoryModel",
    "ThroughputModel",
    "check_interval",
    "count_distinct",
    "get_model",
    "model_names",
    "prepare_training_data",
]

if not TYPE_CHECKING:  # type checkers use the imports above
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)
