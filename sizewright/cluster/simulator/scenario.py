"""One run of a sweep: a trace under a policy, at a load, with a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace

import numpy as np

from sizewright.cluster.allocators import Allocator, get_allocator
from sizewright.cluster.loaning import lendable, shortfall
from sizewright.cluster.placement.placement import Servers
from sizewright.cluster.problem.candidates import GPU
from sizewright.cluster.problem.problem import Floats
from sizewright.cluster.reclaim import RECLAIMS
from sizewright.cluster.simulator.capacity import Capacity, LoanedCapacity, PlacedCapacity, equal_servers
from sizewright.cluster.simulator.curves import Curve, Elasticity, resample_trace, workload_of
from sizewright.cluster.simulator.engine import Settings, Simulation
from sizewright.cluster.simulator.kinds import gpu_kinds, named_kinds
from sizewright.cluster.simulator.measured_curves import MeasuredCurve, assign_curves, fill_durations
from sizewright.cluster.simulator.outcome import SimulationResult
from sizewright.cluster.simulator.workload import Workload
from sizewright.datasets.traces import Trace
from sizewright.errors import InputError
from sizewright.formatting import format_percent

DAY_S = 86400.0


@dataclass(frozen=True)
class Loans:
    """Inference servers that are lent to training while their own demand is low.

    Raises InputError for a speed that is not above 0.
    """

    servers: int
    units: float = 8.0
    """Units of the first resource in each server, own servers included."""
    demand: Floats | None = None
    """(T,): servers that inference needs in each step; absent, 42 to 95 % of them over a day, as in Aryl's cluster."""
    step_s: float = 300.0
    reclaim: str = "least-cost"
    speed: float = 1.0
    """Speed of a replica on a lent server, relative to one on the cluster's own; below 1 for a slower kind of GPU."""

    def __post_init__(self) -> None:
        if not (np.isfinite(self.speed) and self.speed > 0):
            raise InputError(f"The speed on lent servers must be above 0, got {self.speed:g}.", "Give one such as 0.5.")


@dataclass(frozen=True)
class Scenario:
    """A scenario to simulate. Without `servers`, the capacity follows from the `load`."""

    policy: str | Allocator
    load: float = 0.9
    seed: int = 0
    jobs: int | None = None
    """Number of jobs drawn from the trace, in the same time; absent, the jobs of the trace."""
    elasticity: Elasticity = field(default_factory=Elasticity)
    settings: Settings = field(default_factory=Settings)
    servers: Servers | None = None
    mixes: bool = False
    loans: Loans | None = None

    @property
    def name(self) -> str:
        """The name of the policy."""
        return self.policy if isinstance(self.policy, str) else self.policy.name


@dataclass(frozen=True)
class ScenarioResult:
    """A scenario, its result, and the capacity (R,) of the cluster's own servers."""

    scenario: Scenario
    result: SimulationResult
    capacity: Floats
    supply_figures: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


Curves = Sequence[Curve] | Mapping[str, MeasuredCurve]


def prepare_trace(trace: Trace, scenario: Scenario, curves: Curves | None) -> tuple[Trace, tuple[str, ...]]:
    """Return a trace with the curve and the duration of each job, and the kinds of GPUs in its scenario.

    Raises InputError for curves and kinds of GPUs that do not match the jobs and the servers.
    """
    kinds = gpu_kinds(trace, scenario.servers, mixes=scenario.mixes)
    named_kinds(trace, kinds)  # raises an error for a kind that no host has
    by_name = curves if isinstance(curves, Mapping) else None
    trace = fill_durations(assign_curves(trace, by_name), by_name, kinds)
    return trace, kinds


def simulate_scenario(trace: Trace, scenario: Scenario, curves: Curves | None = None) -> ScenarioResult:
    """Simulate a scenario.

    The same scenario gives the same result, except for decision times, unless decisions run out of time. Raises
    InputError for an unknown policy, and if the cluster lacks a resource of the trace.
    """
    policy = deepcopy(get_allocator(scenario.policy))  # it may keep state between the decisions of one run
    trace, kinds = prepare_trace(trace, scenario, curves)
    if scenario.jobs:
        trace, _ = resample_trace(trace, scenario.jobs, seed=scenario.seed)
    workload = workload_of(trace, scenario.elasticity, curves, seed=scenario.seed, kinds=kinds)
    supply, capacity, supply_notes = _supply(trace, workload, scenario)
    workload, workload_notes = supply.fit_workload(workload)
    if not len(workload):
        raise InputError("No job of the trace fits on the servers of the cluster.", "Use larger servers.")
    settings = replace(scenario.settings, seed=scenario.seed)
    simulation = Simulation(workload, supply, policy, settings)
    result = simulation.run()
    notes = [*trace.notes, *supply_notes, *workload_notes]
    longer = int((trace.duration_s > trace.arrived_s[-1]).sum())
    if longer == 1:
        notes.append("1 job takes longer than the whole trace; it runs to its end")
    elif longer:
        notes.append(f"{longer} jobs take longer than the whole trace; they run to their end")
    for note, count in simulation.note_counts.items():
        notes.append(f"{policy.name}: {note} ({count} of {len(result.decisions)} decisions)")
    return ScenarioResult(scenario, result, capacity, supply.figures(), tuple(notes))


