"""A mix of jobs in simulation: users' static sizes against the three stages, on measured curves and costs.

Each job is one of the bank's, with samples for 0.5 to 8 hours at its best allocation. Users ask for the cores of that
× lognormal (median 5, σ .7) and for its memory × lognormal (median 6, σ .7), a fifth for half of both. Cores beyond
twice what was measured are paid for and speed nothing up. Auto starts where `recommend` says, given a history of
mis-sized runs of other jobs (that of `warm_start`), and the control loop itself then turns over an executor whose
samples/s are the job's curve (fitted to all its trials, joined with a prior that has not seen its base shape) with 5 %
noise a run. Both may ask for up to twice the cores that were measured.

All jobs go through one cluster, first come first served. A job whose memory is less than its peak dies half way when
it is static; in auto the forecast enlarges it, as the case `memory` shows with real ones. Mean JCT is over the jobs
that both complete; use is what is used over what is allocated.
"""

from __future__ import annotations

import heapq
import math
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks._measured import on_all_cores
from benchmarks._report import choose
from benchmarks.warm_start import LEAST_CPU, MOST_CPU, NOW, Truth, bases_of_bank, history_of, truths_of
from sizewright.datasets.runs.finished_job import FinishedJob
from sizewright.models.prior import JobCurve
from sizewright.recommender.control.controller import Controller
from sizewright.recommender.control.scaler import AutoScaler
from sizewright.recommender.sizing.select import recommend
from sizewright.spec import Allocation, Bounds, ChangeCost, Cluster, Job, Objective, Plan
from sizewright.testing import FakeExecutor

JOBS, HISTORY = choose(320, 320, 3), 10
TURN_S = 60.0
LIVE_COST = ChangeCost(seconds=4.0, lower=1.0, upper=16.0)
"""As live changes here took."""
LOAD = 0.9
"""Of the cluster, by what users ask for; and others for comparison."""
LOADS = (0.5, 0.7, 0.8, 0.9, 1.0, 1.1)
DRAWS = choose(50, 50, 5)
"""Of the times at which the jobs arrive; JCTs are means over them."""
Floats = NDArray[np.float64]


class Asked(NamedTuple):
    """A job as its user submits it."""

    truth: Truth
    job: Job
    cores: float
    memory: float
    """Over the peak."""
    static: Allocation
    noise: float


class Trace(NamedTuple):
    """A run: how long, the most cores that it holds, what it holds and uses over time, whether it completes."""

    seconds: float
    most_cores: float
    core_s: float
    used_core_s: float
    byte_s: float
    used_byte_s: float
    completes: bool
    changes: int
    enlarged: bool = False
    """Whether it was given less memory at first than it came to need."""


class Simulated(NamedTuple):
    """Seconds until its end, how long it trained where, and how often it was changed."""

    seconds: float
    spans: list[tuple[Allocation, float]]
    changes: int


def jobs_of(truths: list[Truth], count: int, objective: Objective, seed: int = 0) -> list[Asked]:
    """As many as are asked for."""
    rng, found = np.random.default_rng(seed), list[Asked]()
    for number in range(count):
        truth = truths[int(rng.integers(len(truths)))]
        best = truth.grid.allocation(truth.best)
        hours = float(np.clip(rng.lognormal(np.log(2.0), 0.8), 0.5, 8.0))
        samples = round(truth.rate(best) * hours * 3600)
        training = truth.job.training.model_copy(update={"samples": samples})
        about = {"name": f"{truth.job.name}-{number}", "training": training, "bounds": _generous(truth.job)}
        job = truth.job.model_copy(update=about | {"objective": objective})
        half = rng.random() < 0.2
        cpu = 0.5 if half else float(rng.lognormal(np.log(5), 0.7))
        memory = 0.5 if half else float(rng.lognormal(np.log(6), 0.7))
        worker, ps = (
            float(np.clip(group.cpu * cpu, LEAST_CPU, most))
            for group, most in zip((best.worker[0], best.ps[0]), MOST_CPU, strict=True)
        )
        static = Allocation.of(best.replicas("worker"), best.replicas("ps"), worker, ps, best.batch_size)
        cores = max(best.cores() * cpu, static.cores())
        found.append(Asked(truth, job, cores, memory, static, float(rng.lognormal(0, 0.05))))
    return found


