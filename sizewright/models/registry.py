"""Throughput models by name; other packages register theirs in the entry-point group `sizewright.models`."""

from __future__ import annotations

from sizewright.errors import InputError
from sizewright.models._base import BaseThroughputModel
from sizewright.plugins import Plugins

_MODELS = Plugins(
    noun="throughput model",
    group="sizewright.models",
    ours={
        "default": "sizewright.models.default:ThroughputModel",
        "phases": "sizewright.models.phases:PhasesModel",
        "dlrover": "sizewright.models.dlrover:DlroverModel",
        "optimus": "sizewright.models.optimus:OptimusModel",
        "ernest": "sizewright.models.ernest:ErnestModel",
        "usl": "sizewright.models.usl:UslModel",
        "allreduce": "sizewright.models.allreduce:AllreduceModel",
        "gp": "sizewright.models.learned:GaussianProcessModel",
        "lightgbm": "sizewright.models.learned:LightGbmModel",
    },
    contract="ModelContract",
    base=BaseThroughputModel,
)


def model_names() -> tuple[str, ...]:
    """All of them, the default first, those of other packages last. One of these that cannot be loaded is warned of,
    and is not among them."""
    return tuple(_MODELS.names())


def get_model(model: str | BaseThroughputModel) -> BaseThroughputModel:
    """A new one of that name; one that is there already is as it is. Raises InputError where there is none."""
    if isinstance(model, BaseThroughputModel):
        return model
    if not isinstance(model, str):
        raise InputError(
            f"{model!r} is no throughput model.", "Give a name, or an object of a subclass of BaseThroughputModel."
        )
    found: BaseThroughputModel = _MODELS.find(model)()
    return found
