"""Retraining of the learned prior, and the registry of its versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sizewright.retraining.compare import PriorScore
    from sizewright.retraining.drift import Drift
    from sizewright.retraining.registry import Registry, Version
    from sizewright.retraining.retrain import Retraining

_HOMES = {
    "PriorScore": "sizewright.retraining.compare",
    "Drift": "sizewright.retraining.drift",
    "Registry": "sizewright.retraining.registry",
    "Retraining": "sizewright.retraining.retrain",
    "Version": "sizewright.retraining.registry",
}

__all__ = [
    "Drift",
    "PriorScore",
    "Registry",
    "Retraining",
    "Version",
]

if not TYPE_CHECKING:  # type checkers use the imports above
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)
