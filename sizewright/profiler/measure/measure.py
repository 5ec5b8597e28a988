"""Measure one trial: train at an allocation, and return a row of the trial table."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from sizewright.datasets.trials.planned_fields import gpus_of
from sizewright.datasets.trials.trial import Trial, now
from sizewright.errors import TrialVoidError
from sizewright.profiler.measure.interference import other_cores, others_busy_s, starved_share, widened
from sizewright.profiler.series._base import TrialPoint
from sizewright.spec import Allocation, Job, Metrics, ReplicaMetrics

_UNKNOWN_SE = 0.1  # share of the throughput, if there are fewer than three blocks
_CPU_TOLERANCE = 1.05  # CPU use above this share of the quota voids a trial
_CPU_DEBT_S = 0.05  # the kernel charges a tick, or time that a hypervisor took, at once and collects it later


class Trainer(Protocol):
    """The interface that the profiler needs of a session or an executor."""

    job: Job

    @property
    def host(self) -> str:
        """Name of the host that it trains on."""

    def scale(self, allocation: Allocation, *, table_scale: float = 1.0) -> None:
        """Train at this allocation; return once every worker has finished a step."""

    def pause(self) -> None:
        """Stop training; replicas stay loaded."""

    def observe(self) -> Metrics:
        """Return the counters of every replica."""

    def discard(self) -> None:
        """End all replicas after a failure."""


@dataclass(frozen=True)
class Timing:
    """The duration of a trial: from `min_s` to `max_s`, until its standard error is below `target_se`."""

    warm_up_s: float = 0.5
    first_warm_up_s: float = 2.0  # measured: the first trial of a session is 9 % slower for its first seconds
    warm_up_steps: int = 2  # of every worker; measured: trials that began within the first step were 18 % slower
    min_s: float = 2.5
    max_s: float = 5.0
    target_se: float = 0.015
    block_s: float = 0.5
    min_steps: int = 8


class _Window(NamedTuple):
    first: Metrics
    last: Metrics
    rates: list[float]


def measure(
    trainer: Trainer,
    point: TrialPoint,
    timing: Timing = Timing(),
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Trial:
    """Scale to the point, wait for a steady state, and measure.

    Raises TrialError (or a subclass) if the trial ends without a measurement.
    """
    started_at, began = now(), time.monotonic()
    trainer.scale(point.allocation, table_scale=point.table_scale)
    _warm_up(trainer, timing, sleep)
    busy_s = others_busy_s()
    window = _observe_window(trainer, timing, sleep)
    busy_s = others_busy_s() - busy_s
    check_quota(point.allocation, window.first, window.last)
    row = _row(trainer.job, point, window)
    row = row.model_copy(update={"started_at": started_at, "watched_s": time.monotonic() - began})
    others = other_cores(trainer.host, busy_s, window.first, window.last)
    return widened(row, others, starved_share(point.allocation, window.first, window.last, others))


def _warm_up(trainer: Trainer, timing: Timing, sleep: Callable[[float], None]) -> None:
    """Wait for `warm_up_s`, and for the steps of every worker; for these at most `max_s` longer."""
    before = trainer.observe() if timing.warm_up_steps else None
    sleep(timing.warm_up_s)
    while before is not None:
        observed = trainer.observe()
        if min(_steps_between(before, observed), default=timing.warm_up_steps) >= timing.warm_up_steps:
            return
        if observed.replicas[0].at_s - before.replicas[0].at_s > timing.warm_up_s + timing.max_s:
            return
        sleep(timing.block_s)


def _observe_window(trainer: Trainer, timing: Timing, sleep: Callable[[float], None]) -> _Window:
    """Observe in blocks: their rates give the standard error, the first and last observation the throughput."""
    first = latest = trainer.observe()
    rates: list[float] = []
    while True:
        sleep(timing.block_s)
        observed = trainer.observe()
        if min(_steps_between(latest, observed), default=0) > 0:
            rates.append(_rate(latest, observed))
            latest = observed
        elapsed = observed.replicas[0].at_s - first.replicas[0].at_s
        steps = min(_steps_between(first, latest), default=0)
        if elapsed >= timing.min_s and steps >= timing.min_steps and _relative_se(rates) <= timing.target_se:
            break
        if elapsed >= timing.max_s and (steps >= timing.min_steps or elapsed >= 4 * timing.max_s):
            break
    if not rates:
        raise TrialVoidError(
            f"Not every worker finished a step within {elapsed:.0f} s.", "Give the workers more cores."
        )
    return _Window(first, latest, rates)


def _rate(before: Metrics, after: Metrics) -> float:
    """Return samples/s: each worker's samples over the time between its last steps, so that no step is cut."""
    pairs = zip(before.of("worker"), after.of("worker"), strict=True)
    return sum((b.samples - a.samples) / (b.last_step_at_s - a.last_step_at_s) for a, b in pairs if b.steps > a.steps)


