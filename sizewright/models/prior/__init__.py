"""A prior learned from a bank of trials: a curve for a job that was never measured."""

from sizewright.models.prior.curve import JobCurve
from sizewright.models.prior.learned import LearnedPrior

__all__ = ["JobCurve", "LearnedPrior"]
