"""Measure one trial of a user's command from its reports and control groups; return a row of the trial table."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from sizewright.datasets.trials.planned_fields import gpus_of, loaders_of
from sizewright.datasets.trials.trial import Trial, now
from sizewright.errors import TrialVoidError
from sizewright.profiler.measure.interference import other_cores, others_busy_s, starved_share, widened
from sizewright.profiler.measure.measure import Timing, Trainer, check_quota, cores_used, memory_growth
from sizewright.profiler.measure.steady_state import Series, SteadyState, block_rates, find_steady
from sizewright.profiler.series._base import TrialPoint
from sizewright.spec import Job, Metrics, ReplicaMetrics
from sizewright.spec.metrics import PHASES

_MAX_TRIAL_S = 45.0


class CommandTrainer(Trainer, Protocol):
    """A trainer whose replicas report at times of their own."""

    def reports(self) -> Sequence[Series]:
        """Return the reports of each replica since the last `scale`, on the clock of `time.monotonic`."""

    @property
    def finished(self) -> bool:
        """Whether the command has exited successfully."""


class _Observation(NamedTuple):
    at_s: float
    metrics: Metrics
    busy_s: float
    """Core seconds that other processes on this host have used."""


def measure_command(
    trainer: CommandTrainer,
    point: TrialPoint,
    timing: Timing = Timing(),  # noqa: B008 (a frozen record)
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    max_trial_s: float = _MAX_TRIAL_S,
) -> Trial:
    """Start the command at the point, wait until its reports are steady, and measure.

    Raises TrialError (or a subclass) if the command ends without a measurement, and TrialVoidError if it does not get
    steady within `max_trial_s`.
    """
    started_at, began = now(), clock()
    trainer.scale(point.allocation)
    start = clock()
    observations = [_Observation(clock(), trainer.observe(), others_busy_s())]
    while True:
        sleep(timing.block_s)
        series = trainer.reports()
        if not trainer.finished:
            observations.append(_Observation(clock(), trainer.observe(), others_busy_s()))
        steady = find_steady(series, start)
        if steady and is_long_enough(steady, timing):
            break
        if trainer.finished or clock() - start > max_trial_s:
            if steady is None or len(observations) < 2:
                raise _not_steady_error(series, start, clock() - start, trainer.finished)
            break
    before_steady = [one for one in observations if one.at_s <= steady.since_s]
    first = max(before_steady, default=observations[0], key=lambda one: one.at_s)
    last = observations[-1]
    check_quota(point.allocation, first.metrics, last.metrics)
    assert trainer.job.command is not None
    counts_job = trainer.job.command.progress.counts == "job"
    row = trial_row(trainer.job, point, steady, first.metrics, last.metrics, counts_job=counts_job)
    row = row.model_copy(update={"started_at": started_at, "watched_s": clock() - began})
    others = other_cores(trainer.host, last.busy_s - first.busy_s, first.metrics, last.metrics)
    return widened(row, others, starved_share(point.allocation, first.metrics, last.metrics, others))


def is_long_enough(steady: SteadyState, timing: Timing) -> bool:
    """Return whether a steady state was observed for as long as a trial needs."""
    duration_s = steady.until_s - steady.since_s
    precise = steady.rate_se <= timing.target_se * steady.rate
    return duration_s >= timing.min_s and (precise or duration_s >= timing.max_s)


def _not_steady_error(series: Sequence[Series], start_s: float, lasted_s: float, finished: bool) -> TrialVoidError:
    blocks = block_rates(series, start_s)
    if finished:
        return TrialVoidError(
            f"The command exited after {lasted_s:.1f} s, before its throughput was steady.",
            "Train longer: SIZEWRIGHT_TRIAL is set in its environment during trials.",
        )
    silent_s = max((start_s + lasted_s - reports[-1][0] for reports in series if reports), default=0.0)
    if blocks is None and silent_s > lasted_s / 2:
        return TrialVoidError(
            f"A replica reported no samples in the last {silent_s:.0f} of {lasted_s:.0f} s.",
            "Run the job at this allocation (sizewright run) and read its logs.",
        )
    if blocks is None:
        return TrialVoidError(
            f"The command reported too rarely to measure its throughput within {lasted_s:.0f} s.",
            "Report every few steps.",
        )
    rates = blocks[1]
    return TrialVoidError(
        f"The throughput of the command was not steady within {lasted_s:.0f} s: it changed from "
        f"{rates[: len(rates) // 4 + 1].mean():,.0f} to {rates[-len(rates) // 4 :].mean():,.0f} samples/s, between "
        f"{rates.min():,.0f} and {rates.max():,.0f}.",
        "Look for what varies: evaluation, checkpoints, data of different sizes, or other work on this host.",
    )


def trial_row(
    job: Job, point: TrialPoint, steady: SteadyState, first: Metrics, last: Metrics, *, counts_job: bool
) -> Trial:
    """Return the trial of a steady state, between whose ends the metrics of all replicas were read.

    With `counts_job` each replica counts the samples of the whole job. Cores and memory are None where unknown (0).
    """
    allocation = point.allocation
    workers = list(zip(first.of("worker"), last.of("worker"), strict=True))
    servers = list(zip(first.of("ps"), last.of("ps"), strict=True))
    reporting = [(a, b) for role in ("chief", "worker") for a, b in zip(first.of(role), last.of(role), strict=True)]
    total = max if counts_job else sum
    samples = max(1, total(b.samples - a.samples for a, b in reporting))
    step = samples / allocation.batch_size

    def per_step(name: str) -> float | None:
        spent = sum(getattr(b, name) - getattr(a, name) for a, b in reporting)
        return spent / step if spent > 0 else None

    replicas = list(zip(first.replicas, last.replicas, strict=True))
    return Trial(
        workers=len(workers),
        ps=len(servers),
        throughput=steady.rate,
        throughput_raw=steady.rate,
        throughput_se=steady.rate_se,
        job=job.name,
        job_hash=job.hash,
        worker_cpu=allocation.worker[0].cpu,
        ps_cpu=allocation.ps[0].cpu if servers else None,
        batch_size=allocation.batch_size,
        sync=job.training.sync,
        worker_memory_bytes=max(b.memory_peak_bytes for _, b in workers) or None,
        ps_memory_bytes=max((b.memory_peak_bytes for _, b in servers), default=0) or None,
        worker_memory_growth=memory_growth(workers),
        ps_memory_growth=memory_growth(servers) if servers else None,
        worker_cpu_used=cores_used(workers) or None,
        ps_cpu_used=(cores_used(servers) or None) if servers else None,
        loader_cpu_used=_loader_cores(workers),
        loaders=loaders_of(job, allocation),
        throttled_s=sum(b.throttled_s - a.throttled_s for a, b in replicas),
        duration_s=steady.until_s - steady.since_s,
        steps=round(step),
        limited_by=last.limited_by,
        cfs_period_ms=last.replicas[0].cfs_period_ms,
        device=job.training.device,
        **gpus_of(job, allocation, next((b.gpu_product for _, b in workers if b.gpu_product), None)),
        device_memory_bytes=max(b.device_memory_bytes for _, b in workers) or None,
        gpu_utilization=_mean_rate(workers, "gpu_busy_s"),
        gpu_power_w=_mean_rate(workers, "gpu_energy_j"),
        **{f"phase_{name}": per_step(name) for name in PHASES},
    )


def _loader_cores(pairs: Sequence[tuple[ReplicaMetrics, ReplicaMetrics]]) -> float | None:
    """Return the mean cores that loaders used; None unless they were told apart at both ends."""
    known = [(a, b) for a, b in pairs if a.loader_cpu_s is not None]
    cores = _mean_rate(known, "loader_cpu_s") if len(known) == len(pairs) else None
    return None if cores is None else max(0.0, cores)  # two clocks tell the CPU seconds of all and of those that train


def _mean_rate(pairs: Sequence[tuple[ReplicaMetrics, ReplicaMetrics]], name: str) -> float | None:
    """Return the mean growth per second of a sum that replicas may report; None if none reports it."""
    ends = [(getattr(a, name) or 0.0, getattr(b, name), b.at_s - a.at_s) for a, b in pairs]
    rates = [(after - before) / seconds for before, after, seconds in ends if after is not None and seconds > 0]
    return sum(rates) / len(rates) if rates else None
