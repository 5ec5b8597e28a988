"""A prior that is learned from a bank of trials; it predicts the curve of a job that was never measured."""

from sizewright.models.prior.curve import JobCurve
from sizewright.models.prior.fit import LearnedPrior

__all__ = ["JobCurve", "LearnedPrior"]
