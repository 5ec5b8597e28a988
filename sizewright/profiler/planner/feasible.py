"""The probability that a trial of a candidate succeeds, learned from trials that succeeded and that failed.

Failures have borders: beyond some number of workers, cores or samples per step, memory runs out. A logistic regression
over the logarithms of the axes models such a border. Its weights have a normal prior around "succeeds"; weights are
drawn from Laplace's approximation (MacKay 1992), so that the uncertainty after a few trials is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit

Floats = NDArray[np.float64]

_INTERCEPT_MEAN = 1.5
_INTERCEPT_SD = 1.5
_SLOPE_SD = 8.0
_DRAWS = 200


def success_probability(
    points: Floats, succeeded: Sequence[int], failed: Sequence[int], rng: np.random.Generator
) -> Floats:
    """Return the probability (n,) of candidates at `points` (n, a) in the unit cube; 1 if no trial failed yet.

    `succeeded` and `failed` are the rows of the trials. A tried row has probability 1 if it succeeded at least as often
    as it failed, else 0.
    """
    if not failed:
        return np.ones(len(points))
    design = np.column_stack([np.ones(len(points)), points - 0.5])
    tried = [*succeeded, *failed]
    x = design[tried]
    sign = np.array([1.0] * len(succeeded) + [-1.0] * len(failed))
    mean = np.array([_INTERCEPT_MEAN] + [0.0] * points.shape[1])
    precision = 1 / np.array([_INTERCEPT_SD] + [_SLOPE_SD] * points.shape[1]) ** 2

    def negative_log_posterior(weights: Floats) -> tuple[float, Floats]:
        margin = sign * (x @ weights)
        deviation = weights - mean
        gradient = -(sign * expit(-margin)) @ x + precision * deviation
        return float(-log_expit(margin).sum() + 0.5 * (precision * deviation**2).sum()), gradient

    mode = minimize(negative_log_posterior, mean, jac=True, method="BFGS").x
    fitted = expit(x @ mode)
    hessian = (x * (fitted * (1 - fitted))[:, None]).T @ x + np.diag(precision)
    draws = rng.multivariate_normal(mode, np.linalg.inv(hessian), _DRAWS)
    probability = expit(design @ draws.T).mean(axis=1)
    for row in set(tried):
        probability[row] = float(list(succeeded).count(row) >= list(failed).count(row))
    return np.asarray(probability)
