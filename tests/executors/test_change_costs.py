from __future__ import annotations

import math

import numpy as np
import pytest

from sizewright.executors.change_costs import LIVE_PRIOR, PODS_PRIORS, ChangeCosts, CostsOfOneKind, kind_of
from sizewright.spec import Allocation, ChangeCost, Job, Plan

PODS_PRIOR = PODS_PRIORS["launch"]


def learned(seconds: list[float], prior: ChangeCost = PODS_PRIOR) -> ChangeCost:
    costs = CostsOfOneKind(prior)
    for each in seconds:
        costs.add(each)
    return costs.estimate()


def test_estimate_is_the_prior_until_a_change_is_measured() -> None:
    assert learned([]) == PODS_PRIOR
    assert (PODS_PRIOR.seconds, PODS_PRIOR.lower, PODS_PRIOR.upper, PODS_PRIOR.changes) == (90, 30, 180, 0)


def test_measured_changes_soon_outweigh_the_prior() -> None:
    once = learned([300.0])
    assert 90 < once.seconds < 300
    many = learned([300.0] * 20)
    assert many.seconds == pytest.approx(300, rel=0.03)
    assert many.changes == 20
    assert many.lower < 300 < many.upper


@pytest.mark.parametrize("prior", [LIVE_PRIOR, PODS_PRIOR], ids=["live", "pods"])
def test_interval_narrows_with_more_changes(prior: ChangeCost) -> None:
    logs = np.random.default_rng(1).normal(math.log(prior.seconds), 0.2, (50, 40))

    def width(changes: int) -> float:
        costs = [learned(list(np.exp(row[:changes])), prior) for row in logs]
        return float(np.mean([cost.upper / cost.lower for cost in costs]))

    widths = [width(changes) for changes in (0, 3, 10, 40)]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 2.2


@pytest.mark.parametrize("sigma", [0.2, 0.5])
@pytest.mark.parametrize("off", [0.3, 1.0, 4.0], ids=["faster than the prior", "as the prior", "slower"])
@pytest.mark.parametrize("prior", [LIVE_PRIOR, PODS_PRIOR], ids=["live", "pods"])
def test_interval_covers_about_nine_of_ten_changes(prior: ChangeCost, off: float, sigma: float) -> None:
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(400):
        *observed, following = np.exp(rng.normal(math.log(prior.seconds * off), sigma, 21))
        cost = learned(observed, prior)
        hits += cost.lower <= following <= cost.upper
    assert 0.85 <= hits / 400 <= 0.98


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e9])
def test_interval_is_ordered_for_any_duration(seconds: float) -> None:
    cost = learned([seconds, 1.0])
    assert 0 < cost.lower <= cost.seconds <= cost.upper < math.inf


def test_each_kind_of_change_is_learned_separately() -> None:
    one, two, larger = (Allocation.of(n, 1, cpu, 1.0, 64) for n, cpu in ((1, 1.0), (2, 1.0), (1, 2.0)))
    base = Plan(id="p", kind="adjust", job=Job(name="ctr"), current=one, target=one, reason="")
    plans = {
        "launch": base.model_copy(update={"kind": "launch", "current": None}),
        "resize": base.model_copy(update={"target": larger}),
        "scale": base.model_copy(update={"target": two}),
        "rebalance": base.model_copy(update={"rebalance": True}),
    }
    costs = ChangeCosts(PODS_PRIORS)
    for number, (kind, plan) in enumerate(plans.items(), 1):
        assert kind_of(plan) == kind
        for _ in range(number):
            costs.add(plan, 2.0)
    assert [costs.estimate(plan).changes for plan in plans.values()] == [1, 2, 3, 4]
    assert costs.estimate(base).upper == 0
    assert kind_of(base.model_copy(update={"migrate": ("ps-1",)})) == "scale"
