"""One run of the three-stage proof: a job that really trains, with its cores limited by control groups.

*static* splits the samples into equal contiguous parts, one for each worker, and replaces nothing. *queue* leases the
samples and replaces nothing. *auto* does what `sizewright run --tune` does.
"""

from __future__ import annotations

import bisect
import itertools
import os
import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from benchmarks._stages_watch import Episode, false_alarms, steps_until_found
from sizewright.errors import ReplicaDiedError
from sizewright.executors.change_costs import SESSION_PRIORS, ChangeCosts
from sizewright.executors.session.local import LocalExecutor
from sizewright.models.factory import make_predictor
from sizewright.models.prior import JobCurve
from sizewright.recommender.control.decisions import Decision
from sizewright.runtime.plan_files import launch_plan
from sizewright.runtime.run import run_plan
from sizewright.runtime.tuning import Tuning, controller_factory
from sizewright.spec import Allocation, ChangeCost, Cluster, Failure, Handle, Job, Metrics, Outcome, Plan
from sizewright.spec.objective import allocation_price
from sizewright.training.leases.sample_leases import Lease, SampleLeases
from sizewright.training.leases.sample_ranges import Range, SampleRanges
from sizewright.training.program import Program
from sizewright.training.session import Session

How = Literal["static", "queue", "auto"]
# Replicas load programs of this folder.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
_CUT_PERIOD_US = 100_000
_DEFAULT_PERIOD_US = 20_000
_CHECKPOINTS = 10
_HALVED_S, _STEPS_EVERY_S, _SETTLED_S = 6.0, 5.0, 3.0


class Fault(NamedTuple):
    """A fault that strikes when the run has trained this share of its samples."""

    share: float
    strike: Callable[[Session], None]


class Setting(NamedTuple):
    """A job at an allocation, with its fault and the conditions of the run."""

    job: Job
    allocation: Allocation
    samples: int
    fault: Fault | None = None
    checkpoints: bool = False
    change_s: float = 0.0
    """Extra seconds of every change, during which the job trains on, as while pods start."""
    prior_curve: JobCurve | None = None
    program: Program | None = None
    cluster: Cluster | None = None
    halves: bool = False
    """Whether workers are limited to half of their cores in turn, a few seconds each."""


class Ran(NamedTuple):
    """The result of a run."""

    how: str
    status: str
    samples: int
    jct_s: float
    cost: float
    restarts: int
    kills: int
    changes: list[str]
    reasons: list[str]
    lost: float | None
    """Share of the step time that the passes of the control loop cost."""
    final: str
    ps_utilization: float | None
    ps_peak_bytes: int
    hot_share: float | None
    """Share of the look-ups of the busiest PS at the end."""
    hot_work: float | None
    """Share of the CPU seconds of all PS that the busiest one uses at the end."""
    alarms: tuple[int, int] | None
    """False alarms and decisions, on the step log of a run without a fault."""
    found_after: list[int | None]
    """Steps until each worker with halved cores was detected."""
    decision_s: list[float]


def cut_cpu(name: str, cores: float, period_us: int = _CUT_PERIOD_US) -> Callable[[Session], None]:
    """Limit a replica to `cores` without the engine knowing."""

    def strike(session: Session) -> None:
        tree = session._node_agent.tree if session._node_agent else None
        assert tree is not None, "control groups are needed"
        folder = tree.below(name).folders["cpu"]
        quota = str(round(cores * period_us))
        if tree.version == 2:
            (folder / "cpu.max").write_text(f"{quota} {period_us}")
        else:
            (folder / "cpu.cfs_quota_us").write_text("-1")
            (folder / "cpu.cfs_period_us").write_text(str(period_us))
            (folder / "cpu.cfs_quota_us").write_text(quota)

    return strike


def kill(*names: str) -> Callable[[Session], None]:
    """Kill the processes of replicas."""

    def strike(session: Session) -> None:
        pids = session.pids()
        for name in names:
            os.kill(pids[name], signal.SIGKILL)

    return strike


