"""The one place that chooses and stacks throughput models."""

from __future__ import annotations

from collections.abc import Mapping

from sizewright.models._base import BaseThroughputModel
from sizewright.models.axes import MIN_ALLOCATIONS
from sizewright.models.default.predictor import ThroughputModel
from sizewright.models.layers.ceiling import CeilingModel
from sizewright.models.layers.loading import LoadingModel
from sizewright.models.layers.prior import PriorModel
from sizewright.models.layers.validation import ValidatedModel
from sizewright.models.prior.curve import JobCurve
from sizewright.models.registry import get_model


def make_predictor(
    prior_curve: JobCurve | None = None,
    *,
    may_be_input_bound: bool = False,
    parameter_priors: Mapping[str, tuple[float, float]] | None = None,
    min_allocations: int = MIN_ALLOCATIONS,
    seed: int = 0,
) -> BaseThroughputModel:
    """Return the default model, unfitted.

    Parameters
    ----------
    prior_curve
        The curve that a learned prior predicts for the job; the model then predicts before any trial.
    may_be_input_bound
        Whether the input pipeline may limit the throughput, as that of a user's command may.
    parameter_priors
        Replaces priors of parameters, as in `ThroughputModel`.
    min_allocations
        Number of distinct allocations from which a model without a prior is fitted.
    seed
        Seed of the posterior draws.
    """
    model: BaseThroughputModel = ThroughputModel(parameter_priors, seed, min_allocations, prior_curve)
    if may_be_input_bound:
        model = CeilingModel(model)
    if prior_curve:
        model = PriorModel(prior_curve, model)
    return LoadingModel(model) if may_be_input_bound else model


def validated(model: str | BaseThroughputModel) -> BaseThroughputModel:
    """Return a model that the user names or brings, as a validated copy. Raises InputError for an unknown name."""
    return ValidatedModel(get_model(model))
