"""Replay a trace under several policies, one run after the other or side by side on Ray."""

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
from sizewright.cluster.allocate import resources_of, servers_of
from sizewright.cluster.allocators import Allocator, get_allocator
from sizewright.cluster.placement.placement import Servers
from sizewright.cluster.problem.candidates import GPU
from sizewright.cluster.reclaim import RECLAIMS
from sizewright.cluster.simulator.curves import Curve, Elasticity
from sizewright.cluster.simulator.engine import Settings
from sizewright.cluster.simulator.kinds import trace_resources
from sizewright.cluster.simulator.measured_curves import curves_of, read_curves
from sizewright.cluster.simulator.report import rows_of, run_of
from sizewright.cluster.simulator.scenario import Curves, Loans, Scenario, load_on, prepare_trace, simulate_scenario
from sizewright.datasets.traces import Trace, frame_of_records, read_trace, trace_of
from sizewright.errors import InputError
from sizewright.formatting import format_count, format_percent
from sizewright.spec import Cluster
from sizewright.spec.simulation import SimulatedRun, SimulationAnswer
from sizewright.task_progress import part, report_progress

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
    curves: Sequence[Curve] | pd.DataFrame | str | Path | None = None,
    settings: Settings | None = None,
    loans: Loans | None = None,
    decisions: bool = False,
    outcomes: bool = False,
    parallel: bool = False,
    address: str | None = None,
    progress: Progress | None = None,
) -> SimulationAnswer:
    """Replay a trace under each policy, at each load, with each seed.

    The trace may be a Trace, a file, a data frame, or rows. `policies` are names from
    `sizewright.cluster.allocators.allocator_names`, or your own allocators, of which each run gets a copy. `loads` are
    shares of the capacity that the jobs would use with the resources their users requested (default 0.9). The capacity
    follows from the load, or is that of a `cluster`, on whose servers the replicas are placed. `seeds` is the
    number of seeds.

    `days` (from, until) selects a part of the trace; `jobs` draws this many of its jobs at a rate of arrivals scaled to
    match. `elasticity` is the distribution that speeds are drawn from; `curves` replaces it with a CSV file, a
    recommendation, or functions. `columns` maps column names of the trace to the standard ones, where they are not
    recognised. With `parallel`, or the `address` of a Ray cluster, runs are executed side by side on Ray. With
    `decisions` the runs hold their single decisions, with `outcomes` what became of each job. `progress` is called with
    each finished run and the number of all runs.

    Raises InputError for an invalid trace, policy or setting, MissingExtraError without ray.
    """
    allocators = _allocators(policies)
    loads = None if loads is None else tuple(dict.fromkeys(loads))
    if seeds < 1 or not allocators or loads == ():
        raise InputError("There is nothing to simulate.", "Give at least one policy, one load and one seed.")
    known_trace, known_curves = _trace_of(trace, kind, columns), _curves_of(curves)
    hosts = load_cluster(cluster)
    if hosts and (loads or loans):
        option = "loads" if loads else "loans"
        raise InputError(
            f"The cluster fixes the capacity, so {option} cannot be applied.",
            f"Leave out the cluster, or the {option}.",
        )
    if loans and loans.reclaim not in RECLAIMS:
        raise InputError(f"There is no reclaim policy '{loans.reclaim}'.", f"Known: {', '.join(RECLAIMS)}.")
    base = Scenario(
        allocators[0],
        jobs=jobs,
        elasticity=elasticity or Elasticity(),
        settings=settings or Settings(every_s=300.0),
        servers=_servers(hosts, list(known_trace.needs), mixes=mixes) if hosts else None,
        mixes=mixes,
        loans=loans,
    )
    if base.elasticity.spread < 1 and not (hosts or loans):
        raise InputError(
            "Without hosts, jobs are not placed, so their spread over hosts has no effect.",
            "Give the cluster (--cluster), or leave out the spread.",
        )
    known_trace, _ = prepare_trace(known_trace, base, known_curves)
    selected, kinds = prepare_trace(_select_days(known_trace, days), base, known_curves)
    resources = trace_resources(selected, kinds)
    if base.servers:
        rate = (jobs or len(selected)) / len(selected)
        loads = [round(rate * load_on(selected, base.servers.capacity.sum(axis=0), resources), 4)]
    scenarios = [
        replace(base, policy=policy, load=load, seed=seed)
        for load in loads or (0.9,)
        for seed in range(seeds)
        for policy in allocators
    ]
    run = partial(_run, selected, known_curves, resources, {"decisions": decisions, "outcomes": outcomes})
    if parallel or address:
        from sizewright.api.sweeps import on_ray

        results = on_ray(run, scenarios, address)
    else:
        results = _run_serially(run, scenarios)
    runs, notes = _collect(results, scenarios, progress)
    return SimulationAnswer(
        trace=str(trace) if isinstance(trace, str | Path) else "a trace",
        jobs=jobs or len(selected),
        rows=rows_of(runs),
        runs=tuple(runs),
        assumptions=_assumptions(selected, base, known_curves, kinds),
        notes=tuple(dict.fromkeys(notes)),
    )


