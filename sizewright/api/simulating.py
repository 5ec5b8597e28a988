"""Replaying a trace under several policies, side by side, one after the other or on Ray."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from sizewright.api._records import ClusterLike, flat, path_of, rows_in
from sizewright.api.inputs import load_cluster
from sizewright.cluster.allocators import Allocator, get_allocator
from sizewright.cluster.candidates import GPU
from sizewright.cluster.divide import resources_of, servers_of
from sizewright.cluster.placement import Servers
from sizewright.cluster.reclaim import RECLAIMS
from sizewright.cluster.simulator.curves import Curve, Elasticity, curves_in
from sizewright.cluster.simulator.engine import Settings
from sizewright.cluster.simulator.report import rows_of, run_of
from sizewright.cluster.simulator.scenario import Loans, Scenario, load_on, simulated
from sizewright.datasets.traces import Trace, frame_of, read_trace, trace_of
from sizewright.errors import InputError
from sizewright.how_far import part, tell
from sizewright.spec import Cluster
from sizewright.spec.simulation import SimulatedRun, Simulation
from sizewright.spec.units import format_count

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
Progress = Callable[[SimulatedRun, int], None]
_RUNS = "simulating"


def simulate(
    trace: Trace | pd.DataFrame | Sequence[Mapping[str, object]] | str | Path,
    *,
    policies: Sequence[str | Allocator] = ("default", "slope", "sjf", "fifo"),
    loads: Sequence[float] | None = None,
    seeds: int = 1,
    jobs: int | None = None,
    kind: str | None = None,
    columns: Mapping[str, str] | None = None,
    days: tuple[float, float] | None = None,
    cluster: ClusterLike | None = None,
    mixes: bool = False,
    elasticity: Elasticity | None = None,
    curves: Sequence[Curve] | str | Path | None = None,
    settings: Settings | None = None,
    loans: Loans | None = None,
    decisions: bool = False,
    parallel: bool = False,
    address: str | None = None,
    progress: Progress | None = None,
) -> Simulation:
    """Replay a trace, its data frame or rows, or its file, under each policy, at each load, with each of `seeds` seeds.

    `policies` are names of `sizewright.cluster.allocators.allocator_names`, or allocators of your own, of which each
    run has a copy. `loads` are shares of the capacity that jobs would use with what their users asked for (0.9); the
    capacity follows from them, or is that of a `cluster`, on whose servers replicas are placed. `days` (from, until)
    takes a part of the trace, `jobs` so many of its jobs at its own rate of arrivals. Speeds are drawn (`elasticity`)
    or those of `curves`, a CSV file, a recommendation or functions. With `parallel`, or the `address` of a cluster,
    runs go side by side on Ray. `decisions` keeps them one by one in the runs. `progress` is told each run as it ends,
    and how many there will be.

    `columns` maps columns of the trace to those of a plain one, where they are no synonyms.

    Raises InputError for traces, policies and settings that cannot be, MissingExtraError without ray.
    """
    told = _part_of(_trace_of(trace, kind, columns), days)
    allocators, loads = _allocators(policies), None if loads is None else tuple(dict.fromkeys(loads))
    if seeds < 1 or not allocators or loads == ():
        raise InputError("There is nothing to simulate.", "Give at least one policy, one load and one seed.")
    resources = [name for name in ("gpu", "cpu", "memory_bytes") if name in told.needs]
    hosts = load_cluster(cluster)
    if hosts and (loads or loans):
        raise InputError(
            f"The capacity is the cluster's, and {'a load' if loads else 'lent servers'} would change it.",
            f"Leave out the cluster, or the {'load' if loads else 'lent servers'}.",
        )
    base = Scenario(
        allocators[0], jobs=jobs, elasticity=elasticity or Elasticity(), settings=settings or Settings(every_s=300.0),
        servers=_servers(hosts, resources) if hosts else None, mixes=mixes, loans=_checked(loans),
    )  # fmt: skip
    if base.servers:
        rate = (jobs or len(told)) / len(told)
        loads = [round(rate * load_on(told, base.servers.capacity.sum(axis=0), resources), 4)]
    scenarios = [
        replace(base, policy=policy, load=load, seed=seed)
        for load in loads or (0.9,) for seed in range(seeds) for policy in allocators
    ]  # fmt: skip
    shapes = curves_in(curves) if isinstance(curves, str | Path) else curves
    run = partial(_run, told, shapes, resources, decisions)
    if parallel or address:
        from sizewright.api.sweeps import on_ray

        found = on_ray(run, scenarios, address)
    else:
        found = _in_turn(run, scenarios)
    runs, notes = _collected(found, scenarios, progress)
    return Simulation(
        trace=str(trace) if isinstance(trace, str | Path) else "a trace", jobs=jobs or len(told), rows=rows_of(runs),
        runs=tuple(runs), assumptions=_assumptions(told, base, bool(shapes)), notes=tuple(dict.fromkeys(notes)),
    )  # fmt: skip


def _trace_of(given: Any, kind: str | None, columns: Mapping[str, str] | None) -> Trace:
    """A trace as it is, of a data frame, of rows or columns, or from its file."""
    if isinstance(given, Trace):
        return given
    if isinstance(given, str | Path):
        return read_trace(path_of(given, "trace"), kind, columns)
    if hasattr(given, "to_pandas"):  # Polars and Arrow
        given = given.to_pandas()
    if hasattr(given, "to_csv") and hasattr(given, "columns"):
        return trace_of(flat(given), "The trace", kind, columns)
    if isinstance(given, Mapping) or (
        isinstance(given, Sequence) and given and all(isinstance(row, Mapping) for row in given)
    ):
        rows = rows_in(given)
        return trace_of(frame_of([dict(row) for row in rows]), "The trace", kind, columns)
    raise InputError(
        f"The trace is of type {type(given).__name__}.", "Pass its file, a data frame, a list of dicts, or a Trace."
    )


def _allocators(policies: Sequence[str | Allocator]) -> list[Allocator]:
    """One for each; runs are told apart by its name."""
    made = [get_allocator(policy) for policy in dict.fromkeys(policies)]
    name, count = Counter(each.name for each in made).most_common(1)[0] if made else ("", 0)
    if count > 1:
        raise InputError(f"Two policies are called '{name}'.", "Give each a name of its own.")
    try:
        deepcopy(made)
    except Exception as error:  # whatever an object of the user's raises
        raise InputError(f"A policy cannot be copied, as each run has one of its own: {error}.") from error
    return made


def _part_of(trace: Trace, days: tuple[float, float] | None) -> Trace:
    part = trace.between(days[0] * 86400, days[1] * 86400) if days else trace
    if not len(part):
        raise InputError("No job of the trace came in that time.", "Give other days, such as 0 to 15.")
    return part


def _checked(loans: Loans | None) -> Loans | None:
    if loans and loans.reclaim not in RECLAIMS:
        raise InputError(f"There is no way to reclaim called '{loans.reclaim}'.", f"Known: {', '.join(RECLAIMS)}.")
    return loans


def _servers(cluster: Cluster, resources: Sequence[str]) -> Servers:
    """The cluster's servers in the resources of the trace, which names no kinds of GPUs."""
    servers, known = servers_of(cluster), resources_of(cluster)
    if not servers.names:
        raise InputError("The cluster has no servers.", "Give its hosts a count above 0.")
    columns = {
        name: [i for i, each in enumerate(known) if each == name or (name == "gpu" and each.startswith(GPU))]
        for name in resources
    }  # fmt: skip
    if missing := [name for name, found in columns.items() if not found]:
        raise InputError(f"Jobs of the trace need {missing[0]}, and the cluster has none.", "Add it to its hosts.")
    capacity = np.stack([servers.capacity[:, columns[name]].sum(axis=1) for name in resources], axis=1)
    return replace(servers, capacity=capacity)


