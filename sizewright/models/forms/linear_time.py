"""Iteration time as a sum of non-negative terms: fitted by NNLS, predicted with an interval.

The residuals are relative (each row is divided by its measured time), since the noise of a
measured throughput is a share of it. The interval is the prediction interval of least squares on
the terms that NNLS kept: s²·(1 + xᵀ(XᵀX)⁻¹x) with Student's t at n − k degrees of freedom,
in relative units, so it widens where a term is extrapolated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.special import stdtrit

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

# A term must add at least this share of its own length beyond the terms before it to count as excited.
EXCITED_SHARE = 0.02


@dataclass(frozen=True)
class TimeFit:
    """Coefficients (k,) in seconds per unit of their terms, with the statistics that intervals need."""

    names: tuple[str, ...]
    coefficients: Vector
    excited: NDArray[np.bool_]
    kept: NDArray[np.bool_]
    unscaled_covariance: Matrix
    sigma: float
    degrees_of_freedom: int
    points: int

    @property
    def pinned(self) -> tuple[str, ...]:
        """Terms that the measurements could not distinguish from others."""
        return tuple(name for name, on in zip(self.names, self.excited, strict=True) if not on)

    @property
    def enough(self) -> bool:
        """True with at least two more distinct allocations than excited terms."""
        return self.points >= int(self.excited.sum()) + 2


def fit_time(
    terms: Matrix, seconds: Vector, names: tuple[str, ...], distinct_allocations: int, relative_se: float = 0.0
) -> TimeFit:
    """Fit `seconds` (n,) ≈ `terms` (n, k) · coefficients.

    `relative_se` is the standard error that the trials report; sigma is at least as large.
    """
    excited = find_excited(terms)
    scaled = terms / seconds[:, None]
    coefficients = np.zeros(terms.shape[1])
    coefficients[excited], _ = nnls(scaled[:, excited], np.ones(len(seconds)))
    kept = coefficients > 0
    residuals = scaled @ coefficients - 1
    freedom = max(1, len(seconds) - int(excited.sum()))
    sigma = max(float(np.sqrt(residuals @ residuals / freedom)), relative_se)
    active = scaled[:, kept]
    return TimeFit(
        names=names,
        coefficients=coefficients,
        excited=excited,
        kept=kept,
        unscaled_covariance=np.asarray(np.linalg.pinv(active.T @ active), np.float64),
        sigma=sigma,
        degrees_of_freedom=freedom,
        points=distinct_allocations,
    )


def find_excited(terms: Matrix) -> NDArray[np.bool_]:
    """Return which terms vary independently of those before them (Gram-Schmidt over unit columns, in order)."""
    basis: list[Vector] = []
    excited = np.zeros(terms.shape[1], bool)
    for i, column in enumerate(terms.T):
        length = np.linalg.norm(column)
        if length == 0:
            continue
        remainder = column / length
        for direction in basis:
            remainder = remainder - (remainder @ direction) * direction
        share = np.linalg.norm(remainder)
        if share > EXCITED_SHARE:
            excited[i] = True
            basis.append(remainder / share)
    return excited


def predict_time(fit: TimeFit, terms: Matrix) -> Vector:
    """Return the seconds (n,) of `terms` (n, k)."""
    return terms @ fit.coefficients


def relative_half_width(
    fit: TimeFit, terms: Matrix, seconds: Vector, coverage: float, *, of_trial: bool = True
) -> Vector:
    """Return half the interval of another trial's time, or of the mean, relative to the predicted `seconds` (n,)."""
    active = terms[:, fit.kept] / seconds[:, None]
    leverage = np.sum((active @ fit.unscaled_covariance) * active, axis=1)
    quantile = float(stdtrit(fit.degrees_of_freedom, 0.5 + coverage / 2))
    half_width: Vector = quantile * fit.sigma * np.sqrt(of_trial + leverage)
    return half_width
