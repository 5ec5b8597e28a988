"""How long changes take, learned from those that were measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from sizewright.spec import ROLES, ChangeCost, Plan

ChangeKind = Literal["launch", "resize", "scale", "rebalance", "restart"]

RESIZE_PRIOR = ChangeCost(seconds=0.05, lower=0.005, upper=0.5)
"""Limits of replicas that stay, while they train on."""
LIVE_PRIOR = ChangeCost(seconds=3.0, lower=0.5, upper=15.0)
"""Replicas that come or go while the others train on."""
REBALANCE_PRIOR = ChangeCost(seconds=5.0, lower=1.0, upper=15.0)
"""Rows that change places while all train on."""
START_PRIOR = ChangeCost(seconds=10.0, lower=2.0, upper=60.0)
RESTART_PRIOR = ChangeCost(seconds=20.0, lower=3.0, upper=120.0)
_PODS_PRIOR = ChangeCost(seconds=90.0, lower=30.0, upper=180.0)
NO_CHANGE = ChangeCost(seconds=0.0, lower=0.0, upper=0.0)

_COVERAGE = 0.9
_SHORTEST_S = 1e-3  # a logarithm needs more than nothing
# What the prior counts in measured changes: little, since platforms differ more than the changes of one.
_MIDDLE_WEIGHT = 0.2
_SPREAD_WEIGHT = 0.5
_NORMAL_95 = 1.645


SESSION_PRIORS: Mapping[ChangeKind, ChangeCost] = {
    "launch": START_PRIOR, "resize": RESIZE_PRIOR, "scale": LIVE_PRIOR, "rebalance": REBALANCE_PRIOR,
    "restart": RESTART_PRIOR,
}  # fmt: skip
"""Of replicas that are processes of this host, or of a running Ray."""
PODS_PRIORS: Mapping[ChangeKind, ChangeCost] = dict.fromkeys(SESSION_PRIORS, _PODS_PRIOR)
"""Of replicas that wait in a queue first."""


def kind_of(plan: Plan) -> ChangeKind:
    """Which changes take as long as this one."""
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
    """Of one executor: what changes of each kind take, from the plan to the first step after it."""

    def __init__(self, priors: Mapping[ChangeKind, ChangeCost]) -> None:
        self._priors = priors
        self._kinds: dict[ChangeKind, CostsOfOneKind] = {}
        self.listeners: list[Callable[[Plan, float], None]] = []
        self.kept_in: set[Path] = set()
        """Ledgers whose costs are known here, and that are told of new ones."""

    def add(self, plan: Plan, seconds: float) -> None:
        """One more was measured, in `seconds` from the plan to the first step after it; whoever listens is told."""
        self.remember(kind_of(plan), seconds)
        for listener in self.listeners:
            listener(plan, seconds)

    def remember(self, kind: ChangeKind, seconds: float) -> None:
        """One that took so many `seconds` when it was measured before, perhaps by another process."""
        self._of(kind).add(seconds)

    def estimate(self, plan: Plan) -> ChangeCost:
        """Seconds of the next such change with its 90 % interval; 0 where nothing changes."""
        return NO_CHANGE if plan.changes_nothing else self._of(kind_of(plan)).estimate()

    def _of(self, kind: ChangeKind) -> CostsOfOneKind:
        return self._kinds.setdefault(kind, CostsOfOneKind(self._priors[kind]))


class CostsOfOneKind:
    """Gathers measured seconds of changes; the logarithms are taken as normal, with a conjugate prior.

    The interval is that of the next change, not of the mean: 90 % of changes fall into it.
    """

    def __init__(self, prior: ChangeCost) -> None:
        self.prior = prior
        self._logs: list[float] = []

    def add(self, seconds: float) -> None:
        """One more change was measured."""
        self._logs.append(math.log(max(seconds, _SHORTEST_S)))

    def estimate(self) -> ChangeCost:
        """Median seconds of the next change with its 90 % interval; the prior itself until one is measured."""
        if not self._logs:
            return self.prior
        n, mean, middle = len(self._logs), sum(self._logs) / len(self._logs), math.log(self.prior.seconds)
        weight = n + _MIDDLE_WEIGHT
        centre = (n * mean + _MIDDLE_WEIGHT * middle) / weight
        squares = sum((x - mean) ** 2 for x in self._logs) + _MIDDLE_WEIGHT * n / weight * (mean - middle) ** 2
        degrees = n + _SPREAD_WEIGHT
        variance = (_SPREAD_WEIGHT * _prior_variance(self.prior) + squares) / degrees
        half = _quantile(degrees) * math.sqrt(variance * (1 + 1 / weight))
        return ChangeCost(
            seconds=math.exp(centre), lower=math.exp(centre - half), upper=math.exp(centre + half), changes=n
        )


def _prior_variance(prior: ChangeCost) -> float:
    """Of the changes of one platform: half of the prior's spread is taken to lie between platforms."""
    half = math.log(prior.upper / prior.lower) / 2
    return (half / 2 / _NORMAL_95) ** 2


def _quantile(degrees: float) -> float:
    """Student's t, so that few measured changes give a wide interval."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + _COVERAGE) / 2))
