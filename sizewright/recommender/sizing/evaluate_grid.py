"""Evaluate the allocations within the bounds: score them with a fitted model and apply the caps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sizewright.datasets.runs.finished_job import FinishedJob
from sizewright.datasets.trials.trial import Trial
from sizewright.models._base import BaseThroughputModel
from sizewright.models.memory._base import MemoryForecast
from sizewright.models.memory.command import CommandMemory
from sizewright.models.memory.device import DeviceMemory
from sizewright.models.memory.memory_model import DEFAULT_BASES, Bases, MemoryModel, table_bytes
from sizewright.models.table import AXES, as_columns
from sizewright.recommender.machines.offers import Offer
from sizewright.recommender.sizing.caps import CapInput, Ruling, apply_caps
from sizewright.recommender.sizing.gpu_trials import DeviceLimit
from sizewright.recommender.sizing.grid import finer
from sizewright.recommender.sizing.run_peaks import run_peaks
from sizewright.recommender.sizing.scoring import Scored, Scorer, assumed_cores
from sizewright.spec import Cluster, Job, Role

_MAX_REFINEMENTS = 4
_MAX_STARTS = 16  # rows that one refinement starts from


class GridEvaluation(NamedTuple):
    """A scored grid of allocations, and which of its rows the caps allow."""

    scorer: Scorer
    memory: MemoryForecast
    scored: Scored
    cap_input: CapInput
    allowed: NDArray[np.bool_]
    rulings: list[Ruling]
    runs_with_peaks: int
    """Number of runs of the job whose memory peaks the forecast uses."""
    prices_replicas: bool
    """True if each replica has the same price (`Scorer.prices_replicas`)."""

    def of(self, scored: Scored) -> GridEvaluation:
        """Return the evaluation of other allocations, which `scorer` has scored."""
        cap_input = replace(
            self.cap_input,
            grid=scored.grid,
            worker_memory_bytes=scored.worker_memory_bytes,
            ps_memory_bytes=scored.ps_memory_bytes,
            interval_ratio=scored.interval_ratio,
            latest_time_s=scored.latest_time_s,
            meets_deadline=scored.meets_deadline,
            latest_of=partial(self.scorer.latest_s, scored),
        )
        allowed, rulings = apply_caps(cap_input)
        return self._replace(scored=scored, cap_input=cap_input, allowed=allowed, rulings=rulings)


def evaluate_grid(
    job: Job,
    model: BaseThroughputModel,
    trials: Sequence[Trial],
    *,
    cluster: Cluster | None = None,
    extrapolate: bool = False,
    runs: Sequence[FinishedJob] = (),
    unknown_cores: frozenset[Role] = frozenset(),
    bases: Bases = DEFAULT_BASES,
    device_limits: Sequence[DeviceLimit] = (),
    offer: Offer | None = None,
    known: Scored | None = None,
) -> GridEvaluation:
    """Score the allocations within the bounds of a job, and apply the caps.

    `model` is fitted to `trials`, which have every column that a model needs (see `with_defaults`). Replicas of the
    roles in `unknown_cores` have the assumed cores only. Without a memory peak of the job, the memory forecast uses
    `bases`. `device_limits` are of trials in which the memory of a GPU ran out. With an `offer` whole hosts of its kind
    have a price. `known` are allocations that were scored with the same `cluster`, `trials` and memory.

    The grid is refined around the best allocations until its steps are a few per cent. So wider bounds, whose first
    grid is coarser, lead to the same target as narrower ones.
    """
    peaks = list(run_peaks(runs))
    observations = [*trials, *peaks]
    memory = CommandMemory.fit(job, observations) if job.command else MemoryModel.fit(job, observations, bases)
    device_memory = DeviceMemory.fit(job, trials)
    embedding_bytes = 0.0 if job.command else float(table_bytes(job))
    supported_ranges = _with_prior_ranges(measured_ranges(trials), model.prior_ranges)
    scorer = Scorer(job, model, memory, embedding_bytes, unknown_cores=unknown_cores, cluster=cluster, offer=offer)
    scored = scorer.price(known) if known else scorer.score(scorer.grid(trials, supported_ranges))
    cap_input = CapInput(
        job=job,
        cluster=cluster,
        grid=scored.grid,
        worker_memory_bytes=scored.worker_memory_bytes,
        ps_memory_bytes=scored.ps_memory_bytes,
        embedding_bytes=embedding_bytes,
        supported_ranges=supported_ranges,
        interval_ratio=scored.interval_ratio,
        latest_time_s=scored.latest_time_s,
        meets_deadline=scored.meets_deadline,
        latest_of=partial(scorer.latest_s, scored),
        extrapolate=extrapolate,
        device_limits=device_limits,
        device_memory=device_memory if device_memory.known else None,
    )
    prices_replicas = scorer.prices_replicas(scored.grid)
    evaluation = GridEvaluation(scorer, memory, scored, cap_input, *apply_caps(cap_input), len(peaks), prices_replicas)
    shared_batch = job.shared_batch()
    for _ in range(_MAX_REFINEMENTS):
        new_rows = finer(evaluation.scored.grid, _starts(evaluation.scored, evaluation.allowed), shared_batch)
        if not len(new_rows):
            break
        evaluation = evaluation.of(evaluation.scored.joined(scorer.score(new_rows)))
    return evaluation


def _starts(scored: Scored, allowed: NDArray[np.bool_]) -> list[int]:
    """Return the best row of each of the best replica counts, and the best row without caps."""
    rows = np.flatnonzero(allowed)
    rows = rows[np.argsort(scored.objective[rows], kind="stable")]
    counts = np.column_stack([scored.grid.workers[rows], scored.grid.ps[rows]])
    _, first = np.unique(counts, axis=0, return_index=True)
    return [*rows[np.sort(first)[:_MAX_STARTS]].tolist(), scored.best()]


def measured_ranges(trials: Sequence[Trial]) -> dict[str, tuple[float, float]]:
    """Return the minimum and maximum of every axis that the trials record."""
    columns = as_columns(trials, (*AXES, "loaders"))
    return {
        axis: (float(np.nanmin(column)), float(np.nanmax(column)))
        for axis, column in columns.items()
        if np.isfinite(column).any() and np.nanmax(column) > 0
    }


def with_defaults(job: Job, trial: Trial) -> Trial:
    """Return the trial with defaults for missing values.

    These are the job's batch size and tables, 1 core or the nearest number of cores within the bounds, and the number
    of GPUs where the bounds allow one only.
    """
    bounds = job.bounds
    known: dict[str, object] = {
        "batch_size": trial.batch_size or job.batch_size_for(trial.workers),
        "worker_cpu": trial.worker_cpu or assumed_cores(bounds.worker),
    }
    if job.bounds.loaders and trial.loaders is None:
        known["loaders"] = job.training.loaders
    if job.has_ps:
        known["ps_cpu"] = trial.ps_cpu or assumed_cores(bounds.ps)
    if (gpu := bounds.worker.gpu) and gpu.count[0] == gpu.count[1] and trial.worker_gpu is None:
        known["worker_gpu"] = gpu.count[0]
    if job.command is None:
        known["embedding_bytes"] = trial.embedding_bytes or round((trial.table_scale or 1.0) * table_bytes(job))
    return trial.model_copy(update=known)


def _with_prior_ranges(
    measured: Mapping[str, tuple[float, float]], prior_ranges: Mapping[str, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
    """Return the ranges measured on this job, widened to those of the jobs that the prior was learned from."""
    ranges = dict(prior_ranges)
    for axis, (low, high) in measured.items():
        prior_low, prior_high = ranges.get(axis, (low, high))
        ranges[axis] = (min(low, prior_low), max(high, prior_high))
    return ranges
