"""The sentences beside the numbers: why this allocation, what it assumes, and what would make it surer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.trials import Trial
from sizewright.models._base import BaseThroughputModel
from sizewright.models._memory import MemoryForecast
from sizewright.models.prior import JobCurve
from sizewright.models.table import ALLOCATION_AXES
from sizewright.recommender.caps import AXIS_WORDS, Ruling
from sizewright.recommender.quality import untested
from sizewright.recommender.scoring import Scored
from sizewright.recommender.similar_memory import NONE, SimilarMemory
from sizewright.spec import Cluster, Job, Role
from sizewright.spec.units import MIB, format_bytes, format_count, format_seconds

_OBJECTIVES = {
    "balanced": "completion time × cost",
    "cost": "cost",
    "time": "completion time",
    "deadline": "cost within the deadline",
}

_GROWTH_AN_HOUR = 64 * MIB
"""Slower growth of a replica's memory is not mentioned."""


def reasons(
    job: Job,
    model: BaseThroughputModel,
    scored: Scored,
    allowed: NDArray[np.bool_],
    chosen: int,
    uncapped: int,
    rulings: Sequence[Ruling],
    trials: Sequence[Trial],
) -> Iterator[str]:
    """Why the chosen row, in sentences."""
    least = _OBJECTIVES[job.objective]
    scored_in_all = "" if allowed.all() else f" ({len(allowed):,} within the bounds were scored)"
    yield f"It has the least {least} of {format_count(int(allowed.sum()), 'allocation')}{scored_in_all}."
    if warning := untested(job, scored.grid.workers[chosen]):
        yield warning
    if job.deadline is not None and job.objective != "deadline":
        yield f"The deadline of {format_seconds(job.deadline)} is not used: the objective is {job.objective}."
    for ruling in rulings:
        if ruling.ruled_out:
            yield f"The {ruling.cap} cap ruled out {ruling.ruled_out:,}: {ruling.verdict.reason}."
    if uncapped != chosen and not allowed[uncapped]:
        yield f"Without caps it would be {scored.grid.allocation(uncapped).describe()}."
    yield from _ceiling(job, model, trials)
    yield from _one_more_worker(scored, chosen)


def foretold(curve: JobCurve | None, trials: int) -> Iterator[str]:
    """What a learned prior has to do with it."""
    if curve is None:
        return
    own = f"with {trials} of its own" if trials else "before any of its own"
    if curve.guess.known:
        yield f"It is foretold from {format_count(curve.trials, 'trial')}, this very job's among them, {own}."
        return
    yield (
        f"It is foretold from {format_count(curve.trials, 'trial')} of other jobs, {own}; the most alike is "
        f"{curve.guess.nearest}, {curve.guess.distance:.1f} away where up to {curve.limit:.1f} is known."
    )


