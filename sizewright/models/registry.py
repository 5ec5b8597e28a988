"""Throughput models by name; other packages register theirs in the entry-point group `sizewright.models`."""

from __future__ import annotations

from sizewright.errors import InputError
from sizewright.models._base import BaseThroughputModel
from sizewright.plugins import Plugins

_MODELS = Plugins(
    noun="throughput model",
    group="sizewright.models",
    builtin={
        "default": "sizewright.models.default.predictor:ThroughputModel",
        "phases": "sizewright.models.default.phases:PhasesModel",
        "dlrover": "sizewright.models.forms.dlrover:DlroverModel",
        "optimus": "sizewright.models.forms.optimus:OptimusModel",
        "ernest": "sizewright.models.forms.ernest:ErnestModel",
        "usl": "sizewright.models.forms.usl:UslModel",
        "allreduce": "sizewright.models.forms.allreduce:AllreduceModel",
        "gp": "sizewright.models.forms.black_box:GaussianProcessModel",
        "lightgbm": "sizewright.models.forms.black_box:LightGbmModel",
    },
    contract="ModelContract",
    base=BaseThroughputModel,
)


def model_names() -> tuple[str, ...]:
    """Return the names of all models, the default first, those of other packages last.

    A model of another package that cannot be loaded is left out with a warning.
    """
    return tuple(_MODELS.names())


def get_model(model: str | BaseThroughputModel) -> BaseThroughputModel:
    """Return a new model of that name; a model is returned unchanged. Raises InputError for an unknown name."""
    if isinstance(model, BaseThroughputModel):
        return model
    if not isinstance(model, str):
        raise InputError(
            f"{model!r} is not a throughput model.", "Give a name, or an object of a subclass of BaseThroughputModel."
        )
    new_model: BaseThroughputModel = _MODELS.find(model)()
    return new_model