class Parts:
    """Sample leases that give each worker, in order of arrival, its own contiguous part."""

    def __init__(self, total: int, workers: int, batch_size: int, trained: Sequence[Range] = ()) -> None:
        edges = [total * i // workers for i in range(workers + 1)]
        around = [[(0, low), (high, total)] for low, high in itertools.pairwise(edges)]
        self._books = [
            SampleLeases(total, batch_size=batch_size, trained=[r for r in (*outside, *trained) if r[0] < r[1]])
            for outside in around
        ]
        self._total, self._book_of_worker = total, dict[int, SampleLeases]()

    def lease(self, worker: int, now_s: float) -> Lease | None:
        if worker not in self._book_of_worker and len(self._book_of_worker) < len(self._books):
            self._book_of_worker[worker] = self._books[len(self._book_of_worker)]
        return self._book_of_worker[worker].lease(worker, now_s) if worker in self._book_of_worker else None

    def report(self, worker: int, lease_id: int, until: int, now_s: float) -> None:
        self._book_of_worker[worker].report(worker, lease_id, until, now_s)

    def hand_back(self, worker: int) -> None:
        if worker in self._book_of_worker:
            self._book_of_worker[worker].hand_back(worker)

    def release(self, worker: int, applied: Sequence[SampleRanges]) -> int:
        return self._book_of_worker[worker].release(worker, applied) if worker in self._book_of_worker else 0

    def skip(self, start: int, end: int) -> None:
        for book in self._books:
            book.skip(start, end)

    def set_batch_size(self, batch_size: int) -> None:
        for book in self._books:
            book.set_batch_size(batch_size)

    @property
    def finished(self) -> bool:
        return all(book.finished for book in self._books)

    @property
    def trained(self) -> int:
        return self._total - self.remaining()

    def remaining(self) -> int:
        return sum(book.remaining() or 0 for book in self._books)

    def trained_ranges(self) -> SampleRanges:
        all_samples = SampleRanges([(0, self._total)])
        return all_samples.minus(
            SampleRanges(r for book in self._books for r in all_samples.minus(book.trained_ranges()))
        )

    def trained_valid_ranges(self) -> SampleRanges:
        return self.trained_ranges()


class _Watched(LocalExecutor):
    """The local executor, which also triggers the fault, sums up the cost, and records step times."""

    def __init__(self, setting: Setting, how: How, folder: str | None, resume: str | None) -> None:
        every = setting.samples / _CHECKPOINTS if setting.checkpoints else None
        super().__init__(samples=setting.samples, snapshot_s=None, folder=folder, resume=resume)
        self._options["recover"] = how == "auto"
        self._options["snapshot_s"] = 9.0 if every else None
        self.setting, self.how = setting, how
        self.fault_done = resume is not None
        self.cost = 0.0
        self.steps: dict[str, list[float]] = {}
        self.last: Metrics | None = None
        self.ps_peak_bytes = 0
        self.before_fault: list[Metrics] = []
        self._at_s: float | None = None
        self.tail: deque[Metrics] = deque(maxlen=20)
        self.episodes: list[Episode] = []
        self._began_s = self._steps_due_s = time.monotonic()
        if setting.change_s:
            s = setting.change_s
            cost = ChangeCost(seconds=s, lower=s / 2, upper=2 * s)
            self.change_costs = ChangeCosts(dict(SESSION_PRIORS) | {"scale": cost, "rebalance": cost})

    def _open(self, job: Job) -> Session:
        program = self.setting.program
        session = Session(job, samples=self.setting.samples, program=program, **self._options)
        if self.how == "static":
            book: Any = session._lease_server.leases
            workers = self.setting.allocation.replicas("worker")
            size = self.setting.allocation.batch_size
            session._lease_server.leases = Parts(  # type: ignore[assignment]
                self.setting.samples, workers, size, book.trained_ranges()
            )
        self.session = session
        return session

    def observe(self, handle: Handle) -> Metrics:
        metrics = super().observe(handle)
        now = time.monotonic()
        self.last = metrics
        self._add_cost(now)
        self.tail.append(metrics)
        self._record_steps(now)
        if self.setting.halves:
            self._halve(now)
        self.ps_peak_bytes = max([self.ps_peak_bytes, *(r.memory_peak_bytes for r in metrics.of("ps"))])
        fault = self.setting.fault
        share = metrics.samples_trained / self.setting.samples
        if (share < fault.share if fault else share < 0.95) and share > 0.03:
            self.before_fault.append(metrics)
        if fault and not self.fault_done and share >= fault.share:
            self.fault_done = True
            fault.strike(self.session)
        return metrics

    def stop(self, handle: Handle) -> Outcome:
        """Stop the job. The cost counts until here."""
        self._add_cost(time.monotonic())
        self._at_s = None
        return super().stop(handle)

    def _add_cost(self, now: float) -> None:
        """Add the cost of the last observed allocation until now."""
        if self.last and self.last.allocation and self._at_s is not None:
            self.cost += allocation_price(self.last.allocation, self.setting.job.prices) * (now - self._at_s) / 3600
        self._at_s = now

    def share_of_busiest(self, counter: str) -> float | None:
        """Return the share of the busiest PS in what all PS have gained of a counter at the end."""
        if not self.tail:
            return None
        before = {r.name: getattr(r, counter) for r in self.tail[0].of("ps")}
        gained = [getattr(r, counter) - before.get(r.name, 0) for r in self.tail[-1].of("ps")]
        return max(gained) / sum(gained) if sum(gained) > 0 else None

    def _halve(self, now: float) -> None:
        """Limit each worker in turn to half of the cores that it uses, with a pause in between."""
        turn, since = divmod(now - self._began_s, 2 * _HALVED_S)
        name = f"worker-{int(turn) % self.setting.allocation.replicas('worker')}"
        cores, halved = self.setting.allocation.worker[0].cpu, since >= _HALVED_S
        used = self._used(name) if halved else 0.0
        if used and (not self.episodes or self.episodes[-1].end_s < np.inf):
            cut_cpu(name, used / 2, _DEFAULT_PERIOD_US)(self.session)
            self.episodes.append(Episode(name, time.monotonic(), np.inf))
        elif not halved and self.episodes and self.episodes[-1].end_s == np.inf:
            last = self.episodes.pop()
            self.episodes.append(last._replace(end_s=time.monotonic()))
            cut_cpu(last.name, cores, _DEFAULT_PERIOD_US)(self.session)

    def _used(self, name: str) -> float:
        """Return the cores that a worker used over the latest observations."""
        samples = [replica for metrics in self.tail for replica in metrics.of("worker") if replica.name == name]
        if len(samples) < 2:
            return 0.0
        return (samples[-1].cpu_s - samples[0].cpu_s) / (samples[-1].at_s - samples[0].at_s)

    def _record_steps(self, now: float) -> None:
        if now < self._steps_due_s:
            return
        self._steps_due_s = now + _STEPS_EVERY_S
        try:
            step_times = self.session.step_times()
        except ReplicaDiedError:  # the next call returns the steps of the surviving replicas
            return
        for name, times in step_times.items():
            recorded = self.steps.setdefault(name, [])
            recorded += times[bisect.bisect(times, recorded[-1]) if recorded else 0 :]

    def adjust(self, handle: Handle, plan: Plan) -> None:
        """Apply a change. Until it is done, both allocations are paid for."""
        began = time.monotonic()
        deadline = began + self.setting.change_s
        while time.monotonic() < deadline and not self.wait(handle, 0.25):
            pass
        before = self.session.allocation
        try:
            super().adjust(handle, plan)
        finally:
            seconds = time.monotonic() - began
            price = allocation_price(plan.target, self.setting.job.prices)
            if plan.target == before:
                price *= len(plan.migrate) / (plan.target.replicas("worker") + plan.target.replicas("ps"))
            self.cost += price * seconds / 3600


def train(setting: Setting, how: How) -> Ran:
    """Train to the end. If nothing is replaced, restart from the last checkpoint after a failure."""
    if how == "auto" or not setting.checkpoints:
        with tempfile.TemporaryDirectory() as folder:
            return _once(setting, how, folder if setting.checkpoints else None)[0]
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        ran, executor = _once(setting, how, f"{folder}/a")
        first_s = time.monotonic() - began - (ran.jct_s if ran.jct_s == ran.jct_s else 0.0)  # the first start
        cost, number = executor.cost, 0
        while ran.status == "failed" and number < 3:
            number += 1
            before = f"{folder}/{'abc'[number - 1]}"
            ran, executor = _once(setting, how, f"{folder}/{'abcd'[number]}", before)
            cost += executor.cost
        return ran._replace(jct_s=time.monotonic() - began - first_s, cost=cost, restarts=number)


def _once(setting: Setting, how: How, folder: str | None, resume: str | None = None) -> tuple[Ran, _Watched]:
    executor = _Watched(setting, how, folder, resume)
    plan = launch_plan(setting.job, setting.allocation)
    decisions: list[Decision] = []
    passes: list[tuple[float, float]] = []

    def record(decision: Decision) -> None:
        decisions.append(decision)
        now = time.monotonic()
        passes.append((now - sum(decision.timings_s.values()), now))

    cpu_s = time.process_time()
    if how == "auto":
        with controller_factory(
            setting.job, executor, Tuning(), predictor=make_predictor(setting.prior_curve), cluster=setting.cluster
        ) as controller:
            outcome = run_plan(executor, plan, tune=controller, on_decision=record)
    else:
        outcome = _run_without_tuning(executor, plan)
    loop = (time.process_time() - cpu_s) * setting.job.prices.core_hour / 3600
    ran = Ran(
        how, outcome.status, outcome.samples, outcome.duration_s, executor.cost + loop, 0,
        sum(failure.cause == "oom" for failure in outcome.failures),
        [f"{d.reason}{' ✗ ' + d.error if d.error else ''}" for d in decisions if d.kind == "adjust"],
        sorted({d.reason for d in decisions if d.kind == "keep" and "stays" not in d.reason})[:8],
        lost_share(executor.steps, passes) if how == "auto" else None,
        executor.last.allocation.describe() if executor.last and executor.last.allocation else "",
        _ps_utilization(executor.before_fault, setting.allocation), executor.ps_peak_bytes,
        executor.share_of_busiest("lookups"), executor.share_of_busiest("cpu_s"),
        _alarms(executor), [steps_until_found(executor.steps, each) for each in executor.episodes[:-1]],
        [sum(s for name, s in d.timings_s.items() if name not in ("apply", "refit")) for d in decisions],
    )  # fmt: skip
    return ran, executor


def _run_without_tuning(executor: _Watched, plan: Plan) -> Outcome:
    """Run a plan without replacing anything. The run ends when the first replica dies."""
    began = time.monotonic()
    try:
        return run_plan(executor, plan)
    except ReplicaDiedError as error:
        cause = "oom" if error.oom else "died"
        failure = Failure(at_s=time.monotonic() - began, replica="", cause=cause)
        trained = executor.last.samples_trained if executor.last else 0
        return Outcome(status="failed", samples=trained, duration_s=failure.at_s, failures=(failure,))


def _alarms(executor: _Watched) -> tuple[int, int] | None:
    if executor.setting.fault or executor.setting.halves or not executor.steps:
        return None
    times = [time for ends in executor.steps.values() for time in ends]
    return false_alarms(executor.steps, min(times) + _SETTLED_S, max(times) - _SETTLED_S)


def lost_share(steps: dict[str, list[float]], passes: Sequence[tuple[float, float]]) -> float:
    """Return the share of all step time by which steps during a pass of the loop took longer than other steps."""
    lost = total = 0.0
    for times in steps.values():
        ends = np.array(times)
        taken, starts = np.diff(ends), ends[:-1]
        during = np.zeros(len(taken), bool)
        for begin, end in passes:
            during |= (starts < end) & (ends[1:] > begin)
        if during.any() and (~during).any():
            lost += float((taken[during] - taken[~during].mean()).sum())
        total += float(taken.sum())
    return lost / total if total else float("nan")


def _ps_utilization(observed: Sequence[Metrics], allocation: Allocation) -> float | None:
    """Return the share of their cores that the PS used before the fault."""
    if len(observed) < 2:
        return None
    first, last = observed[0], observed[-1]
    names = {r.name: r for r in first.of("ps")}
    spans = [(r, names[r.name]) for r in last.of("ps") if r.name in names]
    used = sum((late.cpu_s - early.cpu_s) / (late.at_s - early.at_s) for late, early in spans)
    return used / allocation.cores("ps")
