"""From trials to a recommended allocation, and from the metrics of a running job to a better one.

`sizewright.recommend`, `run` and `tune` combine these parts. This package exports the records of their decisions, and
the settings of scaling (`Scaling`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sizewright.recommender.control.action import Choice
    from sizewright.recommender.control.auto_scale import Scaling
    from sizewright.recommender.control.decisions import Decision, DecisionLog, Forecast
    from sizewright.recommender.sizing.pareto import pareto_front

_HOMES = {
    "Choice": "sizewright.recommender.control.action",
    "Decision": "sizewright.recommender.control.decisions",
    "DecisionLog": "sizewright.recommender.control.decisions",
    "Forecast": "sizewright.recommender.control.decisions",
    "Scaling": "sizewright.recommender.control.auto_scale",
    "pareto_front": "sizewright.recommender.sizing.pareto",
}

__all__ = [
    "Choice",
    "Decision",
    "DecisionLog",
    "Forecast",
    "Scaling",
    "pareto_front",
]

if not TYPE_CHECKING:  # a type checker sees the imports above, and says what is not there
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)
