"""Throughput and memory models::

    from sizewright.models import ThroughputModel
    model = ThroughputModel().fit(trials, trials["throughput"])
    lower, upper = model.predict_interval(allocations, coverage=0.9)

`ThroughputModel` is the default one; `get_model(name)` makes any of `model_names()`. What a model of one's own needs is
here too; `docs/extend.md` shows one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.names import lazily

if TYPE_CHECKING:
    from sizewright.models._base import BaseThroughputModel, Explanation, Kind, check_interval
    from sizewright.models.axes import count_distinct, measured
    from sizewright.models.default import ThroughputModel
    from sizewright.models.memory import MemoryModel
    from sizewright.models.prior import JobCurve, LearnedPrior
    from sizewright.models.registry import get_model, model_names

_HOMES = {
    "BaseThroughputModel": "sizewright.models._base",
    "Explanation": "sizewright.models._base",
    "JobCurve": "sizewright.models.prior",
    "Kind": "sizewright.models._base",
    "LearnedPrior": "sizewright.models.prior",
    "MemoryModel": "sizewright.models.memory",
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
    "JobCurve",
    "Kind",
    "LearnedPrior",
    "MemoryModel",
    "ThroughputModel",
    "check_interval",
    "count_distinct",
    "get_model",
    "measured",
    "model_names",
]

if not TYPE_CHECKING:  # a type checker sees the imports above, and says what is not there
    __getattr__, __dir__ = lazily(__name__, _HOMES)