def assumptions(
    job: Job,
    trials: Sequence[Trial],
    cluster: Cluster | None,
    throughput: float,
    peaks: int = 0,
    others: SimilarMemory = NONE,
) -> Iterator[str]:
    """What the answer takes for granted."""
    if job.training.sync == "async" and job.bounds.tested_workers is None and job.bounds.worker.replicas[1] > 1:
        yield "The model is as good with more asynchronous workers; bounds.tested_workers says up to how many."
    if job.samples is None:
        yield "How many samples the command trains is unknown (training.samples); the choice does not depend on it."
    elif job.training.samples is None:
        yield f"The job does not say how many samples it trains: those of Criteo Kaggle, {job.samples:,}, are assumed."
    yield "Production hosts run a core's work as fast as the host of the trials."
    if cluster is None:
        yield "No cluster file was given, so capacity and host sizes were not checked."
    linked = cluster is not None and any(host.network_gbps for host in cluster.hosts)
    told = linked and any(trial.network_bytes for trial in trials)
    if told:
        yield "Workers fill one host before the next and share its link, as fast as the cluster file declares."
    elif linked:
        yield "The bandwidth that the cluster file declares is not in the prediction: no trial tells what it moved."
    count = format_count(len(trials), "trial")
    if loose := sum(trial.limited_by in ("affinity", "none") for trial in trials):
        yield f"{loose} of {count} were not held to their cores by a control group; taken as written."
    unknown = sum(trial.limited_by is None for trial in trials)
    if unknown:
        verb = "does" if unknown == 1 else "do"
        yield f"{unknown} of {count} {verb} not say what held their cores; taken as written."
    coreless = sum(trial.worker_cpu is None or (trial.ps > 0 and trial.ps_cpu is None) for trial in trials)
    if coreless:
        yield f"{coreless} of {count} do not tell their cores, taken as 1 or the nearest in the bounds."
    if any(trial.batch_size is None for trial in trials):
        yield f"Trials that do not tell their batch size are taken to have {job.training.batch_size}."
    if not told and {t.host for t in trials if t.host}:
        who = "Workers and PS" if job.has_ps else "Workers"
        yield f"{who} talked over one host's loopback; a slower network is not in the prediction."
    fastest = max((trial.throughput or 0.0 for trial in trials), default=0.0)
    if peaks:
        runs = format_count(peaks, "run")
        yield f"Memory counts the peaks of {runs} of this job, those that memory ended as a fifth more."
    elif others.runs and all(trial.ps_memory_bytes is None for trial in trials):
        runs, jobs = format_count(others.runs, "run"), format_count(others.jobs, "job")
        yield f"Memory counts the peaks of {runs} of {jobs} like it, the greatest of them."
    elif job.command is None and all(trial.ps_memory_bytes is None for trial in trials):
        yield "Memory is counted from the tables; no peak of this job was measured."
    elif job.command:
        yield from _watched(trials, job.samples / throughput if job.samples and throughput else None)
    if fastest and throughput > 2 * fastest:
        yield f"The target's throughput is {throughput / fastest:.1f} times that of the fastest trial."
    yield from _gpus(job, trials)
    yield from sorted({f"{t.message} Intervals are widened by it." for t in trials if t.message})
    if any(t.sync not in (None, job.training.sync) for t in trials):
        yield f"Some trials were not {job.training.sync}."


def _watched(trials: Sequence[Trial], run_s: float | None) -> Iterator[str]:
    """For how long the memory of a command was watched, how fast it still grew, and what that comes to in a run."""
    watched = [t.watched_s or t.duration_s or 0.0 for t in trials if t.worker_memory_bytes]
    if max(watched, default=0.0) > 0:
        yield f"Memory rests on trials of {format_seconds(max(watched))} at most; a longer run may need more."
    for role, bound, growths, peaks in (
        ("worker", "worker", [t.worker_memory_growth for t in trials], [t.worker_memory_bytes for t in trials]),
        ("PS", "ps", [t.ps_memory_growth for t in trials], [t.ps_memory_bytes for t in trials]),
    ):
        fastest = max((growth or 0.0 for growth in growths), default=0.0)
        if fastest * 3600 <= _GROWTH_AN_HOUR:
            continue
        text = f"A {role} still grew by {format_bytes(fastest * 3600)} an hour when trials ended"
        if run_s is None:
            yield f"{text}; that is not counted. A run tells, and later answers count it."
        else:
            needed = max(peak or 0 for peak in peaks) + fastest * run_s
            yield (
                f"{text}: at that pace it would need {format_bytes(needed)} after the {format_seconds(run_s)} of the "
                f"run. That is not counted: raise the least of bounds.{bound}.memory, or let a run tell."
            )


def _gpus(job: Job, trials: Sequence[Trial]) -> Iterator[str]:
    """What is taken for granted of GPUs, which are not searched beyond what the trials had."""
    counts = sorted({trial.worker_gpu for trial in trials if trial.worker_gpu is not None})
    if len(counts) > 1:
        yield f"Workers have {' or '.join(map(str, counts))} GPUs, as those of the trials had."
    elif counts and counts[0]:
        yield f"Every worker has {format_count(counts[0], 'GPU')}, as those of the trials had."
    elif not counts and job.training.device != "cpu":
        yield "No trial tells the GPUs of a worker (worker_gpu): the plan asks for none, and the price counts none."


