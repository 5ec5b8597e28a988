"""What to expect of the chosen allocation and its hosts: time, cost, and the probability to meet the deadline."""

from __future__ import annotations

import numpy as np

from sizewright.recommender.machines.times import Times
from sizewright.recommender.sizing.result import Selection
from sizewright.spec import Estimate, Machines
from sizewright.spec.objective import cost_of


def estimate(value: float, lower: float, upper: float) -> Estimate:
    """Return a value with its 90 % interval."""
    return Estimate(value=float(value), lower=float(lower), upper=float(upper))


def time_and_cost(selection: Selection) -> tuple[Estimate | None, Estimate | None]:
    """Return the completion time and the cost of the chosen allocation.

    Both are None where the number of samples is unknown; the cost is where the allocation does not fit any host.
    """
    scored, row = selection.scored, selection.chosen
    if not selection.job.samples:
        return None, None
    times = Times(selection.job, selection.offer)
    lower_s, upper_s = times.interval_s(
        float(scored.throughput[row]), float(scored.lower[row]), float(scored.upper[row]), float(scored.hosts[row])
    )
    time = estimate(scored.time_s[row], lower_s, upper_s)
    hourly = float(scored.price_per_hour[row])
    if not np.isfinite(hourly):
        return time, None
    return time, estimate(*(cost_of(each, hourly) for each in (time.value, time.lower, time.upper)))


def deadline_probability(selection: Selection) -> float | None:
    """Return the probability that the chosen allocation completes by the job's deadline; None without one."""
    scored, row, job = selection.scored, [selection.chosen], selection.job
    if job.deadline is None or not job.samples:
        return None
    rates = scored.throughput[row], scored.upper[row], scored.slowest[row]
    return float(Times(job, selection.offer).probability_within(job.deadline, *rates, scored.hosts[row])[0])


def machines_of(selection: Selection, *, chosen: bool = False) -> Machines:
    """Return the hosts of the chosen allocation, which are on offer, with what to expect of them."""
    offer = selection.offer
    assert offer is not None, "hosts have no price"
    time, cost = time_and_cost(selection)
    return Machines(
        kind=offer.host.kind,
        hosts=int(selection.scored.hosts[selection.chosen]),
        spot=offer.spot,
        price_hour=offer.price_hour,
        interruptions_hour=3600 * offer.interruptions_s,
        allocation=selection.allocation(selection.chosen),
        completion_time_s=time,
        cost=cost,
        deadline_probability=deadline_probability(selection),
        chosen=chosen,
    )
