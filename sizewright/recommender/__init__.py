"""From trials to a recommended allocation, and from what a running job shows to a better one.

`sizewright.recommend`, `run` and `tune` put these parts together; here are the records that they tell of decisions,
and how readily they make them (`Scaling`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.names import lazily

if TYPE_CHECKING:
    from sizewright.recommender.action import Choice
    from sizewright.recommender.auto_scale import Scaling
    from sizewright.recommender.decisions import Decision, DecisionLog, Forecast
    from sizewright.recommender.pareto import pareto_front

_HOMES = {
    "Choice": "sizewright.recommender.action",
    "Decision": "sizewright.recommender.decisions",
    "DecisionLog": "sizewright.recommender.decisions",
    "Forecast": "sizewright.recommender.decisions",
    "Scaling": "sizewright.recommender.auto_scale",
    "pareto_front": "sizewright.recommender.pareto",
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
    __getattr__, __dir__ = lazily(__name__, _HOMES)
