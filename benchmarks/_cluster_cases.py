"""The cases of the cluster benchmark. Each case is one simulation of a policy over a workload and a cluster.

All cases have these settings in common: jobs and arrivals are drawn from Philly, with other draws for each seed;
policies know durations with a lognormal error of σ .5; a change takes 10 s, and a restart after a preemption 63 s (as
in Aryl); decisions are 300 s apart.
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
"""About the number of jobs in the trace. Only whole servers are lent, so a small cluster would show little."""
SETTINGS = Settings(every_s=300.0)
STEP_S, PER_SERVER = 300.0, 8.0
OF_ARYL = Elasticity(share=1.0, multiples=(0.5, 0.75, 1.0, 1.5, 2.0), powers=(0.85, 1.0))
"""Elastic jobs of arXiv 2202.07896 scale nearly linearly, here from half to twice their request (our reading)."""
LENT_SPEED = 0.5
"""Speed of a replica on a lent server of another kind. A T4 has half the peak of a V100 (8.1 and 15.7 TFLOPS in FP32,
NVIDIA's data sheets); the speeds of the paper's jobs are not in our sources."""
QUOTA = 0.05
NON_PREEMPTIVE = ("fifo", "doubling")
"""Policies that do not preempt. Preempting running jobs for earlier ones would make these baselines weaker."""


class Case(NamedTuple):
    """One simulation."""

    kind: str
    policy: str
    load: float
    seed: int


def run(case: Case) -> dict[str, Any]:
    """Return the figures of one case."""
    return {**case._asdict(), **_KINDS[case.kind](case)}


def efficiencies(result: SimulationResult) -> dict[str, float]:
    """Return mean speeds of the jobs, relative to their speed at the requested size.

    `efficiency` counts from the arrival of a job and therefore includes waiting. `speed_while_running` counts only the
    time in which the job had an allocation.
    """
    return {
        "efficiency": float(np.mean(result.work_s / (result.finished_s - result.arrived_s))),
        "speed_while_running": float(np.mean(result.work_s / result.ran_s)),
    }


def _policies(case: Case) -> dict[str, float]:
    """Simulate elastic jobs with power laws of .6 to .95. First-come policies do not preempt.

    With `minimum` the requested size is the smallest one and can double twice. With `around` sizes range from a
    quarter to four times the request. `error_1` is `around` with a lognormal error of σ 1 in the known durations.
    """
    elasticity = _ELASTICITY[case.kind]
    settings = replace(SETTINGS, preempts=case.policy not in NON_PREEMPTIVE)
    result = simulate_scenario(philly(), Scenario(case.policy, case.load, case.seed, JOBS, elasticity, settings)).result
    return result.figures() | efficiencies(result)


def _loaning(case: Case) -> dict[str, float]:
    """Simulate loaned servers. The policy is written `MODE:ALLOCATOR`.

    `neither` has rigid jobs on the training servers; `loaning` adds loaned servers, `elastic` elastic jobs, and `both`
    adds both. Training and inference servers are in the proportion 443 to 520, and a job can use both kinds. Elastic
    are 5 % of the jobs, which hold a third of all GPU-seconds, or all jobs in the kinds of case that `ALL_ELASTIC`
    lists. In those that `SLOWER` lists, lent servers train at `LENT_SPEED`.

    `overall_use` is the use of all servers, the demand of inference included, while jobs arrive; `use_to_end` counts
    to the end of the last job. `demanded_use` is the use if all jobs ran at their requested size as they arrive,
    limited by the servers that are available. `most_use` bounds the use of any policy.
    """
    mode, _, policy = case.policy.partition(":")
    trace, _ = resample_trace(philly(), LOAN_JOBS, seed=case.seed)
    own_servers = int(np.ceil(capacity_at(trace, case.load, ["gpu"])[0] / PER_SERVER))
    inference, day = max(round(own_servers * 520 / 443), 1), int(DAY_S / STEP_S)
    steps = int((trace.arrived_s[-1] + trace.duration_s.max()) / STEP_S) + 20 * day
    demand = inference_day(inference, steps, STEP_S, case.seed)
    lent = lendable(demand, inference, day)[3 * day :]  # the forecast learns its errors from the days before
    if mode not in ("loaning", "both"):
        lent = np.zeros_like(lent)
    workload = workload_of(trace, OF_ARYL, seed=case.seed)
    elastic = np.zeros(len(trace), dtype=bool)
    if mode in ("elastic", "both"):
        elastic = np.ones_like(elastic) if case.kind in ALL_ELASTIC else _elastic_jobs(trace)
    workload = _rigid(workload, ~elastic)
    lent_speed = LENT_SPEED if case.kind in SLOWER else 1.0
    servers = equal_servers([("own", own_servers, [PER_SERVER]), ("lent", inference, [PER_SERVER])])
    capacity = LoanedCapacity(servers, own_servers, lent, STEP_S, seed=case.seed, lent_speed=lent_speed)
    settings = replace(SETTINGS, preempts=policy != "fifo")
    result = Simulation(workload, capacity, get_allocator(policy), settings).run()
    figures, servers_in_all = result.figures(), own_servers + inference
    span_s = float(trace.arrived_s[-1])
    arrivals, run = slice(int(span_s / STEP_S)), slice(int(figures["makespan_s"] / STEP_S))
    by_inference = demand[3 * day :]
    used = result.allocated[0] / PER_SERVER / span_s + float(by_inference[arrivals].mean())
    used_to_end = result.attained.sum() / PER_SERVER / figures["makespan_s"] + float(by_inference[run].mean())
    servers_lent = float(lent[arrivals].mean())
    demanded = min(case.load * own_servers, own_servers + servers_lent) + float(by_inference[arrivals].mean())
    most = _most_used(workload, span_s, own_servers, servers_lent, lent_speed)
    return figures | {
        "overall_use": float(used / servers_in_all), "use_to_end": float(used_to_end / servers_in_all),
        "demanded_use": demanded / servers_in_all,
        "most_use": (most + float(by_inference[arrivals].mean())) / servers_in_all,
        "reclaimed_from": float(capacity.log.preempted), "shrunk": float(capacity.log.shrunk),
        "lent": servers_lent / inference,
    }  # fmt: skip


def _most_used(workload: Workload, span_s: float, own: float, lent: float, lent_speed: float) -> float:
    """Return the most servers that training can use on average while jobs arrive, under any policy.

    Each job takes the offered size of most GPU-seconds, and as many of them as possible are on slower lent servers.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        area = np.where(
            workload.offered & (workload.speed > 0),
            workload.needs[:, :, 0] * workload.work[:, None] / workload.speed,
            0.0,
        )
    demanded = float(area.max(axis=1).sum()) / PER_SERVER / span_s
    on_lent = min(lent, demanded / lent_speed)
    return on_lent + min(own, demanded - on_lent * lent_speed)


def _elastic_jobs(trace: Trace) -> Bools:
    """Return a mask (N,) of the elastic jobs.

    These are 5 % of the jobs, neighbours in the order of their GPU-seconds, whose share is closest to a third.
    """
    area = trace.duration_s * trace.needs["gpu"]
    order, count = np.argsort(-area), max(round(0.05 * len(area)), 1)
    area_share = np.convolve(area[order], np.ones(count), mode="valid") / area.sum()
    first = int(np.abs(area_share - 1 / 3).argmin())
    chosen = np.zeros(len(area), dtype=bool)
    chosen[order[first : first + count]] = True
    return chosen


def _rigid(workload: Workload, fixed: Bools) -> Workload:
    """Return the workload with only the requested size offered to the jobs of the mask `fixed` (N,)."""
    rows, offered, base = np.arange(len(workload)), workload.offered.copy(), workload.base.copy()
    requested = workload.requested
    offered[fixed] = False
    offered[fixed, 0] = True
    offered[rows[fixed], requested[fixed]] = True
    base[fixed] = workload.replicas[rows, requested][fixed]
    return replace(workload, offered=offered, base=base)


def _stages(case: Case) -> dict[str, float]:
    """Simulate users who ask for the wrong size, as in the three-stage proof.

    Users ask for the right size × lognormal (median 5, σ .7), and a fifth of them for half of it. A job is no faster
    beyond twice the right size. The load refers to the requests, each limited to `QUOTA` of the cluster.

    `static` serves the requests, first come first served. `stages` is `default` over a quarter to twice the right size,
    which it knows; trials and a wrong first allocation are not simulated. `sized` serves the right size only, first
    come first served, and shows the cost of over-asking alone.
    """
    trace, _ = resample_trace(philly(), LOAN_JOBS, seed=case.seed)
    rng, N = np.random.default_rng(case.seed), len(trace)
    gpus, powers = trace.needs["gpu"], rng.uniform(0.6, 0.95, len(trace))
    requested = np.where(rng.random(N) < 0.2, 0.5, rng.lognormal(np.log(5.0), 0.7, N))
    requested = np.minimum(requested, np.maximum(QUOTA * _capacity(trace, requested, powers, case.load) / gpus, 0.5))
    capacity = np.array([_capacity(trace, requested, powers, case.load)])
    multiples = np.concatenate([np.zeros((N, 1)), np.tile([0.25, 0.5, 1.0, 2.0], (N, 1)), requested[:, None]], axis=1)
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
        np.full(N, elasticity.change_s), np.full(N, elasticity.restart_s), np.full(N, elasticity.start_up_s),
    )  # fmt: skip
    policy = get_allocator("default" if case.policy == "stages" else "fifo")
    settings = replace(SETTINGS, preempts=case.policy == "stages")
    return Simulation(workload, Capacity(np.maximum(capacity, needs.max())), policy, settings).run().figures()


