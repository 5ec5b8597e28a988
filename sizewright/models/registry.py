"""Throughput models by name."""

from __future__ import annotations

import importlib

from sizewright.errors import InputError
from sizewright.models._base import BaseThroughputModel

_HOMES = {
    "default": ("default", "ThroughputModel"),
    "phases": ("phases", "PhasesModel"),
    "dlrover": ("dlrover", "DlroverModel"),
    "optimus": ("optimus", "OptimusModel"),
    "ernest": ("ernest", "ErnestModel"),
    "usl": ("usl", "UslModel"),
    "allreduce": ("allreduce", "AllreduceModel"),
    "gp": ("learned", "GaussianProcessModel"),
    "lightgbm": ("learned", "LightGbmModel"),
}


def model_names() -> tuple[str, ...]:
    """All of them, the default first."""
    return tuple(_HOMES)


def get_model(name: str) -> BaseThroughputModel:
    """A new one. Raises InputError for a name that is not known."""
    if name not in _HOMES:
        raise InputError(f"There is no throughput model {name!r}.", f"Name one of: {', '.join(_HOMES)}.")
    module, kind = _HOMES[name]
    model: BaseThroughputModel = getattr(importlib.import_module(f"sizewright.models.{module}"), kind)()
    return model
