"""One case of a sweep: a trace under a policy, at a load, with a seed."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace

import numpy as np

from sizewright.cluster.allocators import Allocator, get_allocator
from sizewright.cluster.loaning import lendable, shortfall
from sizewright.cluster.placement import Servers
from sizewright.cluster.problem import Floats
from sizewright.cluster.reclaim import RECLAIMS
from sizewright.cluster.simulator.curves import Curve, Elasticity, scaled, workload_of
from sizewright.cluster.simulator.engine import Settings, Simulation
from sizewright.cluster.simulator.outcome import Result
from sizewright.cluster.simulator.supply import Loaned, Placed, Supply, equal_servers
from sizewright.cluster.simulator.workload import Workload
from sizewright.datasets.traces import Trace
from sizewright.errors import InputError

DAY_S = 86400.0


@dataclass(frozen=True)
class Loans:
    """Inference servers that are lent while their own demand is low."""

    servers: int
    units: float = 8.0
    """Of the first resource, in each server, own ones too."""
    demand: Floats | None = None
    """(T,): servers that inference needs, step by step; absent: a day between 42 and 95 %, as Aryl's cluster has."""
    step_s: float = 300.0
    reclaim: str = "least-cost"


@dataclass(frozen=True)
class Scenario:
    """What to simulate; `capacity` (R,) and `servers` are told by the load where they are absent."""

    policy: str | Allocator
    load: float = 0.9
    seed: int = 0
    jobs: int | None = None
    """Drawn from the trace, in the same time; absent: its own."""
    elasticity: Elasticity = field(default_factory=Elasticity)
    settings: Settings = field(default_factory=Settings)
    servers: Servers | None = None
    mixes: bool = False
    loans: Loans | None = None

    @property
    def name(self) -> str:
        """Of the policy."""
        return self.policy if isinstance(self.policy, str) else self.policy.name


@dataclass(frozen=True)
class Simulated:
    """A scenario, what came of it, and the capacity (R,) of the cluster's own servers."""

    scenario: Scenario
    result: Result
    capacity: Floats
    of_supply: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def simulated(trace: Trace, scenario: Scenario, curves: Sequence[Curve] | None = None) -> Simulated:
    """Run it. The same scenario gives the same result, decision times aside, unless decisions run out of time.

    Raises InputError for policies that there are not, and for a cluster that lacks a resource of the trace.
    """
    policy = deepcopy(get_allocator(scenario.policy))  # what it keeps between decisions is of this run alone
    if scenario.jobs:
        trace, _ = scaled(trace, scenario.jobs, seed=scenario.seed)
    workload = workload_of(trace, scenario.elasticity, curves, seed=scenario.seed)
    supply, capacity, told = _supply(trace, workload, scenario)
    workload, notes = supply.that_fit(workload)
    if not len(workload):
        raise InputError("No job of the trace fits on the cluster's servers.", "Give larger ones.")
    settings = replace(scenario.settings, seed=scenario.seed)
    simulation = Simulation(workload, supply, policy, settings)
    result = simulation.run()
    decisions = len(result.decisions)
    of_policy = [f"{policy.name}: {note} ({n} of {decisions} decisions)" for note, n in simulation.told.items()]
    notes = [*trace.notes, *told, *notes, *_longer(trace), *of_policy]
    return Simulated(scenario, result, capacity, supply.figures(), tuple(notes))


def capacity_at(trace: Trace, load: float, resources: Sequence[str]) -> Floats:
    """(R,): so much that the jobs, with what their users asked for, would use the share `load` of it while they come.

    In whole GPUs and cores; raises InputError for a load of 0 or less, and where all jobs come at once.
    """
    if not trace.arrived_s[-1] > 0:
        notes = "".join(f"; {note}" for note in trace.notes)
        come = "1 job that can be used comes alone" if len(trace) == 1 else f"{len(trace):,} jobs come at once"
        raise InputError(
            f"In the trace, {come}, so that a load says nothing{notes}.",
            "Correct the rows that are left out, or give the cluster (--cluster)."
            if notes else "Give the cluster (--cluster).",
        )  # fmt: skip
    if not (load > 0 and np.isfinite(load)):
        raise InputError(f"A load of {load:g} says nothing of the capacity.", "Give one above 0, such as 0.9.")
    return np.ceil(_demand(trace, resources) / load)


def load_on(trace: Trace, capacity: Floats, resources: Sequence[str]) -> float:
    """The share of a capacity (R,) that the jobs would use while they come, of the resource that is scarcest; while the
    longest runs, where all come at once."""
    return float((_demand(trace, resources) / capacity).max())


def _demand(trace: Trace, resources: Sequence[str]) -> Floats:
    """(R,): what the jobs would use on average while they come; while the longest runs, where all come at once."""
    span_s = float(trace.arrived_s[-1]) or float(trace.duration_s.max())
    return np.array([(trace.duration_s * trace.needs[name]).sum() / span_s for name in resources])


def inference_day(servers: int, steps: int, step_s: float, seed: int) -> Floats:
    """(T,): servers that inference needs: 42 to 95 % of them in the course of a day, with noise of 1 %.

    The range is that of arXiv 2202.07896; the shape, a cosine, is a reconstruction.
    """
    rng, time = np.random.default_rng(seed), np.arange(steps) * step_s
    use = 0.685 - 0.265 * np.cos(2 * np.pi * time / DAY_S) + rng.normal(0.0, 0.01, steps)
    return np.asarray(np.clip(use, 0.0, 1.0) * servers)


def _supply(trace: Trace, workload: Workload, scenario: Scenario) -> tuple[Supply, Floats, list[str]]:
    if scenario.loans is not None:
        return _loaned(trace, workload, scenario, scenario.loans)
    if scenario.servers is not None:
        return Placed(scenario.servers, mixes=scenario.mixes), scenario.servers.capacity.sum(axis=0), []
    capacity = capacity_at(trace, scenario.load, workload.resources)
    return Supply(capacity), capacity, []


def _loaned(trace: Trace, workload: Workload, scenario: Scenario, loans: Loans) -> tuple[Supply, Floats, list[str]]:
    if len(workload.resources) > 1:
        raise InputError(
            f"Loaned servers are of one resource; this trace has {', '.join(workload.resources)}.",
            "Leave out columns of the trace.",
        )
    own = int(np.ceil(capacity_at(trace, scenario.load, workload.resources)[0] / loans.units))
    span_s = float(trace.arrived_s[-1]) + float(trace.duration_s.max())
    demand, day = loans.demand, max(int(DAY_S / loans.step_s), 1)
    if demand is None:
        demand = inference_day(loans.servers, int(span_s / loans.step_s) + 2 * day, loans.step_s, scenario.seed)
    lent = lendable(demand, loans.servers, day)
    servers = equal_servers([("own", own, [loans.units]), ("lent", loans.servers, [loans.units])])
    supply = Loaned(servers, own, lent, loans.step_s, RECLAIMS[loans.reclaim], scenario.seed)
    lacked = f"inference lacks servers that are lent in {shortfall(demand, lent, loans.servers):.2%} of the steps"
    return supply, np.array([own * loans.units]), [lacked]


def _longer(trace: Trace) -> list[str]:
    """Jobs that run on after the last one came."""
    longer = int((trace.duration_s > trace.arrived_s[-1]).sum())
    if not longer:
        return []
    who, ends = (
        ("1 job takes", "it is run to its end") if longer == 1 else (f"{longer} jobs take", "they are run to their end")
    )
    return [f"{who} longer than all of the trace: {ends}"]
