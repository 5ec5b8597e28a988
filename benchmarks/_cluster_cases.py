"""The cases of the cluster benchmark: who schedules which jobs on what, each a whole simulation.

Setting of all: jobs and arrivals drawn from Philly anew for each seed; policies know durations with a lognormal error
of σ .5; a change takes 10 s, a restart after a preemption 63 s (Aryl's); decisions are 300 s apart.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from benchmarks._philly import philly
from benchmarks._report import choose
from sizewright.cluster.allocators.registry import get_allocator
from sizewright.cluster.loaning import lendable
from sizewright.cluster.problem.problem import Bools, Floats
from sizewright.cluster.simulator.capacity import Capacity, LoanedCapacity, equal_servers
from sizewright.cluster.simulator.curves import Elasticity, resample_trace, workload_of
from sizewright.cluster.simulator.engine import Settings, Simulation
from sizewright.cluster.simulator.outcome import SimulationResult
from sizewright.cluster.simulator.scenario import DAY_S, Scenario, capacity_at, inference_day, simulate_scenario
from sizewright.cluster.simulator.workload import Workload
from sizewright.datasets.traces import Trace

JOBS = choose(3_000, 600, 20)
LOAN_JOBS = choose(11_700, 600, 20)
"""At about the rate of the trace: servers are lent whole, so that a small cluster tells little."""
SETTINGS = Settings(every_s=300.0)
STEP_S, PER_SERVER = 300.0, 8.0
OF_ARYL = Elasticity(share=1.0, multiples=(0.5, 0.75, 1.0, 1.5, 2.0), powers=(0.85, 1.0))
"""Elastic jobs of arXiv 2202.07896 scale nearly linearly, here from half to twice what they ask for (our reading)."""


QUOTA = 0.05
KEEPS = ("fifo", "doubling")
"""Putting running jobs off for earlier ones would make these baselines weaker."""


class Case(NamedTuple):
    """One simulation."""

    kind: str
    policy: str
    load: float
    seed: int


def run(case: Case) -> dict[str, Any]:
    """Its figures."""
    return {**case._asdict(), **_KINDS[case.kind](case)}


def efficiencies(result: SimulationResult) -> dict[str, float]:
    """Means over the jobs of work done a second, over that with what its user asks for: since the job came
    (`efficiency`: waiting is in it), and while it had something."""
    return {
        "efficiency": float(np.mean(result.work_s / (result.finished_s - result.arrived_s))),
        "speed_while_running": float(np.mean(result.work_s / result.ran_s)),
    }


def _policies(case: Case) -> dict[str, float]:
    """All jobs are elastic, with power laws of .6 to .95; first-come policies do not put off what runs.

    `minimum`: what users ask for is the least, and may double twice. `around`: a quarter to four times of it.
    """
    elasticity = Elasticity(multiples=_MULTIPLES[case.kind])
    settings = replace(SETTINGS, preempts=case.policy not in KEEPS)
    result = simulate_scenario(philly(), Scenario(case.policy, case.load, case.seed, JOBS, elasticity, settings)).result
    return result.figures() | efficiencies(result)


def _loaning(case: Case) -> dict[str, float]:
    """`neither:fifo`: rigid jobs on own servers; `loaning`, `elastic` and `both` with lent servers, elastic jobs, both.

    As many own and inference servers as 443 to 520; a job may use both. Of the jobs, 5 % with a third of all
    GPU-seconds are elastic. Use is of all servers, with inference's own demand; `demanded_use` is what it would be were
    all jobs, as their users ask for them, done as they come, or all that is there in use.
    """
    how, _, policy = case.policy.partition(":")
    trace, _ = resample_trace(philly(), LOAN_JOBS, seed=case.seed)
    own = int(np.ceil(capacity_at(trace, case.load, ["gpu"])[0] / PER_SERVER))
    inference, day = max(round(own * 520 / 443), 1), int(DAY_S / STEP_S)
    steps = int((trace.arrived_s[-1] + trace.duration_s.max()) / STEP_S) + 20 * day
    demand = inference_day(inference, steps, STEP_S, case.seed)
    lent = lendable(demand, inference, day)[3 * day :]  # days before tell the forecast's errors
    if how not in ("loaning", "both"):
        lent = np.zeros_like(lent)
    workload = workload_of(trace, OF_ARYL, seed=case.seed)
    elastic = _a_third(trace) if how in ("elastic", "both") else np.zeros(len(trace), dtype=bool)
    servers = equal_servers([("own", own, [PER_SERVER]), ("lent", inference, [PER_SERVER])])
    supply = LoanedCapacity(servers, own, lent, STEP_S, seed=case.seed)
    settings = replace(SETTINGS, preempts=policy != "fifo")
    result = Simulation(_rigid(workload, ~elastic), supply, get_allocator(policy), settings).run()
    span_s = float(trace.arrived_s[-1])
    while_jobs_come = demand[3 * day : 3 * day + int(span_s / STEP_S)]
    used = result.allocated[0] / PER_SERVER / span_s + float(while_jobs_come.mean())
    demanded = min(case.load * own, own + float(lent.mean())) + float(while_jobs_come.mean())
    return result.figures() | {
        "overall_use": used / (own + inference), "demanded_use": demanded / (own + inference),
        "reclaimed_from": float(supply.log.preempted), "shrunk": float(supply.log.shrunk),
        "lent": float(lent[: int(span_s / STEP_S)].mean() / inference),
    }  # fmt: skip


def _a_third(trace: Trace) -> Bools:
    """(N,): the 5 % of the jobs, next to each other in order of their GPU-seconds, that hold nearest to a third."""
    area = trace.duration_s * trace.needs["gpu"]
    order, count = np.argsort(-area), max(round(0.05 * len(area)), 1)
    held = np.convolve(area[order], np.ones(count), mode="valid") / area.sum()
    first = int(np.abs(held - 1 / 3).argmin())
    chosen = np.zeros(len(area), dtype=bool)
    chosen[order[first : first + count]] = True
    return chosen


def _rigid(workload: Workload, fixed: Bools) -> Workload:
    """The same, with what their users ask for alone offered for some of the jobs (N,)."""
    rows, offered, base = np.arange(len(workload)), workload.offered.copy(), workload.base.copy()
    asked = workload.requested
    offered[fixed] = False
    offered[fixed, 0] = True
    offered[rows[fixed], asked[fixed]] = True
    base[fixed] = workload.replicas[rows, asked][fixed]
    return replace(workload, offered=offered, base=base)


def _stages(case: Case) -> dict[str, float]:
    """Users ask for the right size × lognormal (median 5, σ .7), a fifth of them for half, as in the three-stage proof;
    what is beyond twice the right size speeds nothing up. The load is by what they ask for, of which nobody is given
    more than `QUOTA` of the cluster.

    `static`: what they ask for, first come first served. `stages`: `default` over a quarter to twice the right size,
    which it knows: neither trials nor a first guess that is off are in it. `sized`: the right size alone, first come
    first served, so that it tells what over-asking alone costs.
    """
    trace, _ = resample_trace(philly(), LOAN_JOBS, seed=case.seed)
    rng, N = np.random.default_rng(case.seed), len(trace)
    gpus, powers = trace.needs["gpu"], rng.uniform(0.6, 0.95, len(trace))
    asked = np.where(rng.random(N) < 0.2, 0.5, rng.lognormal(np.log(5.0), 0.7, N))
    asked = np.minimum(asked, np.maximum(QUOTA * _capacity(trace, asked, powers, case.load) / gpus, 0.5))
    capacity = np.array([_capacity(trace, asked, powers, case.load)])
    multiples = np.concatenate([np.zeros((N, 1)), np.tile([0.25, 0.5, 1.0, 2.0], (N, 1)), asked[:, None]], axis=1)
    needs = (multiples * gpus[:, None])[:, :, None]
    column = {"static": 5, "sized": 3, "stages": 3}[case.policy]
    offered = np.ones(multiples.shape, dtype=bool)
    offered[:, 5] = False
    if case.policy != "stages":
        offered[:, 1:] = np.arange(1, 6) == column
    elasticity = Elasticity()
    workload = Workload(
        trace.jobs, ["core"], trace.arrived_s, trace.duration_s,
        trace.duration_s * rng.lognormal(0, elasticity.error, N), _speed(multiples, powers[:, None]), needs, offered,
        np.full(N, column), np.ones(multiples.shape, dtype=np.intp), np.ones(N, dtype=np.intp),
        np.full(N, elasticity.change_s), np.full(N, elasticity.restart_s),
    )  # fmt: skip
    policy = get_allocator("default" if case.policy == "stages" else "fifo")
    settings = replace(SETTINGS, preempts=case.policy == "stages")
    return Simulation(workload, Capacity(np.maximum(capacity, needs.max())), policy, settings).run().figures()


def _speed(multiples: Floats, powers: Floats) -> Floats:
    """Of the right size, 1."""
    return np.asarray(np.where(multiples > 0, np.minimum(multiples, 2.0) ** powers, 0.0))


def _capacity(trace: Trace, asked: Floats, powers: Floats, load: float) -> float:
    """Of which jobs with what is asked for them (N,) use the share `load` while they come."""
    area = trace.duration_s / _speed(asked, powers) * asked * trace.needs["gpu"]
    return float(area.sum() / trace.arrived_s[-1] / load)


_MULTIPLES = {"minimum": (1.0, 2.0, 4.0), "around": (0.25, 0.5, 1.0, 2.0, 4.0)}
_KINDS = {"minimum": _policies, "around": _policies, "loaning": _loaning, "stages": _stages}
