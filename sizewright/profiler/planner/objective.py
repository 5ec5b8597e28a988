"""The regret of a choice against the best one, for each curve that may be the true one."""

from __future__ import annotations

from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from sizewright.errors import InputError
from sizewright.spec import Objective
from sizewright.spec.objective import log_objective, regret

Floats = NDArray[np.float64]

SHARE_OF_BEST = 0.8
"""Share of the best throughput that `deadline` asks for if no deadline is given."""

SHORTFALL_WEIGHT = 16.0
"""Default weight of throughput that is missing for `SHARE_OF_BEST`, relative to cost; both as logarithms.

Of 2, 4, 8 and 16, the last leaves the fewest picks that fall short, for about 1 % more cost than 8."""

_DEADLINE_WEIGHT = 20.0  # of throughput missing for a given deadline, relative to cost
_MAX_EXCESS = 3.0  # in log; a choice that is worse than this is simply bad


class Goal(NamedTuple):
    """An objective, the hourly prices (n,) of the allocations, and the samples/s that a deadline asks for."""

    objective: Objective
    hourly_price: Floats
    needed: float | None = None
    shortfall_weight: float = SHORTFALL_WEIGHT
    """Weight of throughput that is missing for `SHARE_OF_BEST`; a given deadline has a higher one of its own."""

    def losses(self, log_rates: Floats) -> Floats:
        """Return the logarithm (…, n) of the objective at log throughput `log_rates` (…, n); less is better.

        For `deadline`, missing throughput counts as cost, with a higher weight if a deadline was given.
        """
        log_price = np.log(np.maximum(self.hourly_price, 1e-12))
        losses = log_objective(self.objective, log_rates, log_price)
        if self.objective != "deadline":
            return losses
        if self.needed:
            log_needed, weight = np.log(self.needed), _DEADLINE_WEIGHT
        else:
            # The best mean over the curves: each curve's own maximum would lie above it.
            best = float(log_rates.reshape(-1, log_rates.shape[-1]).mean(axis=0).max())
            log_needed, weight = np.log(SHARE_OF_BEST) + best, self.shortfall_weight
        return np.asarray(losses + weight * np.maximum(log_needed - log_rates, 0.0))

    def regrets(self, log_rates: Floats) -> Floats:
        """Return the regret (…, n) of each choice against the best, as a share; for `time`, of the throughput."""
        losses = self.losses(log_rates)
        excess = losses - losses.min(axis=-1, keepdims=True)
        return regret(self.objective, np.minimum(excess, _MAX_EXCESS))


def check_objective(objective: str) -> Objective:
    """Return the objective. Raises InputError for an unknown name."""
    known: tuple[Objective, ...] = get_args(Objective)
    for name in known:
        if objective == name:
            return name
    raise InputError(f"There is no objective {objective!r}.", f"Give one of: {', '.join(known)}.")