def _generous(job: Job) -> Bounds:
    """Up to what a user may ask for."""
    sizes = {
        role: (getattr(job.bounds, role).cpu[0], most) for role, most in zip(("worker", "ps"), MOST_CPU, strict=True)
    }
    roles = {role: getattr(job.bounds, role).model_copy(update={"cpu": cpu}) for role, cpu in sizes.items()}
    return job.bounds.model_copy(update=roles)


def capacity_of(jobs: list[Asked]) -> float:
    """Cores of the cluster: some twenty jobs as users ask for them."""
    return 20 * float(np.mean([each.cores for each in jobs]))


def static_trace(asked: Asked) -> Trace:
    """As its user says, to the end or to its death."""
    rate = asked.truth.rate(asked.static) * asked.noise
    seconds = (asked.job.samples or 0) / rate
    peak, completes = _peak_bytes(asked.truth, asked.static), asked.memory >= 1.0
    seconds *= 1.0 if completes else 0.5
    bytes_held = peak * asked.memory
    return Trace(
        seconds, asked.cores, asked.cores * seconds, _used_cores(asked, asked.static, rate) * seconds,
        bytes_held * seconds, min(peak, bytes_held) * seconds, completes, 0,
    )  # fmt: skip


def auto_trace(asked: Asked, history: list[FinishedJob]) -> Trace:
    """Sized by what is known, then tuned."""
    truth, job = asked.truth, asked.job
    others = [run for run in history if run.key != truth.job.hash]
    answer = recommend(job, [], prior=truth.prior, history=others, now=NOW)
    if answer.target is None:  # the prior tells nothing of it: as its user says
        return static_trace(asked)
    told = simulated(truth, job, answer.target, truth.prior.curve(job), noise=asked.noise, cost=LIVE_COST)
    return _summed(asked, told.spans, told.changes)


def simulated(
    truth: Truth,
    job: Job,
    start: Allocation,
    foretold: JobCurve,
    *,
    noise: float,
    cost: ChangeCost,
    turn_s: float = TURN_S,
    cluster: Cluster | None = None,
) -> Simulated:
    """The control loop over an executor in memory, to the end of the job."""
    executor = FakeExecutor(throughput=lambda a: truth.rate(a) * noise, cost=cost)
    handle = executor.launch(Plan(id="p", kind="launch", job=job, target=start, reason=""))
    tuner = Controller(
        job, executor, handle, start, AutoScaler(job, foretold=foretold, cluster=cluster), clock=executor.clock,
        now=lambda: NOW + timedelta(seconds=executor.clock()), turn_s=turn_s,
    )  # fmt: skip
    stretches, changes = [(start, 0.0)], 0
    while not executor.wait(handle, turn_s):
        changes += bool(tuner.reconcile().applied)
        if tuner.allocation != stretches[-1][0]:
            stretches.append((tuner.allocation, executor.clock()))
    ends = [at for _, at in stretches[1:]] + [executor.clock()]
    spans = [(a, end - at) for (a, at), end in zip(stretches, ends, strict=True)]
    return Simulated(executor.clock(), spans, changes)


def _summed(asked: Asked, spans: list[tuple[Allocation, float]], changes: int) -> Trace:
    """Each change is paid for twice while it lasts."""
    sums, enlarged = np.zeros(4), False
    for a, seconds in spans:
        rate = asked.truth.rate(a) * asked.noise
        held = seconds + (LIVE_COST.seconds if changes else 0.0)
        need = _peak_bytes(asked.truth, a)
        asked_bytes = max(float(a.memory_bytes()), need)
        enlarged |= a.memory_bytes() < need
        sums += [a.cores() * held, _used_cores(asked, a, rate) * seconds, asked_bytes * held, need * seconds]
    most = max(a.cores() for a, _ in spans)
    held, used, bytes_held, bytes_used = (float(value) for value in sums)
    return Trace(sum(s for _, s in spans), most, held, used, bytes_held, bytes_used, True, changes, enlarged)


