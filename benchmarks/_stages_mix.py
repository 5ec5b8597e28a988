"""A mix of jobs in simulation: users' static sizes against the three stages, on measured curves and costs.

Each job is one of the bank, with samples for 0.5 to 8 hours at its best allocation. Users ask for the cores of this
allocation × lognormal (median 5, σ .7) and for its memory × lognormal (median 6, σ .7); a fifth of them ask for half of
both. Cores beyond twice the measured ones cost money and do not make the job faster. Auto has the candidates of
`recommend`, given the history of mis-sized runs of other jobs from `warm_start`. Then the real control loop runs over
an executor in memory. The executor's samples/s follow the job's curve, which is fitted to all its trials with a prior
that has not seen its base shape, with 5 % noise per run. All ways may ask for up to twice the measured cores per
replica; auto also for up to twice the measured replicas, where the speed is that of the curve.

The ways are *static*, first come first served with what the users ask for; *alone*, first come first served with what
auto finds best for each job by itself; and *shared*, in which the cluster is divided in rounds
(`sizewright.runtime.shared_run`). A static job whose memory is smaller than its peak dies half way; in auto the
forecast enlarges the memory, as the case `memory` shows with real jobs. The mean JCT is over the jobs that complete in
all ways. Use is the used share of what is allocated.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks._measured import on_all_cores
from benchmarks._report import choose
from benchmarks.warm_start import MAX_CPU, MIN_CPU, NOW, Truth, bases_of_bank, history_of, prior_curve_of, truths_of
from sizewright.cluster.problem.candidates import JobTable
from sizewright.cluster.shared_cluster import SharedCluster
from sizewright.datasets.runs.finished_job import FinishedJob
from sizewright.models.factory import make_predictor
from sizewright.models.prior import JobCurve
from sizewright.recommender.control.controller import Controller
from sizewright.recommender.control.scaler import AutoScaler
from sizewright.recommender.sizing.request import SizingRequest
from sizewright.recommender.sizing.select import recommend
from sizewright.runtime.shared_run import LaunchedJob, SharedRun
from sizewright.spec import Allocation, Bounds, Candidate, ChangeCost, Cluster, HostKind, Job, Objective, Plan
from sizewright.testing import FakeExecutor, ManualClock

JOBS, HISTORY = choose(320, 20, 3), 10
TURN_S = 60.0
LIVE_COST = ChangeCost(seconds=4.0, lower=1.0, upper=16.0)
"""The cost of live changes as measured on this host."""
LOAD = 0.9
"""Load of the cluster by the users' requests. `LOADS` are further loads for comparison."""
LOADS = (0.5, 0.7, 0.8, 0.9, 1.0, 1.1)
DRAWS, SHARED_DRAWS = choose(50, 50, 5), choose(2, 2, 1)
"""Number of random draws of the arrival times; JCTs are means over the draws. Of these, the first are run shared."""
MOST_REPLICAS = {"worker": 8, "ps": 6}
"""Twice the measured ones."""
Floats = NDArray[np.float64]


class SubmittedJob(NamedTuple):
    """A job as its user submits it."""

    truth: Truth
    job: Job
    cores: float
    memory: float
    """Requested memory over the peak."""
    static: Allocation
    noise: float


class Trace(NamedTuple):
    """A run: its duration, the most cores that it holds, what it holds and uses over time, and whether it completes."""

    seconds: float
    max_cores: float
    core_s: float
    used_core_s: float
    byte_s: float
    used_byte_s: float
    completes: bool
    changes: int
    enlarged: bool = False
    """Whether it started with less memory than it needed later."""


class Simulated(NamedTuple):
    """A simulated run: its duration, the seconds at each allocation, and the number of changes."""

    seconds: float
    spans: list[tuple[Allocation, float]]
    changes: int


def jobs_of(truths: list[Truth], count: int, objective: Objective, seed: int = 0) -> list[SubmittedJob]:
    """Return `count` random jobs as their users submit them."""
    rng, jobs = np.random.default_rng(seed), list[SubmittedJob]()
    for number in range(count):
        truth = truths[int(rng.integers(len(truths)))]
        best = truth.grid.allocation(truth.best)
        hours = float(np.clip(rng.lognormal(np.log(2.0), 0.8), 0.5, 8.0))
        samples = round(truth.rate(best) * hours * 3600)
        training = truth.job.training.model_copy(update={"samples": samples})
        fields = {"name": f"{truth.job.name}-{number}", "training": training, "bounds": _wide_bounds(truth.job)}
        job = truth.job.model_copy(update=fields | {"objective": objective})
        half = rng.random() < 0.2
        cpu = 0.5 if half else float(rng.lognormal(np.log(5), 0.7))
        memory = 0.5 if half else float(rng.lognormal(np.log(6), 0.7))
        worker, ps = (
            float(np.clip(group.cpu * cpu, MIN_CPU, max_cpu))
            for group, max_cpu in zip((best.worker[0], best.ps[0]), MAX_CPU, strict=True)
        )
        static = Allocation.of(best.replicas("worker"), best.replicas("ps"), worker, ps, best.batch_size)
        cores = max(best.cores() * cpu, static.cores())
        jobs.append(SubmittedJob(truth, job, cores, memory, static, float(rng.lognormal(0, 0.05))))
    return jobs


