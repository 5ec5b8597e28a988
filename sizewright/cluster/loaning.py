"""How many inference servers can be lent: what their own demand is foretold to leave, less a headroom."""

from __future__ import annotations

import numpy as np

from sizewright.cluster.problem import Floats, Ints

COVERAGE = 0.98
"""Share of the forecast's past errors that the servers kept back cover."""
HEADROOM = 0.02
"""Of all servers, kept back besides; as Aryl is taken to do."""
FEW = 24
"""Forecasts before whose errors are known nothing is lent."""


PERIODS = 7
"""So many of the last are averaged."""
RECENT = 6
"""Steps that tell by how much this period differs from those before."""


def forecast(seen: Floats, period: int) -> float:
    """The next value of a series that repeats itself by `period`.

    As it was at this time of the periods before, on average, and by as much higher as the last steps were.
    """
    now = len(seen)
    recent = min(RECENT, period, now)
    before = [now - back * period for back in range(1, PERIODS + 1) if now - back * period >= recent]
    if not before:
        return float(seen[-1])
    shifts = [seen[at] - seen[at - recent : at].mean() for at in before]
    return float(seen[-recent:].mean() + np.mean(shifts))


def lendable(demand: Floats, servers: int, period: int) -> Ints:
    """(T,): servers to lend in each step, told from the demand (T,) of the steps before it only:
    servers − ⌈forecast + quantile of its errors of the last period + HEADROOM·servers⌉, 0 at least.

    `demand` is in servers; `period` is a day, in steps.
    """
    lent, errors = np.zeros(len(demand), dtype=np.intp), list[float]()
    for step in range(1, len(demand)):
        foretold = forecast(demand[:step], period)
        if len(errors) >= FEW:
            kept = foretold + float(np.quantile(errors[-period:], COVERAGE)) + HEADROOM * servers
            lent[step] = max(servers - int(np.ceil(max(kept, 0.0))), 0)
        errors.append(float(demand[step]) - foretold)
    return lent


def shortfall(demand: Floats, lent: Ints, servers: int) -> float:
    """Share of the steps in which inference lacks servers that are lent."""
    return float((demand > servers - lent).mean()) if len(demand) else 0.0