def _peak_bytes(truth: Truth, a: Allocation) -> float:
    worker, ps = truth.peaks(a)
    return a.replicas("worker") * worker + a.replicas("ps") * ps


def _used_cores(asked: Asked, a: Allocation, rate: float) -> float:
    """By the CPU seconds a sample that the trials of the job took."""
    told = [t for t in asked.truth.trials if t.worker_cpu_used and t.ps_cpu_used and t.throughput]
    each = [(t.workers * (t.worker_cpu_used or 0) + t.ps * (t.ps_cpu_used or 0)) / (t.throughput or 1) for t in told]
    return min(a.cores(), float(np.median(each)) * rate)


def queued(arrivals: Floats, traces: list[Trace], capacity: float) -> list[float]:
    """Seconds from arrival to end of each, first come first served: it waits for the most cores that it will hold."""
    free, ends, done, now = capacity, list[tuple[float, float]](), list[float](), 0.0
    for at_s, trace in zip(arrivals, traces, strict=True):
        now, need = max(now, float(at_s)), min(trace.most_cores, capacity)
        while ends and (ends[0][0] <= now or free < need - 1e-9):
            end, cores = heapq.heappop(ends)
            now, free = max(now, end), free + cores
        free -= need
        heapq.heappush(ends, (now + trace.seconds, need))
        done.append(now + trace.seconds - float(at_s))
    return done


def mix(count: int = JOBS, objective: Objective = "time") -> dict[str, Any]:
    """Figures of the mix, and what they rest on."""
    truths = [truth for some in on_all_cores(truths_of, bases_of_bank()) for truth in some]
    jobs = jobs_of(truths, count, objective)
    capacity = capacity_of(jobs)
    static = [static_trace(each) for each in jobs]
    history = [run for truth in truths for run in history_of(truth, HISTORY)]
    auto = on_all_cores(auto_trace, jobs, [history] * count)
    both = [i for i in range(count) if static[i].completes and auto[i].completes]
    ways = {"static": static, "auto": auto}

    gaps = np.random.default_rng(0).exponential(sum(each.core_s for each in static) / capacity / count, (DRAWS, count))

    def mean_jct(way: str, load: float) -> float:
        done = [queued(np.cumsum(each) / load, ways[way], capacity) for each in gaps]
        return float(np.mean(np.array(done)[:, both]))

    mean = {way: mean_jct(way, LOAD) for way in ways}
    ran = {way: float(np.mean([traces[i].seconds for i in both])) for way, traces in ways.items()}
    figures = {
        "mix_jct_gain": 1 - mean["auto"] / mean["static"],
        "mix_completion_points": 100 * (_share(auto) - _share(static)),
        "mix_cpu_points": 100 * (_use(auto, "core_s") - _use(static, "core_s")),
        "mix_memory_points": 100 * (_use(auto, "byte_s") - _use(static, "byte_s")),
    }
    details = {
        "jobs": count, "capacity_cores": capacity, "load": LOAD, "mean_jct_s": mean, "mean_run_s": ran,
        "jct_gain_at_load": {load: 1 - mean_jct("auto", load) / mean_jct("static", load) for load in LOADS},
        "completed": {"static": _share(static), "auto": _share(auto)},
        "cpu_use": {"static": _use(static, "core_s"), "auto": _use(auto, "core_s")},
        "memory_use": {"static": _use(static, "byte_s"), "auto": _use(auto, "byte_s")},
        "adjustments": float(np.mean([trace.changes for trace in auto])),
        "enlarged": float(np.mean([trace.enlarged for trace in auto])),
    }  # fmt: skip
    return {"figures": figures, "details": details}


def _share(traces: list[Trace]) -> float:
    return float(np.mean([trace.completes for trace in traces]))


def _use(traces: list[Trace], what: str) -> float:
    held = math.fsum(getattr(trace, what) for trace in traces)
    return math.fsum(getattr(trace, f"used_{what}") for trace in traces) / held