def _run(
    trace: Trace, curves: Sequence[Curve] | None, resources: Sequence[str], decisions: bool, scenario: Scenario
) -> tuple[SimulatedRun, tuple[str, ...]]:
    found = simulated(trace, scenario, curves)
    return run_of(found, resources, decisions=decisions), found.notes


def _in_turn(run: Callable[[Scenario], T], scenarios: Sequence[Scenario]) -> Iterator[T]:
    for number, scenario in enumerate(scenarios):
        with part(_RUNS, number, len(scenarios)):
            found = run(scenario)
        yield found


def _collected(
    found: Iterator[tuple[SimulatedRun, tuple[str, ...]]], scenarios: Sequence[Any], progress: Progress | None
) -> tuple[list[SimulatedRun], list[str]]:
    runs, notes = [], list[str]()
    for run, told in found:
        runs.append(run)
        notes += told
        tell(_RUNS, len(runs), len(scenarios))
        if progress:
            progress(run, len(scenarios))
    order = {(each.load, each.seed, each.name): number for number, each in enumerate(scenarios)}
    return sorted(runs, key=lambda run: order[run.load, run.seed, run.policy]), notes


def _assumptions(trace: Trace, base: Scenario, curved: bool) -> tuple[str, ...]:
    """What the trace does not tell."""
    e = base.elasticity
    told = ["no job is elastic"]
    if e.share:
        told = [f"{e.share:.0%} of the jobs are elastic, at {', '.join(f'{m:g}' for m in e.multiples)} × what they had"]
    if e.share and not curved:
        told.append(f"speeds grow as a power of the size, {e.powers[0]:g} to {e.powers[1]:g}, drawn for each job")
    told.append(f"policies know durations with a lognormal error of {e.error:g}")
    told.append(f"a change takes {e.change_s:g} s, a restart {e.restart_s:g} s")
    if base.jobs:
        told.append(
            f"{format_count(base.jobs, 'job')} drawn from {len(trace):,}: "
            f"a rate of {base.jobs / len(trace):.3g} × its own"
        )
    if base.servers and not trace.arrived_s[-1] > 0:
        told.append("all jobs come at once: the load is that while the longest runs")
    if base.settings.failures_a_day:
        told.append(
            f"a unit in use fails {base.settings.failures_a_day:g} times a day, and what was done since the last save, "
            f"every {base.settings.saved_every_s:g} s of training, is lost"
        )
    if base.loans and base.loans.demand is None:
        told.append("inference needs 42 to 95 % of its servers over a day")
    return tuple(told)
