"""Retraining of the learned prior, and the registry that its versions are kept in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.names import lazily

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

if not TYPE_CHECKING:  # a type checker sees the imports above, and says what is not there
    __getattr__, __dir__ = lazily(__name__, _HOMES)
