"""The number of inference servers that can be lent: all, minus a forecast of their own demand and a headroom."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.problem.problem import Floats, Ints

COVERAGE = 0.98
"""Share of the forecast's past errors that the retained servers cover."""
HEADROOM = 0.02
"""Share of all servers that is retained in addition, as we understand Aryl."""
MIN_ERRORS = 24
"""Nothing is lent until the errors of this many forecasts are known."""
PERIODS = 7
"""Number of past periods that are averaged."""
RECENT = 6
"""Number of recent steps from which the level of the present period is estimated."""


def forecast(demand: Floats, period: int) -> float:
    """Forecast the next value of a series (T,) with a seasonal `period`.

    The forecast is the mean of the recent steps, plus the mean rise from the same steps to the same time in the past
    periods.
    """
    now = len(demand)
    recent = min(RECENT, period, now)
    same_times = [now - back * period for back in range(1, PERIODS + 1) if now - back * period >= recent]
    if not same_times:
        return float(demand[-1])
    rises = [demand[at] - demand[at - recent : at].mean() for at in same_times]
    return float(demand[-recent:].mean() + np.mean(rises))


def lendable(demand: Floats, servers: int, period: int) -> Ints:
    """Return the servers to lend (T,) in each step, computed from the demand of earlier steps only.

    That is max(servers − ⌈forecast + quantile of its errors in the last period + HEADROOM·servers⌉, 0).

    `demand` (T,) is in servers; `period` is a day, in steps.
    """
    lent = np.zeros(len(demand), dtype=np.intp)
    errors: list[float] = []
    for step in range(1, len(demand)):
        expected = forecast(demand[:step], period)
        if len(errors) >= MIN_ERRORS:
            retained = expected + float(np.quantile(errors[-period:], COVERAGE)) + HEADROOM * servers
            lent[step] = max(servers - int(np.ceil(max(retained, 0.0))), 0)
        errors.append(float(demand[step]) - expected)
    return lent


def shortfall(demand: Floats, lent: Ints, servers: int) -> float:
    """Return the share of steps in which inference needs servers that are lent."""
    return float((demand > servers - lent).mean()) if len(demand) else 0.0
