"""Records of the runs of a sweep, and their means over the seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from scipy import stats

from sizewright.cluster.simulator.outcome import SimulationResult
from sizewright.cluster.simulator.scenario import ScenarioResult
from sizewright.spec.recommendation import Estimate
from sizewright.spec.simulation import JobOutcome, SimulatedDecision, SimulatedRun, SimulationRow


def run_of(
    simulated: ScenarioResult, resources: Sequence[str], *, decisions: bool = False, outcomes: bool = False
) -> SimulatedRun:
    """Return the record of a run, with each decision if `decisions` is True, and each job if `outcomes` is True."""
    scenario, result = simulated.scenario, simulated.result
    completion_s = result.done
    percentiles = np.percentile(completion_s, np.arange(101)).tolist() if len(completion_s) else []
    return SimulatedRun(
        policy=result.policy,
        load=scenario.load,
        seed=scenario.seed,
        capacity=dict(zip(resources, simulated.capacity.tolist(), strict=True)),
        figures=result.figures() | simulated.supply_figures,
        completion_s=tuple(percentiles),
        decisions=tuple(SimulatedDecision(**each._asdict()) for each in result.decisions) if decisions else (),
        outcomes=_outcomes(result) if outcomes else (),
    )


def _outcomes(result: SimulationResult) -> tuple[JobOutcome, ...]:
    columns = {
        name: [None if math.isnan(value) else value for value in getattr(result, name).tolist()]
        for name in (
            "arrived_s", "started_s", "finished_s", "waited_s", "ran_s", "preemptions", "changes", "failures"
        )
    }  # fmt: skip
    attained = [dict(zip(result.resources, row, strict=True)) for row in result.attained.tolist()]
    return tuple(
        JobOutcome(job=job, attained=attained[i], **{name: values[i] for name, values in columns.items()})
        for i, job in enumerate(result.jobs)
    )


def rows_of(runs: Iterable[SimulatedRun]) -> tuple[SimulationRow, ...]:
    """Return one row per load and policy, in order of first appearance."""
    by_case: dict[tuple[float, str], list[SimulatedRun]] = {}
    for run in runs:
        by_case.setdefault((run.load, run.policy), []).append(run)
    rows = []
    for (load, policy), group in by_case.items():
        figures = {name: mean_of([run.figures[name] for run in group]) for name in group[0].figures}
        rows.append(SimulationRow(policy=policy, load=load, seeds=len(group), figures=figures))
    return tuple(rows)


def mean_of(values: Sequence[float], coverage: float = 0.95) -> Estimate:
    """Return the mean with its Student t interval; of a single value, that value."""
    array = np.array(values)
    mean = float(array.mean())
    if len(array) < 2:
        return Estimate(value=mean, lower=mean, upper=mean)
    half = float(stats.t.ppf(0.5 + coverage / 2, len(array) - 1) * array.std(ddof=1) / np.sqrt(len(array)))
    return Estimate(value=mean, lower=mean - half, upper=mean + half)
