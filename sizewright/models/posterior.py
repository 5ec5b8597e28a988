"""Draws from a posterior by differential evolution, which is robust, vectorised and needs no gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Effort(NamedTuple):
    """The length of the search: candidates from the prior, chains, and steps of each chain."""

    candidates: int = 2000
    chains: int = 128
    steps: int = 80


def sample(
    log_likelihood: Callable[[Floats], Floats],
    means: Floats,
    sds: Floats,
    rng: np.random.Generator,
    effort: Effort = Effort(),  # noqa: B008 (a record)
) -> Floats:
    """Return draws (chains, k) of parameters with normal priors of these `means` and `sds` (k,).

    Chains start at likely candidates from the prior and move by differential evolution (ter Braak 2006): each chain
    steps along the difference of two others. `log_likelihood` takes (d, k) and returns (d,).
    """
    dims = len(means)
    candidates = means + sds * rng.standard_normal((effort.candidates, dims))
    likely = log_likelihood(candidates)
    weights = np.exp(likely - likely.max())
    weights = 0.9 * weights / weights.sum() + 0.1 / len(weights)
    z = candidates[rng.choice(len(candidates), effort.chains, p=weights / weights.sum())]

    def log_posterior(at: Floats) -> Floats:
        total: Floats = log_likelihood(at) - 0.5 * (((at - means) / sds) ** 2).sum(axis=1)
        return total

    value = log_posterior(z)
    for step in range(effort.steps):
        first, second = rng.integers(0, effort.chains, (2, effort.chains))
        length = 1.0 if step % 5 == 4 else 2.38 / np.sqrt(2 * dims) * rng.uniform(0.5, 1.2)
        moved = rng.random((effort.chains, dims)) < (1.0 if step % 3 == 0 else 0.4)
        jump = length * (z[first] - z[second]) + 0.05 * sds * rng.standard_normal((effort.chains, dims))
        proposal = z + moved * jump
        proposed = log_posterior(proposal)
        taken = np.log(rng.random(effort.chains)) < proposed - value
        z[taken], value[taken] = proposal[taken], proposed[taken]
    return z