def to_be_surer(trials: Sequence[Trial], scored: Scored, chosen: int, uncapped: int) -> Iterator[str]:
    """What to measure next."""
    width = (scored.upper[chosen] - scored.lower[chosen]) / 2 / scored.throughput[chosen]
    if width > 0.1:
        yield (
            f"The interval is ±{width:.0%} wide: measure the target itself "
            f"({scored.grid.allocation(chosen).describe()})."
        )
    if uncapped != chosen:
        yield f"Measure {scored.grid.allocation(uncapped).describe()}, which may be better still."
    alike = [
        axis
        for axis in ALLOCATION_AXES
        if len({getattr(t, axis) for t in trials}) == 1 and np.ptp(scored.columns[axis]) > 0
    ]
    if alike:
        words = " or ".join(AXIS_WORDS[axis] for axis in alike)
        yield f"No two trials differ in {words}: measure allocations that do."


def _one_more_worker(scored: Scored, chosen: int) -> Iterator[str]:
    grid = scored.grid
    same = grid.workers == grid.workers[chosen] + 1
    for column in (grid.ps, grid.worker_cpu, grid.ps_cpu, grid.batch_size):
        same &= column == column[chosen]
    for i in np.flatnonzero(same)[:1]:
        gain = scored.throughput[i] / scored.throughput[chosen] - 1
        if not scored.price_per_hour[chosen]:
            return
        price = scored.price_per_hour[i] / scored.price_per_hour[chosen] - 1
        yield f"One more worker would bring {gain:+.1%} throughput for {price:+.1%} price an hour."


def _ceiling(job: Job, model: BaseThroughputModel, trials: Sequence[Trial]) -> Iterator[str]:
    """What neither workers nor PS can lift, and who is suspected."""
    ceiling = model.explain().ceiling
    if ceiling is None:
        return
    phases = [(t.phase_data_s, t.phase_compute_s) for t in trials if t.phase_data_s and t.phase_compute_s]
    reading = sum(data > compute for data, compute in phases)
    told = (
        f" {reading} of {format_count(len(phases), 'trial')} spent more time on data than on computing."
        if phases
        else ""
    )
    yield (
        f"The input pipeline is the suspect: about {ceiling:,.0f} samples/s is the most, whatever workers"
        f"{' and PS' if job.has_ps else ''} have, while their cores are idle.{told} More workers are not recommended: "
        "read faster first (more reader threads or files, a faster store, less to parse)."
    )


def memory_reason(memory: MemoryForecast, scored: Scored, i: int) -> str:
    """Say what memory is asked for, and what of it was predicted, or that nothing tells it."""
    roles: list[Role] = ["worker", "ps"] if scored.grid.ps[i] else ["worker"]
    parts = []
    for role in roles:
        one = {"worker": "worker", "ps": "PS"}[role]
        asked = float(getattr(scored, f"{role}_memory_bytes")[i])
        predicted = predicted_bytes(memory, scored, i, role)
        if predicted is not None:
            margin = f"predicted peak {format_bytes(predicted)} + {asked / predicted - 1:.0%}"
            parts.append(f"{format_bytes(asked)} a {one} ({margin})")
        elif asked:
            parts.append(f"{format_bytes(asked)} a {one} (its need is unknown: the most that the bounds allow)")
        else:
            parts.append(f"none for a {one} (its need is unknown: measure it, or set bounds.{role}.memory)")
    return f"Memory asked for: {', '.join(parts)}."


def predicted_bytes(memory: MemoryForecast, scored: Scored, i: int, role: Role) -> float | None:
    """Return the predicted peak of a replica of the role at a row, or None where nothing tells it."""
    if not memory.known(role):
        return None
    grid = scored.grid
    if role == "worker":
        return float(memory.worker_bytes(grid.batch_size[[i]])[0])
    return float(memory.ps_bytes(grid.ps[[i]], grid.workers[[i]], batch_size=grid.batch_size[[i]])[0])