def _wide_bounds(job: Job) -> Bounds:
    """Return the job's bounds, widened to twice the measured sizes and numbers of replicas."""
    roles = {}
    for role, max_cpu in zip(("worker", "ps"), MAX_CPU, strict=True):
        bounds = getattr(job.bounds, role)
        wide = {"cpu": (bounds.cpu[0], max_cpu), "replicas": (bounds.replicas[0], MOST_REPLICAS[role])}
        roles[role] = bounds.model_copy(update=wide)
    return job.bounds.model_copy(update=roles)


def capacity_of(jobs: list[SubmittedJob]) -> float:
    """Return the cores of the cluster, enough for about twenty jobs at their requested sizes."""
    return 20 * float(np.mean([each.cores for each in jobs]))


def static_trace(submitted: SubmittedJob) -> Trace:
    """Return the run at the user's size, until it ends or dies."""
    rate = submitted.truth.rate(submitted.static) * submitted.noise
    seconds = (submitted.job.samples or 0) / rate
    peak, completes = _peak_bytes(submitted.truth, submitted.static), submitted.memory >= 1.0
    seconds *= 1.0 if completes else 0.5
    bytes_held = peak * submitted.memory
    return Trace(
        seconds, submitted.cores, submitted.cores * seconds, _used_cores(submitted, submitted.static, rate) * seconds,
        bytes_held * seconds, min(peak, bytes_held) * seconds, completes, 0,
    )  # fmt: skip


class Sized(NamedTuple):
    """What `recommend` says about a job; without a target where the prior does not support it."""

    target: Allocation | None
    candidates: tuple[Candidate, ...]


def sized(submitted: SubmittedJob, history: list[FinishedJob]) -> Sized:
    """Size a job from prior and history, the runs of other jobs."""
    truth, job = submitted.truth, submitted.job
    others = [run for run in history if run.key != truth.job.hash]
    answer = recommend(SizingRequest(job, prior=truth.prior, history=others, now=NOW))
    candidates = (Candidate(allocation=a.allocation, throughput=a.throughput.value) for a in answer.alternatives)
    return Sized(answer.target, tuple(candidates))


def alone_trace(submitted: SubmittedJob, size: Sized) -> Trace:
    """Return the run that starts at its recommended size and is then tuned by itself."""
    truth, job = submitted.truth, submitted.job
    if size.target is None:  # the user's size stays
        return static_trace(submitted)
    run = simulated(truth, job, size.target, truth.prior.curve(job), noise=submitted.noise, cost=LIVE_COST)
    return _summed(submitted, run.spans, run.changes)


def simulated(
    truth: Truth,
    job: Job,
    start: Allocation,
    prior_curve: JobCurve,
    *,
    noise: float,
    cost: ChangeCost,
    turn_s: float = TURN_S,
    cluster: Cluster | None = None,
) -> Simulated:
    """Run the control loop over an executor in memory until the job ends."""
    executor = FakeExecutor(throughput=_rates(truth, noise), cost=cost)
    handle = executor.launch(Plan(id="p", kind="launch", job=job, target=start, reason=""))
    controller = Controller(
        job, executor, handle, start, AutoScaler(job, predictor=make_predictor(prior_curve), cluster=cluster),
        clock=executor.clock, now=lambda: NOW + timedelta(seconds=executor.clock()), turn_s=turn_s,
    )  # fmt: skip
    starts, changes = [(start, 0.0)], 0
    while not executor.wait(handle, turn_s):
        changes += bool(controller.reconcile().applied)
        if controller.allocation != starts[-1][0]:
            starts.append((controller.allocation, executor.clock()))
    ends = [at for _, at in starts[1:]] + [executor.clock()]
    spans = [(a, end - at) for (a, at), end in zip(starts, ends, strict=True)]
    return Simulated(executor.clock(), spans, changes)