def _trace_of(source: Any, kind: str | None, columns: Mapping[str, str] | None) -> Trace:
    """Return a trace from a Trace, a data frame, rows, columns, or the path of a file."""
    if isinstance(source, Trace):
        return source
    if isinstance(source, str | Path):
        return read_trace(path_of(source, "trace"), kind, columns)
    if hasattr(source, "to_pandas"):  # Polars and Arrow
        source = source.to_pandas()
    if hasattr(source, "to_csv") and hasattr(source, "columns"):
        return trace_of(flat(source), "The trace", kind, columns)
    if isinstance(source, Mapping) or (
        isinstance(source, Sequence) and source and all(isinstance(row, Mapping) for row in source)
    ):
        return trace_of(frame_of_records([dict(row) for row in rows_in(source)]), "The trace", kind, columns)
    raise InputError(
        f"The trace is of type {type(source).__name__}.", "Pass its file, a data frame, a list of dicts, or a Trace."
    )


def _allocators(policies: Sequence[str | Allocator]) -> list[Allocator]:
    """Return the allocators of the policies. Raises InputError when two share a name or one cannot be copied."""
    allocators = [get_allocator(policy) for policy in dict.fromkeys(policies)]
    name, count = Counter(allocator.name for allocator in allocators).most_common(1)[0] if allocators else ("", 0)
    if count > 1:
        raise InputError(f"Two policies are named '{name}'.", "Give each policy a unique name.")
    try:
        deepcopy(allocators)
    except Exception as error:  # whatever an object of the user's raises
        raise InputError(
            f"A policy cannot be copied: {error}.", "Make it copyable by copy.deepcopy; each run uses its own copy."
        ) from error
    return allocators


def _select_days(trace: Trace, days: tuple[float, float] | None) -> Trace:
    selected = trace.between(days[0] * 86400, days[1] * 86400) if days else trace
    if not len(selected):
        raise InputError("No job of the trace arrived in that time.", "Give other days, such as 0 to 15.")
    return selected


def _curves_of(source: Any) -> Curves | None:
    """Return curves from the path of a file, a data frame, or functions."""
    if isinstance(source, str | Path):
        return read_curves(path_of(source, "curves"))
    if hasattr(source, "to_pandas"):  # Polars and Arrow
        source = source.to_pandas()
    return curves_of(flat(source), "The table of curves") if hasattr(source, "to_csv") else source


def _servers(cluster: Cluster, needed: Sequence[str], *, mixes: bool) -> Servers:
    """Return the cluster's servers in the resources that the trace needs; GPUs count as equal if `mixes` is True."""
    servers, known = servers_of(cluster), resources_of(cluster)
    if not servers.names:
        raise InputError("The cluster has no servers.", "Give its hosts a count above 0.")
    gpus = [[i] for i, name in enumerate(known) if name.startswith(GPU)]
    columns: list[list[int]] = []  # for each resource of the trace, the resources of the cluster that it sums
    for name in ("gpu", "cpu", "memory_bytes"):
        if name in needed:
            of_name = gpus if name == "gpu" else [[known.index(name)]]
            if not of_name:
                raise InputError(f"Jobs of the trace need {name}, and the cluster has none.", "Add it to its hosts.")
            columns += [[i for group in of_name for i in group]] if mixes else of_name
    capacity = np.stack([servers.capacity[:, indices].sum(axis=1) for indices in columns], axis=1)
    return replace(servers, capacity=capacity)


def _run(
    trace: Trace, curves: Curves | None, resources: Sequence[str], kept: dict[str, bool], scenario: Scenario
) -> tuple[SimulatedRun, tuple[str, ...]]:
    result = simulate_scenario(trace, scenario, curves)
    return run_of(result, resources, **kept), result.notes


def _run_serially(run: Callable[[Scenario], T], scenarios: Sequence[Scenario]) -> Iterator[T]:
    for number, scenario in enumerate(scenarios):
        with part(_RUNS, number, len(scenarios)):
            result = run(scenario)
        yield result


