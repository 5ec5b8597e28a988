"""The reasons of a recommendation: why this allocation, what it assumes, and which trials would narrow it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sizewright.datasets.trials.trial import Trial
from sizewright.formatting import MIB, format_bytes, format_count, format_percent, format_seconds
from sizewright.models.memory._base import MEMORY_STEP_BYTES, rounded_up
from sizewright.models.memory.memory_model import MARGIN
from sizewright.models.prior import JobCurve
from sizewright.models.table import ALLOCATION_AXES
from sizewright.recommender.sizing.bottleneck import bottleneck
from sizewright.recommender.sizing.caps import MEASURABLE_CAPS, beyond_supported
from sizewright.recommender.sizing.expected import machines_of
from sizewright.recommender.sizing.quality import untested_workers_warning
from sizewright.recommender.sizing.result import Selection
from sizewright.recommender.sizing.run_peaks import OOM_GROWTH
from sizewright.recommender.sizing.scoring import Scored, assumed_cores, hosts_with_links
from sizewright.spec import Job, Role
from sizewright.spec.objective import REPLICA_HOUR
from sizewright.spec.reason import Reason
from sizewright.spec.wording import AXIS_WORDS, ROLE_WORDS

_MAX_HALF_WIDTH = 0.1  # of the interval, as a share of the throughput; wider intervals are mentioned
_MIN_HOST_SD = 0.03  # a smaller variation of the host's state is not mentioned
_MIN_GROWTH_PER_HOUR = 64 * MIB  # slower growth of a replica's memory is not mentioned
_ROUNDING = 1 + 1e-9


def reasons(selection: Selection) -> Iterator[Reason]:
    """Yield why the target was chosen, and what the choice is based on."""
    job, prior = selection.job, selection.prior
    scored, allowed = selection.scored, selection.allowed
    chosen, uncapped = selection.chosen, scored.best()
    if prior.refusal:
        yield prior.refusal
    if prior.curve:
        yield _prior_reason(prior.curve, len(selection.trials))
        yield from prior.warm_start.reasons(len(selection.trials))
    yield from prior.trial_doubts
    in_bounds, count = None if allowed.all() else len(allowed), int(allowed.sum())
    yield Reason.of("best_objective", objective=job.objective, allocations=count, in_bounds=in_bounds)
    if selection.options:
        yield _machines_reason(selection)
    yield from selection.offer_notes
    if warning := untested_workers_warning(job, scored.grid.workers[chosen]):
        yield warning
    if job.deadline is not None and job.objective != "deadline":
        yield Reason.of("deadline_not_used", deadline_s=job.deadline, objective=job.objective)
    for ruling in selection.evaluation.rulings:
        if ruling.ruled_out:
            yield ruling.result.reason.adding(cap=ruling.cap, ruled_out=ruling.ruled_out)
    if uncapped != chosen and not allowed[uncapped]:
        yield Reason.of("target_without_caps", allocation=scored.grid.allocation(uncapped).describe())
    explanation = selection.model.explain()
    yield from _ceiling_reason(job, explanation.ceiling, selection.trials)
    if explanation.host_sd >= _MIN_HOST_SD:
        yield Reason.of("host_state", host_sd=explanation.host_sd)
    yield from bottleneck(selection)
    yield from _one_more_worker(scored, chosen)
    yield from beyond_supported(selection.evaluation.cap_input, chosen)
    yield _memory_reason(selection)
    yield from gpu_memory_reason(selection)
    if selection.evaluation.prices_replicas:
        yield Reason.of("price_per_replica", price=REPLICA_HOUR)


def _machines_reason(selection: Selection) -> Reason:
    """Say what the job costs on its hosts, and on the best hosts of the other market: spot, or on demand."""
    machines = machines_of(selection)
    values: dict[str, float | str] = {"machines": machines.describe(), "cost": machines.price_per_hour}
    if machines.cost:
        values |= {"cost": machines.cost.value, "cost_lower": machines.cost.lower, "cost_upper": machines.cost.upper}
    if machines.deadline_probability is not None and selection.job.deadline:
        values |= {"deadline_s": selection.job.deadline, "probability": machines.deadline_probability}
    others = (machines_of(option) for option in selection.options)
    if other := next((each for each in others if each.spot != machines.spot), None):
        values |= {"other": other.describe(), "other_cost": other.cost.value if other.cost else other.price_per_hour}
    return Reason.of("machines", **values)


def _prior_reason(curve: JobCurve, trials: int) -> Reason:
    if curve.effect.known:
        return Reason.of("prior_knows_job", prior_trials=curve.trials, trials=trials)
    return Reason.of(
        "prior_of_other_jobs",
        prior_trials=curve.trials,
        trials=trials,
        nearest=curve.effect.nearest,
        distance=float(curve.effect.distance),
        limit=float(curve.max_distance),
    )


def _ceiling_reason(job: Job, ceiling: float | None, trials: Sequence[Trial]) -> Iterator[Reason]:
    """Say that the input pipeline limits the throughput, if the model has such a ceiling."""
    if ceiling is None:
        return
    phases = [(t.phase_data_s, t.phase_compute_s) for t in trials if t.phase_data_s and t.phase_compute_s]
    reading = sum(data > compute for data, compute in phases)
    yield Reason.of(
        "input_bound",
        ceiling=float(ceiling),
        has_ps=job.has_ps,
        use_recorded=any(trial.worker_cpu_used is not None for trial in trials),
        trials_with_phases=len(phases),
        trials_reading=reading,
    )


def _one_more_worker(scored: Scored, chosen: int) -> Iterator[Reason]:
    """Compare the target with the allocation that has one more worker, if the grid contains it."""
    grid = scored.grid
    alike = grid.workers == grid.workers[chosen] + 1
    for column in (grid.ps, grid.worker_cpu, grid.ps_cpu, grid.batch_size, grid.worker_gpu, grid.loaders):
        alike &= column == column[chosen]
    if not alike.any() or not scored.price_per_hour[chosen]:
        return
    larger = int(np.argmax(alike))
    throughput = float(scored.throughput[larger] / scored.throughput[chosen] - 1)
    price = float(scored.price_per_hour[larger] / scored.price_per_hour[chosen] - 1)
    yield Reason.of("one_more_worker", throughput=throughput, price=price)


def _memory_reason(selection: Selection) -> Reason:
    """Say how much memory is requested, whether it was predicted, and what decides the amount."""
    scored, row = selection.scored, selection.chosen
    roles: list[Role] = ["worker", "ps"] if scored.grid.ps[row] else ["worker"]
    values: dict[str, float | str | None] = {"margin": MARGIN, "step_bytes": MEMORY_STEP_BYTES}
    for role in roles:
        requested = float(getattr(scored, f"{role}_memory_bytes")[row])
        peak = selection.predicted_bytes(role)
        values[f"{role}_bytes"] = requested
        if peak is not None:
            values[f"{role}_peak_bytes"] = peak
            values[f"{role}_decided_by"] = _memory_decided_by(selection, role, requested, peak)
        elif 0 < requested <= _floor_bytes(selection, role):
            values[f"{role}_decided_by"] = "description"
    return Reason.of("memory_requested", **values)


def gpu_memory_reason(selection: Selection) -> Iterator[Reason]:
    """Say what a GPU is predicted to use, if a trial measured it."""
    memory, predicted = selection.device_memory, selection.gpu_bytes()
    if memory is not None and predicted is not None:
        yield Reason.of("gpu_memory_predicted", bytes=predicted, trials=memory.trials)


def _floor_bytes(selection: Selection, role: Role) -> float:
    """Return the least bytes that a replica of a command needs by the description beside it; 0 without one."""
    return float(selection.evaluation.scorer.floor_bytes(role, selection.scored.grid)[selection.chosen])


def _memory_decided_by(selection: Selection, role: Role, requested: float, peak: float) -> str:
    """Return what decides the memory that is requested for a role whose peak is predicted."""
    needed = selection.needed_bytes(role)
    if requested > rounded_up(needed):
        return "bounds_minimum"
    if needed > peak * (1 + MARGIN) * _ROUNDING:
        return "measured_total"
    return "margin" if requested == rounded_up(needed) else "bounds_maximum"


def assumptions(selection: Selection) -> Iterator[str]:
    """Yield what the recommendation assumes without evidence."""
    job, trials, cluster = selection.job, selection.trials, selection.evaluation.cap_input.cluster
    throughput = float(selection.scored.throughput[selection.chosen])
    if job.training.sync == "async" and job.bounds.tested_workers is None and job.bounds.worker.replicas[1] > 1:
        yield (
            "The model's quality does not depend on the number of asynchronous workers; set bounds.tested_workers to "
            "be warned beyond a tested number."
        )
    if job.samples is None:
        yield "The number of samples to train is unknown (set training.samples); the choice does not depend on it."
    elif job.training.samples is None:
        yield f"The job sets no training.samples: those of Criteo Kaggle, {job.samples:,}, are assumed."
    yield "Production hosts are as fast per core as the host of the trials."
    if cluster is None:
        yield "No cluster file was given, so capacity and host sizes were not checked."
    yield from _machines_assumptions(selection)
    links_declared = bool(hosts_with_links(cluster))
    links_used = links_declared and any(trial.network_bytes for trial in trials)
    if links_used:
        yield "Workers fill one host before the next and share its link, whose bandwidth the cluster file declares."
    elif links_declared:
        yield "The prediction ignores the bandwidth in the cluster file: no trial measured its network traffic."
    yield from _trial_assumptions(job, trials)
    if not links_used and any(trial.host for trial in trials):
        replicas = "Workers and PS" if job.has_ps else "Workers"
        yield f"{replicas} communicated over one host's loopback; the prediction ignores a slower network."
    yield from _memory_assumptions(selection, throughput)
    fastest = max((trial.throughput or 0.0 for trial in trials), default=0.0)
    if fastest and throughput > 2 * fastest:
        yield f"The predicted throughput is {throughput / fastest:.1f} times that of the fastest trial."
    yield from _gpu_assumptions(job, trials)
    # Only the profiler measures in series; it says why where it raised a trial's standard error.
    widened = {trial.message for trial in trials if trial.message and trial.series and trial.throughput_se}
    yield from sorted(f"{message} Intervals are widened accordingly." for message in widened)
    if any(trial.sync not in (None, job.training.sync) for trial in trials):
        yield f"Some trials did not train in {job.training.sync} mode, as the job does."


def _machines_assumptions(selection: Selection) -> Iterator[str]:
    """Say what is paid, and what interruptions are assumed to do."""
    options = selection.options or [selection]
    job, offers = selection.job, [option.offer for option in options if option.offer]
    if not offers:
        return
    yield "Whole hosts are paid while the job runs; all of its replicas are on hosts of one kind, without other jobs."
    if unpriced := sorted({each.host.kind for each in offers if not each.spot and each.host.price_hour is None}):
        yield f"OpenCost's prices of cores, memory and GPUs are used for {', '.join(unpriced)} (set price_hour)."
    if not selection.scored.worker_memory_bytes[selection.chosen]:
        yield "Hosts were counted without the memory of workers, which is unknown."
    if (checkpoint := job.training.checkpoint) and any(each.spot for each in offers):
        yield (
            "Spot hosts are taken away at random, independently of each other. Each time the whole job stops; it "
            f"continues from the last checkpoint ({format_seconds(checkpoint.every)} apart) on a new host after "
            f"{format_seconds(checkpoint.restart)} (training.checkpoint.restart)."
        )


def _trial_assumptions(job: Job, trials: Sequence[Trial]) -> Iterator[str]:
    count, trusted = format_count(len(trials), "trial"), "their recorded cores are trusted"
    unlimited = sum(trial.limited_by in ("affinity", "none") for trial in trials)
    if unlimited:
        yield f"{unlimited} of {count} ran without a control group that limits their cores; {trusted}."
    unrecorded = sum(trial.limited_by is None for trial in trials)
    if unrecorded:
        verb = "does" if unrecorded == 1 else "do"
        yield f"{unrecorded} of {count} {verb} not record what limited their cores; {trusted}."
    roles: list[Role] = ["worker", "ps"] if job.has_ps else ["worker"]
    for role in roles:
        without_cores = sum(getattr(trial, f"{role}_cpu") is None for trial in trials)
        if without_cores:
            verb = "does" if without_cores == 1 else "do"
            cores = assumed_cores(getattr(job.bounds, role))
            are = "is" if cores == 1 else "are"
            yield (
                f"{without_cores} of {count} {verb} not record the cores of a {ROLE_WORDS[role]}; "
                f"{format_count(cores, 'core')} {are} assumed."
            )
    if any(trial.batch_size is None for trial in trials):
        of_all = " over all workers" if job.training.global_batch_size else ""
        yield f"Trials without a batch size had {job.training.batch_size}{of_all}."


def _memory_assumptions(selection: Selection, throughput: float) -> Iterator[str]:
    job, trials = selection.job, selection.trials
    own_runs, similar = selection.evaluation.runs_with_peaks, selection.prior.warm_start.memory
    roles: list[Role] = ["worker", "ps"] if job.has_ps else ["worker"]
    unmeasured = [r for r in roles if all(getattr(trial, f"{r}_memory_bytes") is None for trial in trials)]
    of_roles = " and ".join({"worker": "workers", "ps": "PS"}[role] for role in unmeasured)
    if own_runs:
        runs = format_count(own_runs, "run")
        growth = format_percent(OOM_GROWTH - 1)
        yield f"Memory uses the peaks of {runs} of this job; a peak that ended in an OOM kill is raised by {growth}."
    elif similar.runs and unmeasured:
        runs = format_count(similar.runs, "run")
        jobs = format_count(similar.jobs, "similar job")
        yield f"The memory of {of_roles} uses the largest of the peaks of {runs} of {jobs}."
    elif job.command is None and unmeasured:
        yield f"The memory of {of_roles} is calculated from the job file; no peak of them was measured."
    elif job.command:
        yield from _command_memory(trials, job.samples / throughput if job.samples and throughput else None)


def _command_memory(trials: Sequence[Trial], run_s: float | None) -> Iterator[str]:
    """Say how long the memory of a command was observed, how fast it grew at the end, and what a run may need."""
    observed = [t.watched_s or t.duration_s or 0.0 for t in trials if t.worker_memory_bytes]
    if max(observed, default=0.0) > 0:
        yield f"Memory is based on trials of at most {format_seconds(max(observed))}; a longer run may need more."
    for role, word in ROLE_WORDS.items():
        growths = [getattr(trial, f"{role}_memory_growth") or 0.0 for trial in trials]
        peaks = [getattr(trial, f"{role}_memory_bytes") or 0 for trial in trials]
        growth = max(growths, default=0.0)
        if growth * 3600 <= _MIN_GROWTH_PER_HOUR:
            continue
        text = f"The memory of a {word} still grew by {format_bytes(growth * 3600)} per hour when trials ended"
        if run_s is None:
            yield f"{text}. This growth is not included; the peaks of later runs will be."
        else:
            yield (
                f"{text}: at this rate it would need {format_bytes(max(peaks) + growth * run_s)} after the "
                f"{format_seconds(run_s)} of the run. This growth is not included: raise the minimum of "
                f"bounds.{role}.memory, or run the job once, so that its peak is included."
            )


def _gpu_assumptions(job: Job, trials: Sequence[Trial]) -> Iterator[str]:
    """Say which GPU counts are assumed; without bounds for them, only those of the trials are searched."""
    if job.bounds.worker.gpu:
        return
    counts = sorted({trial.worker_gpu for trial in trials if trial.worker_gpu is not None})
    if len(counts) > 1:
        yield f"Workers get {' or '.join(map(str, counts))} GPUs, as in the trials."
    elif counts and counts[0]:
        yield f"Every worker gets {format_count(counts[0], 'GPU')}, as in the trials."
    elif not counts and job.training.device != "cpu":
        yield (
            "No trial records the GPUs of a worker (worker_gpu): the plan requests none, and the price includes none; "
            "set bounds.worker.gpu, and profile."
        )


def next_trials(selection: Selection) -> Iterator[str]:
    """Yield which trials would narrow the interval of the target, or may find a better one."""
    scored, chosen = selection.scored, selection.chosen
    half_width = (scored.upper[chosen] - scored.lower[chosen]) / 2 / scored.throughput[chosen]
    if half_width > _MAX_HALF_WIDTH and not selection.measured_rates():
        target = scored.grid.allocation(chosen).describe()
        yield f"Measure the target itself ({target}): its interval is ±{format_percent(half_width)} wide."
    uncapped = scored.best()
    excluding = {ruling.cap for ruling in selection.evaluation.rulings if not ruling.result.allowed[uncapped]}
    if excluding and excluding <= MEASURABLE_CAPS:
        yield f"Measure {scored.grid.allocation(uncapped).describe()}, which may be even better."
    unvaried = [
        AXIS_WORDS[axis]
        for axis in ALLOCATION_AXES
        if len({getattr(trial, axis) for trial in selection.trials}) == 1 and np.ptp(scored.columns[axis]) > 0
    ]
    if unvaried:
        yield f"Measure allocations that differ in {' or '.join(unvaried)}: no two trials do."
