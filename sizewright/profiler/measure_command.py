"""One trial of the user's own command: from what it reports and its control groups to a row of the trial table."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from sizewright.datasets.trials import Trial, now
from sizewright.errors import TrialVoidError
from sizewright.profiler._base import Point
from sizewright.profiler.interference import other_cores, others_busy_s, starved_share, widened
from sizewright.profiler.measure import Timing, Trainer, check_quota, cores_used, memory_growth
from sizewright.profiler.steady import Series, Steady, block_rates, find_steady
from sizewright.spec import Job, Metrics

_LONGEST_S = 45.0
_PHASES = ("data_s", "pull_s", "compute_s", "push_s")


class CommandTrainer(Trainer, Protocol):
    """A trainer whose replicas report as they like."""

    def reports(self) -> Sequence[Series]:
        """What was reported since the last `scale`, replica by replica, on the clock of `time.monotonic`."""

    @property
    def finished(self) -> bool:
        """Whether the command has ended well."""


class _Seen(NamedTuple):
    at_s: float
    metrics: Metrics
    busy_s: float
    """Core seconds that others on this host have used."""


def measure_command(
    trainer: CommandTrainer,
    point: Point,
    timing: Timing = Timing(),  # noqa: B008 (a frozen record)
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    longest_s: float = _LONGEST_S,
) -> Trial:
    """Start it at the point, wait until its reports say that it is steady, and measure.

    Raises TrialError (or one of its kinds) when it ends without a measurement, and TrialVoidError when it does not get
    steady within `longest_s`.
    """
    started_at, began = now(), clock()
    trainer.scale(point.allocation)
    start, seen = clock(), [_Seen(clock(), trainer.observe(), others_busy_s())]
    while True:
        sleep(timing.block_s)
        series = trainer.reports()
        if not trainer.finished:
            seen.append(_Seen(clock(), trainer.observe(), others_busy_s()))
        steady = find_steady(series, start)
        if steady and _enough(steady, timing):
            break
        if trainer.finished or clock() - start > longest_s:
            if steady is None or len(seen) < 2:
                raise _never_steady(series, start, clock() - start, trainer.finished)
            break
    first = max((one for one in seen if one.at_s <= steady.since_s), default=seen[0], key=lambda one: one.at_s)
    last = seen[-1]
    check_quota(point.allocation, first.metrics, last.metrics)
    row = _row(trainer.job, point, steady, first.metrics, last.metrics)
    row = row.model_copy(update={"started_at": started_at, "watched_s": clock() - began})
    others = other_cores(trainer.host, last.busy_s - first.busy_s, first.metrics, last.metrics)
    return widened(row, others, starved_share(point.allocation, first.metrics, last.metrics, others))


def _enough(steady: Steady, timing: Timing) -> bool:
    lasted = steady.until_s - steady.since_s
    sure = steady.rate_se <= timing.target_se * steady.rate
    return lasted >= timing.least_s and (sure or lasted >= timing.greatest_s)


def _never_steady(series: Sequence[Series], start_s: float, lasted_s: float, finished: bool) -> TrialVoidError:
    blocks = block_rates(series, start_s)
    if finished:
        return TrialVoidError(
            f"The command ended after {lasted_s:.1f} s, before its rate was known to be steady.",
            "Let it train longer: SIZEWRIGHT_TRIAL is set in its environment during trials.",
        )
    quiet_s = max((start_s + lasted_s - told[-1][0] for told in series if told), default=0.0)
    if blocks is None and quiet_s > lasted_s / 2:
        return TrialVoidError(
            f"A replica reported no more samples in the last {quiet_s:.0f} of {lasted_s:.0f} s.",
            "Run the job at this allocation (sizewright run) and look at its logs.",
        )
    if blocks is None:
        return TrialVoidError(
            f"The command reported too seldom to tell its rate within {lasted_s:.0f} s.",
            "Let it report every few steps.",
        )
    rates = blocks[1]
    return TrialVoidError(
        f"The command never got steady in {lasted_s:.0f} s: it went from {rates[: len(rates) // 4 + 1].mean():,.0f} to "
        f"{rates[-len(rates) // 4 :].mean():,.0f} samples/s, between {rates.min():,.0f} and {rates.max():,.0f}.",
        "Look for what changes in it: evaluation, checkpoints, data of different sizes; or for another load here.",
    )


def _row(job: Job, point: Point, steady: Steady, first: Metrics, last: Metrics) -> Trial:
    allocation = point.allocation
    workers = list(zip(first.of("worker"), last.of("worker"), strict=True))
    servers = list(zip(first.of("ps"), last.of("ps"), strict=True))
    reporting = [(a, b) for role in ("chief", "worker") for a, b in zip(first.of(role), last.of(role), strict=True)]
    assert job.command is not None
    total = max if job.command.progress.counts == "job" else sum
    samples = max(1, total(b.samples - a.samples for a, b in reporting))
    step = samples / allocation.batch_size

    def per_step(name: str) -> float | None:
        spent = sum(getattr(b, name) - getattr(a, name) for a, b in reporting)
        return spent / step if spent > 0 else None

    everybody = list(zip(first.replicas, last.replicas, strict=True))
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
        worker_memory_bytes=max(b.memory_peak_bytes for _, b in workers),
        ps_memory_bytes=max((b.memory_peak_bytes for _, b in servers), default=None),
        worker_memory_growth=memory_growth(workers),
        ps_memory_growth=memory_growth(servers) if servers else None,
        worker_cpu_used=cores_used(workers),
        ps_cpu_used=cores_used(servers) if servers else None,
        throttled_s=sum(b.throttled_s - a.throttled_s for a, b in everybody),
        duration_s=steady.until_s - steady.since_s,
        steps=round(step),
        limited_by=last.limited_by,
        cfs_period_ms=last.replicas[0].cfs_period_ms,
        device=job.training.device,
        **{f"phase_{name}": per_step(name) for name in _PHASES},
    )