def _steps_between(before: Metrics, after: Metrics) -> list[int]:
    return [b.steps - a.steps for a, b in zip(before.of("worker"), after.of("worker"), strict=True)]


def _relative_se(rates: list[float]) -> float:
    if len(rates) < 3:
        return float("inf")
    return float(np.std(rates, ddof=1) / np.sqrt(len(rates)) / np.mean(rates))


def _row(job: Job, point: TrialPoint, window: _Window) -> Trial:
    first, last, rates = window
    allocation = point.allocation
    throughput = _rate(first, last)
    workers = list(zip(first.of("worker"), last.of("worker"), strict=True))
    servers = list(zip(first.of("ps"), last.of("ps"), strict=True))
    steps = sum(_steps_between(first, last))
    served = [(b.busy_s - a.busy_s) / max(1, b.exchanges - a.exchanges) for a, b in servers]
    lookups = [b.lookups - a.lookups for a, b in servers]

    def per_step(name: str) -> float:
        return float(sum(getattr(b, name) - getattr(a, name) for a, b in workers)) / steps

    relative_se = _relative_se(rates) if len(rates) >= 3 else _UNKNOWN_SE
    return Trial(
        workers=len(workers),
        ps=len(servers),
        throughput=throughput,
        throughput_raw=throughput,
        throughput_se=relative_se * throughput,
        job=job.name,
        job_hash=job.hash,
        worker_cpu=allocation.worker[0].cpu,
        ps_cpu=allocation.ps[0].cpu,
        batch_size=allocation.batch_size,
        sync=job.training.sync,
        table_scale=point.table_scale,
        phase_data_s=per_step("data_s"),
        phase_pull_s=per_step("pull_s"),
        phase_compute_s=per_step("compute_s"),
        phase_push_s=per_step("push_s"),
        ps_busy_s=float(np.mean(served)),
        ps_busy_max_s=max(served),
        ps_share_max=max(lookups) / max(1, sum(lookups)),
        unique_rows_per_batch=per_step("unique_rows"),
        embedding_bytes=sum(b.embedding_bytes for _, b in servers),
        rows_at_start=sum(a.rows for a, _ in servers),
        worker_memory_bytes=max(b.memory_peak_bytes for _, b in workers),
        ps_memory_bytes=max(b.memory_peak_bytes for _, b in servers),
        worker_memory_growth=memory_growth(workers),
        ps_memory_growth=memory_growth(servers),
        device=job.training.device,
        device_memory_bytes=max(r.device_memory_bytes for r in last.replicas) or None,
        worker_cpu_used=cores_used(workers),
        ps_cpu_used=cores_used(servers),
        uncharged_cpu_s=last.engine_cpu_s - first.engine_cpu_s,
        throttled_s=sum(b.throttled_s - a.throttled_s for a, b in workers + servers),
        network_bytes=per_step("network_bytes"),
        duration_s=last.replicas[0].at_s - first.replicas[0].at_s,
        steps=steps,
        limited_by=last.limited_by,
        cfs_period_ms=last.replicas[0].cfs_period_ms,
        **gpus_of(job, allocation),
    )


def memory_growth(pairs: list[tuple[ReplicaMetrics, ReplicaMetrics]]) -> float:
    """Return the bytes/s by which the largest peak of a replica rose."""
    before, after = max(pairs, key=lambda pair: pair[1].memory_peak_bytes)
    return (after.memory_peak_bytes - before.memory_peak_bytes) / (after.at_s - before.at_s)


def cores_used(pairs: list[tuple[ReplicaMetrics, ReplicaMetrics]]) -> float:
    """Return the mean cores used per replica, from two observations of each."""
    return float(np.mean([(b.cpu_s - a.cpu_s) / (b.at_s - a.at_s) for a, b in pairs]))


def check_quota(allocation: Allocation, first: Metrics, last: Metrics) -> None:
    """Raise TrialVoidError if a replica used more than its cores."""
    for role in ("worker", "ps"):
        pairs = zip(allocation.each(role), first.of(role), last.of(role), strict=True)
        for allowed, before, after in pairs:
            seconds = after.at_s - before.at_s
            used_s = after.cpu_s - before.cpu_s
            if after.limited_by == "cgroup" and used_s > _CPU_TOLERANCE * allowed.cpu * seconds + _CPU_DEBT_S:
                raise TrialVoidError(
                    f"{role} {after.index} used {used_s / seconds:.2f} cores although its limit is {allowed.cpu:g}.",
                    "The host does not enforce CPU limits; the trial is void.",
                )