def _summed(submitted: SubmittedJob, spans: list[tuple[Allocation, float]], changes: int) -> Trace:
    """Return the sums over the spans of a run. During a change both allocations are paid for."""
    sums, enlarged = np.zeros(4), False
    for a, seconds in spans:
        rate = submitted.truth.rate(a) * submitted.noise
        held = seconds + (LIVE_COST.seconds if changes else 0.0)
        need = _peak_bytes(submitted.truth, a)
        asked_bytes = max(float(a.memory_bytes()), need)
        enlarged |= a.memory_bytes() < need
        sums += [a.cores() * held, _used_cores(submitted, a, rate) * seconds, asked_bytes * held, need * seconds]
    max_cores = max(a.cores() for a, _ in spans)
    held, used, bytes_held, bytes_used = (float(value) for value in sums)
    return Trace(sum(s for _, s in spans), max_cores, held, used, bytes_held, bytes_used, True, changes, enlarged)


def _peak_bytes(truth: Truth, a: Allocation) -> float:
    worker, ps = truth.peaks(a)
    return a.replicas("worker") * worker + a.replicas("ps") * ps


def _used_cores(submitted: SubmittedJob, a: Allocation, rate: float) -> float:
    """Return the cores in use, from the CPU seconds per sample in the trials of the job."""
    usable = [t for t in submitted.truth.trials if t.worker_cpu_used and t.ps_cpu_used and t.throughput]
    cpu_s_per_sample = [
        (t.workers * (t.worker_cpu_used or 0) + t.ps * (t.ps_cpu_used or 0)) / (t.throughput or 1) for t in usable
    ]
    return min(a.cores(), float(np.median(cpu_s_per_sample)) * rate)


def queued(arrivals: Floats, traces: list[Trace], capacity: float) -> list[float]:
    """Return seconds from arrival to end, first come first served. A job waits for the most cores that it will hold."""
    free, ends, done, now = capacity, list[tuple[float, float]](), list[float](), 0.0
    for at_s, trace in zip(arrivals, traces, strict=True):
        now, need = max(now, float(at_s)), min(trace.max_cores, capacity)
        while ends and (ends[0][0] <= now or free < need - 1e-9):
            end, cores = heapq.heappop(ends)
            now, free = max(now, end), free + cores
        free -= need
        heapq.heappush(ends, (now + trace.seconds, need))
        done.append(now + trace.seconds - float(at_s))
    return done


class Arrived(NamedTuple):
    """A job of the shared cluster: when it arrived, and its allocations with the times from which it had them."""

    at_s: float
    executor: FakeExecutor
    starts: list[tuple[Allocation, float]]


def shared_traces(
    arrivals: Floats, jobs: list[SubmittedJob], sizes: list[Sized], capacity: float
) -> list[tuple[float, Trace]]:
    """Return seconds from arrival to end, and the run, of each job in a cluster that is divided in rounds."""
    clock = ManualClock()
    cluster = Cluster(hosts=(HostKind(kind="host", cpu=capacity, memory_bytes=1 << 50),))
    by_name = {submitted.job.name: submitted for submitted in jobs}
    arrived = dict[str, Arrived]()

    def launch(name: str, allocation: Allocation) -> LaunchedJob:
        submitted, executor = by_name[name], arrived[name].executor
        executor.clock.sleep(clock() - executor.clock())
        job, truth = submitted.job, submitted.truth
        handle = executor.launch(Plan(id=name, kind="launch", job=job, target=allocation, reason=""))
        arrived[name].starts.append((allocation, clock()))
        scaler = AutoScaler(job, predictor=make_predictor(prior_curve_of(truth.prior, job)))
        controller = Controller(
            job, executor, handle, allocation, scaler,
            clock=executor.clock, now=lambda: NOW + timedelta(seconds=clock()), turn_s=TURN_S,
        )  # fmt: skip
        return LaunchedJob(executor, handle, controller)

    run = SharedRun(SharedCluster(cluster), launch, clock)
    waiting = deque(sorted(zip(arrivals, jobs, sizes, strict=True), key=lambda each: float(each[0])))
    while waiting or run.waiting or run.running:
        while waiting and waiting[0][0] <= clock():
            at_s, submitted, size = waiting.popleft()
            arrived[submitted.job.name] = Arrived(float(at_s), _executor(submitted), [])
            run.submit(_table(submitted, size, float(at_s)))
        for name, launched in run.running.items():
            launched.executor.wait(launched.handle, max(clock() - arrived[name].executor.clock(), 0.0))
        run.step()
        for name, launched in run.running.items():
            if launched.controller.allocation != arrived[name].starts[-1][0]:
                arrived[name].starts.append((launched.controller.allocation, arrived[name].executor.clock()))
        clock.sleep(TURN_S)
    return [_shared_trace(submitted, arrived[submitted.job.name]) for submitted in jobs]