def _collect(
    results: Iterator[tuple[SimulatedRun, tuple[str, ...]]], scenarios: Sequence[Any], progress: Progress | None
) -> tuple[list[SimulatedRun], list[str]]:
    """Return all runs in the order of their scenarios, and the notes on them."""
    runs, notes = [], list[str]()
    for run, run_notes in results:
        runs.append(run)
        notes += run_notes
        report_progress(_RUNS, len(runs), len(scenarios))
        if progress:
            progress(run, len(scenarios))
    order = {(scenario.load, scenario.seed, scenario.name): number for number, scenario in enumerate(scenarios)}
    return sorted(runs, key=lambda run: order[run.load, run.seed, run.policy]), notes


def _assumptions(trace: Trace, base: Scenario, curves: Curves | None, kinds: Sequence[str]) -> tuple[str, ...]:
    """Return sentences on what the trace does not contain and the simulation assumes."""
    e = base.elasticity
    stated = ", unless the trace states it" if trace.pauses else ""
    assumptions = ["no job is elastic"]
    if e.share:
        sizes = f"{', '.join(f'{multiple:g}' for multiple in e.multiples)} × their requested size"
        if trace.curves:
            sizes = "the sizes of their curves"
        assumptions = [f"{format_percent(e.share)} of the jobs are elastic, at {sizes}"]
    if curves and not trace.curves:
        assumptions.append(
            f"{format_count(len(curves), 'curve')} of speeds belong to no job of the trace; the seed deals them out to "
            "the jobs, relative to their requests"
        )
    if e.share and not curves:
        low, high = e.powers
        assumptions.append(
            f"speeds grow as a power of the size; the exponent is drawn for each job, {low:g} to {high:g}"
        )
    assumptions += _kind_assumptions(trace, base, curves, kinds)
    assumptions += _spread_assumptions(trace, base)
    if base.settings.speeds == "learned":
        assumptions.append(
            "policies know the speeds at the smallest size of a job and at those at which it has run; others are "
            f"estimated, with a lognormal error of {base.settings.speed_error:g}"
        )
    assumptions.append(f"policies know durations with a lognormal error of {e.error:g}")
    assumptions.append(
        f"a start takes {e.start_up_s:g} s, a change {e.change_s:g} s, a restart {e.restart_s:g} s{stated}"
    )
    if (clock_s := base.settings.clock_s) is not None:
        assumptions.append(f"decisions are made every {clock_s:g} s only")
    if base.jobs:
        assumptions.append(
            f"{format_count(base.jobs, 'job')} are drawn from {len(trace):,}, "
            f"at {base.jobs / len(trace):.3g} × the trace's rate of arrivals"
        )
    if base.servers and not trace.arrived_s[-1] > 0:
        assumptions.append("all jobs arrive at once, and the load is the one while the longest job runs")
    if base.settings.failures_a_day:
        assumptions.append(
            f"a unit in use fails {base.settings.failures_a_day:g} times a day, which loses the work since the last "
            f"save; saves are {base.settings.saved_every_s:g} s of training apart"
        )
    if base.loans and base.loans.demand is None:
        assumptions.append("inference needs 42 to 95 % of its servers over a day")
    if base.loans and base.loans.speed != 1.0:
        assumptions.append(
            f"a replica on a lent server has {base.loans.speed:g} times the speed of one on an own server; the "
            "replicas of a job add up, and policies do not know of the difference"
        )
    return tuple(assumptions)


def _kind_assumptions(trace: Trace, base: Scenario, curves: Curves | None, kinds: Sequence[str]) -> list[str]:
    """Return sentences on which kinds of GPUs jobs use, and how fast they are there."""
    if base.mixes and base.servers and "gpu" in trace.needs:
        return ["GPUs of all kinds are equally fast, and one job may have several kinds"]
    if len(kinds) < 2:
        return []
    of_any_kind = sum(not kind for kind in trace.gpu_kinds) if trace.gpu_kinds else len(trace)
    if isinstance(curves, Mapping) and any(curve.kinds for curve in curves.values()):
        sentences = ["a job runs on each kind of GPU on which its speed is known"]
        if of_any_kind:
            sentences.append("the duration of a job that requests no kind is the one on the first kind of its curve")
        return sentences
    sentences = ["a job runs only on the kind of GPU that it requests"]
    if of_any_kind:
        sentences = [
            *(sentences if of_any_kind < len(trace) else []),
            "a job that requests no kind of GPU runs on any, equally fast",
        ]
    return sentences


def _spread_assumptions(trace: Trace, base: Scenario) -> list[str]:
    """Return a sentence on how a job's speed depends on the number of hosts that it is on."""
    if not (base.servers or base.loans):
        return [] if trace.spread is None else ["hosts are not simulated, so the spread of a job has no effect"]
    if trace.spread is None:
        if base.elasticity.spread == 1:
            return []
        return [f"each host more than a job needs makes it {base.elasticity.spread:g} × as fast"]
    return ["each host more than a job needs makes it slower by the factor `spread` of the trace"]
