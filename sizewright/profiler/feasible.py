"""How likely candidates are to end well, learned from those that did and those that failed.

Failures have borders: beyond some number of workers, cores or samples a step memory ends. A logistic regression over
the logarithms of the axes draws such a border; its weights are normal a priori, around "well", and what a few trials
leave open is kept by drawing weights from Laplace's approximation (MacKay 1992).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit

Floats = NDArray[np.float64]

_LEVEL, _LEVEL_SD, _SLOPE_SD = 1.5, 1.5, 8.0
_DRAWS = 200


def likely_to_end_well(places: Floats, well: Sequence[int], failed: Sequence[int], rng: np.random.Generator) -> Floats:
    """Probability (n,) for candidates at `places` (n, a), in the unit cube; 1 as long as none failed.

    `well` and `failed` are the rows of the trials that did; what did well at least as often as it failed is sure.
    """
    if not failed:
        return np.ones(len(places))
    tried = [*well, *failed]
    x = np.column_stack([np.ones(len(tried)), places[tried] - 0.5])
    sign = np.array([1.0] * len(well) + [-1.0] * len(failed))
    mean = np.array([_LEVEL] + [0.0] * places.shape[1])
    precision = 1 / np.array([_LEVEL_SD] + [_SLOPE_SD] * places.shape[1]) ** 2

    def energy(weights: Floats) -> tuple[float, Floats]:
        margin, off = sign * (x @ weights), weights - mean
        slope = -(sign * expit(-margin)) @ x + precision * off
        return float(-log_expit(margin).sum() + 0.5 * (precision * off**2).sum()), slope

    best = minimize(energy, mean, jac=True, method="BFGS").x
    share = expit(x @ best)
    curvature = (x * (share * (1 - share))[:, None]).T @ x + np.diag(precision)
    draws = rng.multivariate_normal(best, np.linalg.inv(curvature), _DRAWS)
    chance = expit(np.column_stack([np.ones(len(places)), places - 0.5]) @ draws.T).mean(axis=1)
    for place in set(tried):
        chance[place] = float(list(well).count(place) >= list(failed).count(place))
    return np.asarray(chance)
