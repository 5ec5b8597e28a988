"""What a choice loses against the best one, for curves that may be the truth."""

from __future__ import annotations

from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from sizewright.errors import InputError
from sizewright.spec import Objective
from sizewright.spec.objective import log_objective, regret

Floats = NDArray[np.float64]

SHARE_OF_BEST = 0.8
"""Where no deadline is given, `deadline` asks for so much of the greatest throughput."""

_SHORT, _SHORT_OF_BEST = 20.0, 8.0
_MOST_EXCESS = 3.0  # in log: beyond that a choice is merely bad


class Goal(NamedTuple):
    """An objective over allocations of these hourly prices (n,), and the samples/s that a deadline asks for."""

    objective: Objective
    hourly_price: Floats
    needed: float | None = None

    def losses(self, log_rates: Floats) -> Floats:
        """Logarithm (…, n) of the objective where throughput is `log_rates` (…, n); less is better.

        For `deadline` what is lacking of the throughput counts like cost, many times over where a deadline was given.
        """
        log_price = np.log(np.maximum(self.hourly_price, 1e-12))
        losses = log_objective(self.objective, log_rates, log_price)
        if self.objective != "deadline":
            return losses
        needed = np.log(self.needed) if self.needed else np.log(SHARE_OF_BEST) + _best(log_rates)
        weight = _SHORT if self.needed else _SHORT_OF_BEST
        return np.asarray(losses + weight * np.maximum(needed - log_rates, 0.0))

    def regrets(self, log_rates: Floats) -> Floats:
        """What each choice loses (…, n) against the best, as a share; for `time` of the throughput."""
        losses = self.losses(log_rates)
        excess = losses - losses.min(axis=-1, keepdims=True)
        return regret(self.objective, np.minimum(excess, _MOST_EXCESS))


def _best(log_rates: Floats) -> float:
    """The greatest throughput to be had, on average over the curves: each curve's own greatest would lie above it."""
    return float(log_rates.reshape(-1, log_rates.shape[-1]).mean(axis=0).max())


def check_objective(objective: str) -> Objective:
    """The objective. Raises InputError for another word."""
    known: tuple[Objective, ...] = get_args(Objective)
    for word in known:
        if objective == word:
            return word
    raise InputError(f"There is no objective {objective!r}.", f"Give one of: {', '.join(known)}.")
