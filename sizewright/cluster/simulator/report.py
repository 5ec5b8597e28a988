"""Runs of a sweep as records: one for each run, and their means over the seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from scipy import stats

from sizewright.cluster.simulator.scenario import Simulated
from sizewright.spec.recommendation import Estimate
from sizewright.spec.simulation import SimulatedDecision, SimulatedRun, SimulationRow


def run_of(simulated: Simulated, resources: Sequence[str], *, decisions: bool = False) -> SimulatedRun:
    """What is kept of a run, its `decisions` one by one if they are wanted."""
    scenario, result = simulated.scenario, simulated.result
    done = result.done
    percentiles = np.percentile(done, np.arange(101)).tolist() if len(done) else []
    return SimulatedRun(
        policy=result.policy, load=scenario.load, seed=scenario.seed,
        capacity=dict(zip(resources, simulated.capacity.tolist(), strict=True)),
        figures=result.figures() | simulated.of_supply, completion_s=tuple(percentiles),
        decisions=tuple(SimulatedDecision(**each._asdict()) for each in result.decisions) if decisions else (),
    )  # fmt: skip


def rows_of(runs: Iterable[SimulatedRun]) -> tuple[SimulationRow, ...]:
    """In the order in which policies and loads first appear."""
    by_case: dict[tuple[float, str], list[SimulatedRun]] = {}
    for run in runs:
        by_case.setdefault((run.load, run.policy), []).append(run)
    return tuple(
        SimulationRow(
            policy=policy, load=load, seeds=len(told),
            figures={name: mean_of([run.figures[name] for run in told]) for name in told[0].figures},
        )
        for (load, policy), told in by_case.items()
    )  # fmt: skip


def mean_of(values: Sequence[float], coverage: float = 0.95) -> Estimate:
    """The mean, with Student's interval; of one value, that value."""
    array = np.array(values)
    mean = float(array.mean())
    if len(array) < 2:
        return Estimate(value=mean, lower=mean, upper=mean)
    half = float(stats.t.ppf(0.5 + coverage / 2, len(array) - 1) * array.std(ddof=1) / np.sqrt(len(array)))
    return Estimate(value=mean, lower=mean - half, upper=mean + half)
