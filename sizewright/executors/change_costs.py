"""Estimate how long changes take, from a prior and the changes that were measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from sizewright.spec import ROLES, ChangeCost, Plan

ChangeKind = Literal["launch", "resize", "resize_pods", "scale", "rebalance", "restart"]

RESIZE_PRIOR = ChangeCost(seconds=0.05, lower=0.005, upper=0.5)
"""Changes of limits while the replicas train on."""
LIVE_PRIOR = ChangeCost(seconds=3.0, lower=0.5, upper=15.0)
"""Replicas that start or stop while the others train on."""
REBALANCE_PRIOR = ChangeCost(seconds=5.0, lower=1.0, upper=15.0)
"""Rows that move between PS while all replicas train on."""
START_PRIOR = ChangeCost(seconds=10.0, lower=2.0, upper=60.0)
RESTART_PRIOR = ChangeCost(seconds=20.0, lower=3.0, upper=120.0)
_PODS_PRIOR = ChangeCost(seconds=90.0, lower=30.0, upper=180.0)
NO_CHANGE = ChangeCost(seconds=0.0, lower=0.0, upper=0.0)

_COVERAGE = 0.9
_MIN_S = 1e-3  # for the logarithm
# Weights of the prior in measured changes: small, since platforms differ more than the changes of one platform.
_MEAN_WEIGHT = 0.2
_VARIANCE_WEIGHT = 0.5
_NORMAL_95 = 1.645


SESSION_PRIORS: Mapping[ChangeKind, ChangeCost] = {
    "launch": START_PRIOR,
    "resize": RESIZE_PRIOR,
    "resize_pods": RESIZE_PRIOR,
    "scale": LIVE_PRIOR,
    "rebalance": REBALANCE_PRIOR,
    "restart": RESTART_PRIOR,
}
"""Priors for replicas that are processes of this host, or of a running Ray."""
PODS_PRIORS: Mapping[ChangeKind, ChangeCost] = {
    **dict.fromkeys(SESSION_PRIORS, _PODS_PRIOR),
    "resize_pods": ChangeCost(seconds=5.0, lower=1.0, upper=60.0),
}
"""Priors for replicas that wait in a queue first, except pods that their nodes resize while they train on."""


def kind_of(plan: Plan) -> ChangeKind:
    """Return the kind of a change: changes of one kind take about as long."""
    if plan.kind == "launch":
        return "launch"
    if plan.job.command:
        return "restart"
    if plan.rebalance and not plan.migrate and plan.target == plan.current:
        return "rebalance"
    if plan.current is None or plan.migrate or plan.rebalance:
        return "scale"
    same = all(plan.current.replicas(role) == plan.target.replicas(role) for role in ROLES)
    return "resize" if same else "scale"


class ChangeCosts:
    """The seconds of one executor's changes by kind, from the plan to the first step after it."""

    def __init__(self, priors: Mapping[ChangeKind, ChangeCost]) -> None:
        self._priors = priors
        self._kinds: dict[ChangeKind, CostsOfOneKind] = {}
        self.listeners: list[Callable[[Plan, ChangeKind, float], None]] = []
        self.recorded_in: set[Path] = set()
        """Audit logs whose costs were added here, and that record new ones."""

    def add(self, plan: Plan, seconds: float, kind: ChangeKind | None = None) -> None:
        """Add a measured change of `seconds` from the plan to the first step after it, and call the listeners.

        `kind` is how the platform carried it out, if that is not the plan's own kind.
        """
        kind = kind or kind_of(plan)
        self.remember(kind, seconds)
        for listener in self.listeners:
            listener(plan, kind, seconds)

    def remember(self, kind: ChangeKind, seconds: float) -> None:
        """Add a change that was measured earlier, perhaps by another process."""
        self._of(kind).add(seconds)

    def estimate(self, plan: Plan, kind: ChangeKind | None = None) -> ChangeCost:
        """Return the estimated seconds of the next such change with a 90 % interval; 0 where nothing changes."""
        return NO_CHANGE if plan.changes_nothing else self._of(kind or kind_of(plan)).estimate()

    def _of(self, kind: ChangeKind) -> CostsOfOneKind:
        return self._kinds.setdefault(kind, CostsOfOneKind(self._priors[kind]))


class CostsOfOneKind:
    """Measured seconds of changes of one kind; their logarithms are normal, with a conjugate prior.

    The interval is that of the next change, not of the mean: 90 % of changes fall into it.
    """

    def __init__(self, prior: ChangeCost) -> None:
        self.prior = prior
        self._logs: list[float] = []

    def add(self, seconds: float) -> None:
        """Add a measured change."""
        self._logs.append(math.log(max(seconds, _MIN_S)))

    def estimate(self) -> ChangeCost:
        """Return the median seconds of the next change with its 90 % interval; the prior until one is measured."""
        if not self._logs:
            return self.prior
        n = len(self._logs)
        mean = sum(self._logs) / n
        prior_mean = math.log(self.prior.seconds)
        weight = n + _MEAN_WEIGHT
        centre = (n * mean + _MEAN_WEIGHT * prior_mean) / weight
        squares = sum((x - mean) ** 2 for x in self._logs) + _MEAN_WEIGHT * n / weight * (mean - prior_mean) ** 2
        degrees = n + _VARIANCE_WEIGHT
        variance = (_VARIANCE_WEIGHT * _prior_variance(self.prior) + squares) / degrees
        half = _quantile(degrees) * math.sqrt(variance * (1 + 1 / weight))
        return ChangeCost(
            seconds=math.exp(centre), lower=math.exp(centre - half), upper=math.exp(centre + half), changes=n
        )


def _prior_variance(prior: ChangeCost) -> float:
    """Return the prior variance within one platform: half of the prior's width is taken to lie between platforms."""
    half = math.log(prior.upper / prior.lower) / 2
    return (half / 2 / _NORMAL_95) ** 2


def _quantile(degrees: float) -> float:
    """Return the quantile of Student's t, so that few measured changes give a wide interval."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + _COVERAGE) / 2))