def _executor(submitted: SubmittedJob) -> FakeExecutor:
    return FakeExecutor(throughput=_rates(submitted.truth, submitted.noise), cost=LIVE_COST)


def _rates(truth: Truth, noise: float) -> Callable[[Allocation], float]:
    """Return the samples/s of allocations; each is computed once."""
    known = dict[Allocation, float]()

    def rate(a: Allocation) -> float:
        if a not in known:
            known[a] = truth.rate(a) * noise
        return known[a]

    return rate


def _table(submitted: SubmittedJob, size: Sized, at_s: float) -> JobTable:
    samples = float(submitted.job.samples or 0)
    own = Candidate(allocation=submitted.static, throughput=submitted.truth.rate(submitted.static))
    return JobTable(submitted.job.name, size.candidates or (own,), samples, samples, arrived_s=at_s)


def _shared_trace(submitted: SubmittedJob, arrived: Arrived) -> tuple[float, Trace]:
    end_s = arrived.executor.clock()
    ends = [at for _, at in arrived.starts[1:]] + [end_s]
    spans = [(a, end - at) for (a, at), end in zip(arrived.starts, ends, strict=True)]
    return end_s - arrived.at_s, _summed(submitted, spans, len(spans) - 1)


def mix(count: int = JOBS, objective: Objective = "time") -> dict[str, Any]:
    """Return the figures of the mix and their details."""
    truths = [truth for truths_of_base in on_all_cores(truths_of, bases_of_bank()) for truth in truths_of_base]
    jobs = jobs_of(truths, count, objective)
    capacity = capacity_of(jobs)
    static = [static_trace(each) for each in jobs]
    history = [run for truth in truths for run in history_of(truth, HISTORY)]
    sizes = on_all_cores(sized, jobs, [history] * count)
    alone = on_all_cores(alone_trace, jobs, sizes)
    both = [i for i in range(count) if static[i].completes and alone[i].completes]
    ways = {"static": static, "alone": alone}
    gaps = np.random.default_rng(0).exponential(sum(each.core_s for each in static) / capacity / count, (DRAWS, count))

    def mean_jct(way: str, load: float, draws: int = DRAWS) -> float:
        done = [queued(np.cumsum(each) / load, ways[way], capacity) for each in gaps[:draws]]
        return float(np.mean(np.array(done)[:, both]))

    arrivals = [np.cumsum(each) / LOAD for each in gaps[:SHARED_DRAWS]]
    draws = len(arrivals)
    shared = on_all_cores(shared_traces, arrivals, [jobs] * draws, [sizes] * draws, [capacity] * draws)
    ways["shared"] = [trace for _, trace in shared[0]]
    shared_jct = float(np.mean([[run[i][0] for i in both] for run in shared]))
    static_jct = mean_jct("static", LOAD, draws)
    ran = {way: float(np.mean([traces[i].seconds for i in both])) for way, traces in ways.items()}
    figures = {
        "mix_jct_gain": 1 - shared_jct / static_jct,
        "mix_alone_jct_gain": 1 - mean_jct("alone", LOAD, draws) / static_jct,
        "mix_completion_points": 100 * (_share(ways["shared"]) - _share(static)),
        "mix_cpu_points": 100 * (_use(ways["shared"], "core_s") - _use(static, "core_s")),
        "mix_memory_points": 100 * (_use(ways["shared"], "byte_s") - _use(static, "byte_s")),
    }
    loads = {load: 1 - mean_jct("alone", load) / mean_jct("static", load) for load in LOADS}
    details = {
        "jobs": count, "capacity_cores": capacity, "load": LOAD, "mean_run_s": ran,
        "mean_jct_s": {"static": static_jct, "shared": shared_jct},
        "alone_jct_gain_at_load": loads,
        "completed": {way: _share(traces) for way, traces in ways.items()},
        "cpu_use": {way: _use(traces, "core_s") for way, traces in ways.items()},
        "memory_use": {way: _use(traces, "byte_s") for way, traces in ways.items()},
        "adjustments": {way: float(np.mean([trace.changes for trace in traces])) for way, traces in ways.items()},
        "enlarged": float(np.mean([trace.enlarged for trace in alone])),
    }  # fmt: skip
    return {"figures": figures, "details": details}


def _share(traces: list[Trace]) -> float:
    return float(np.mean([trace.completes for trace in traces]))


def _use(traces: list[Trace], what: str) -> float:
    held = math.fsum(getattr(trace, what) for trace in traces)
    return math.fsum(getattr(trace, f"used_{what}") for trace in traces) / held