def _speed(multiples: Floats, powers: Floats) -> Floats:
    """Return speeds relative to the right size."""
    return np.asarray(np.where(multiples > 0, np.minimum(multiples, 2.0) ** powers, 0.0))


def _capacity(trace: Trace, requested: Floats, powers: Floats, load: float) -> float:
    """Return the capacity of which the requested sizes `requested` (N,) use the share `load` until the last arrival."""
    area = trace.duration_s / _speed(requested, powers) * requested * trace.needs["gpu"]
    return float(area.sum() / trace.arrived_s[-1] / load)


_ELASTICITY = {
    "minimum": Elasticity(multiples=(1.0, 2.0, 4.0)),
    "around": Elasticity(multiples=(0.25, 0.5, 1.0, 2.0, 4.0)),
    "error_1": Elasticity(multiples=(0.25, 0.5, 1.0, 2.0, 4.0), error=1.0),
}
ALL_ELASTIC = ("loaning_all_elastic", "loaning_all_elastic_kinds")
SLOWER = ("loaning_kinds", "loaning_all_elastic_kinds")
_KINDS = {
    **dict.fromkeys(_ELASTICITY, _policies),
    **dict.fromkeys(("loaning", *dict.fromkeys(ALL_ELASTIC + SLOWER)), _loaning),
    "stages": _stages,
}