def capacity_at(trace: Trace, load: float, resources: Sequence[str]) -> Floats:
    """Return the capacity (R,) of which the jobs use the share `load` while they arrive, with their requests.

    The capacity is in whole GPUs and cores. Jobs that request no kind of GPU are shared out over the kinds as the other
    jobs are. Raises InputError if the load is not above 0, and if all jobs arrive at
    once.
    """
    if not trace.arrived_s[-1] > 0:
        jobs = "only 1 usable job" if len(trace) == 1 else f"{len(trace):,} jobs that all arrive at once"
        notes = "".join(f"; {note}" for note in trace.notes)
        raise InputError(
            f"The trace has {jobs}, so a load does not determine the capacity{notes}.",
            "Correct the rows that are left out, or give the cluster (--cluster)."
            if notes
            else "Give the cluster (--cluster).",
        )
    if not (load > 0 and np.isfinite(load)):
        raise InputError(f"The load must be above 0 and finite, got {load:g}.", "Give one such as 0.9.")
    demand, of_kind = _demand(trace, resources), [name.startswith(GPU) for name in resources]
    if any(of_kind):
        named = demand[of_kind].sum()
        share = demand[of_kind] / named if named else 1 / sum(of_kind)
        demand[of_kind] = _demand(trace, ["gpu"])[0] * share
    return np.ceil(demand / load)


def load_on(trace: Trace, capacity: Floats, resources: Sequence[str]) -> float:
    """Return the share of a capacity (R,) that the jobs use while they arrive, of the scarcest resource.

    GPUs count for each kind that jobs request, and for all kinds together. If all jobs arrive at once, the time of the
    longest job counts.
    """
    loads: list[float] = (_demand(trace, resources) / capacity).tolist()
    if any(of_kind := [name.startswith(GPU) for name in resources]):
        loads.append(float(_demand(trace, ["gpu"])[0] / capacity[of_kind].sum()))
    return max(loads)


def _demand(trace: Trace, resources: Sequence[str]) -> Floats:
    """Return the mean use (R,) by the jobs while they arrive; while the longest runs, if all arrive at once.

    That of a kind of GPU is the use by the jobs that request it.
    """
    span_s = float(trace.arrived_s[-1]) or float(trace.duration_s.max())
    demand = []
    for name in resources:
        kind = name.removeprefix(GPU)
        amounts = trace.needs[name if kind == name else "gpu"]
        counted = np.array([kind in (name, each) for each in trace.gpu_kinds]) if trace.gpu_kinds else kind == name
        demand.append(float((trace.duration_s * amounts * counted).sum() / span_s))
    return np.array(demand)


def inference_day(servers: int, steps: int, step_s: float, seed: int) -> Floats:
    """Return the servers (T,) that inference needs: 42 to 95 % of them over a day, with noise of 1 %.

    The range is that of arXiv 2202.07896; the shape, a cosine, is a reconstruction.
    """
    rng = np.random.default_rng(seed)
    time_s = np.arange(steps) * step_s
    use = 0.685 - 0.265 * np.cos(2 * np.pi * time_s / DAY_S) + rng.normal(0.0, 0.01, steps)
    return np.asarray(np.clip(use, 0.0, 1.0) * servers)


def _supply(trace: Trace, workload: Workload, scenario: Scenario) -> tuple[Capacity, Floats, list[str]]:
    """Return the capacity of a scenario, the sum (R,) of the cluster's own, and notes."""
    if scenario.loans is not None:
        return _loaned_supply(trace, workload, scenario, scenario.loans)
    if scenario.servers is not None:
        return PlacedCapacity(scenario.servers, mixes=scenario.mixes), scenario.servers.capacity.sum(axis=0), []
    capacity = capacity_at(trace, scenario.load, workload.resources)
    return Capacity(capacity), capacity, []


def _loaned_supply(
    trace: Trace, workload: Workload, scenario: Scenario, loans: Loans
) -> tuple[Capacity, Floats, list[str]]:
    if len(workload.resources) > 1:
        raise InputError(
            f"Loaned servers have one resource, but this trace has {', '.join(workload.resources)}.",
            "Leave out the columns of the other resources.",
        )
    own = int(np.ceil(capacity_at(trace, scenario.load, workload.resources)[0] / loans.units))
    span_s = float(trace.arrived_s[-1]) + float(trace.duration_s.max())
    day = max(int(DAY_S / loans.step_s), 1)
    demand = loans.demand
    if demand is None:
        steps = int(span_s / loans.step_s) + 2 * day
        demand = inference_day(loans.servers, steps, loans.step_s, scenario.seed)
    lent = lendable(demand, loans.servers, day)
    servers = equal_servers([("own", own, [loans.units]), ("lent", loans.servers, [loans.units])])
    supply = LoanedCapacity(
        servers, own, lent, loans.step_s, RECLAIMS[loans.reclaim], scenario.seed, lent_speed=loans.speed
    )
    short_share = format_percent(shortfall(demand, lent, loans.servers), 2)
    note = f"inference lacks servers that are lent in {short_share} of the steps"
    return supply, np.array([own * loans.units]), [note]
