"""What limits a command at the target: reading its data, computing, or communication; and what reading takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sizewright.datasets.trials.trial import Trial
from sizewright.models.layers.loading import LoadingModel, waiting_share
from sizewright.recommender.sizing.result import Selection
from sizewright.spec.reason import Reason

_MAX_EXCESS = 1.1
"""Loaders that deliver up to this many times what the workers train are a limit."""
_MIN_WAIT = 0.2
"""Workers that wait for data for this share of their steps are limited by it."""
_BUSY = 0.75
"""Share of its cores, or of a GPU's time, from which computing limits a worker."""
_MOST_DISTANT = 1.0
"""A trial further from the target than this many e-folds, summed over the axes, tells nothing of it."""
_AXES = ("workers", "worker_cpu", "batch_size", "worker_gpu", "loaders")


def bottleneck(selection: Selection) -> Iterator[Reason]:
    """Yield what limits the throughput of a command's target, as far as its trials tell."""
    if selection.job.command is None:
        return
    near = _nearest(selection)
    if reading := _reading(selection):
        yield reading
    elif near and (wait := _waiting_share(near)) >= _MIN_WAIT:
        yield _waiting(near, wait)
    elif near:
        yield from _computing_or_communication(near)
    if _loaders_unjudged(selection.trials):
        yield Reason.of("loaders_unjudged")


def _reading(selection: Selection) -> Reason | None:
    """Return that loaders limit the target, and what they would deliver; None where they do not, or are not known."""
    model, row = selection.model, [selection.chosen]
    if not isinstance(model, LoadingModel) or model.loading_ is None:
        return None
    grid = selection.scored.grid
    target = {name: column[row] for name, column in selection.scored.columns.items()}
    training, loading = float(model.training_rates(target)[0]), float(model.loading_rates(target)[0])
    if not loading < _MAX_EXCESS * training:
        return None
    workers, rate = float(grid.workers[row][0]), float(selection.scored.throughput[row][0])
    cpu_s = model.loading_.cpu_s
    return Reason.of(
        "bottleneck_reading",
        loaders=float(grid.loaders[row][0]),
        at_most=bool(selection.job.bounds.loaders and grid.loaders[row][0] >= selection.job.bounds.loaders[1]),
        loading=loading,
        training=training,
        cores=None if cpu_s is None else cpu_s * rate / workers,
    )


def _waiting_share(trial: Trial) -> float:
    return float(waiting_share([trial])[0])


def _waiting(trial: Trial, wait: float) -> Reason:
    """Return that a trial waits for data, and what helps: more cores, or loaders that are sized, too."""
    if trial.loaders is None or not (trial.worker_cpu and trial.worker_cpu_used):
        return Reason.of("bottleneck_reading_unsized", wait=wait)
    use = trial.worker_cpu_used / trial.worker_cpu
    return Reason.of("bottleneck_reading_cores", wait=wait, use=min(use, 1.0), cores=trial.loader_cpu_used)


def _computing_or_communication(trial: Trial) -> Iterator[Reason]:
    """Yield what limits a trial that does not wait for data, by the use of its GPUs or its cores."""
    if trial.gpu_utilization is not None:
        use, of_gpus = trial.gpu_utilization, True
    elif trial.worker_cpu_used is not None and trial.worker_cpu:
        use, of_gpus = trial.worker_cpu_used / trial.worker_cpu, False
    else:
        return
    if use >= _BUSY:
        yield Reason.of("bottleneck_computing", use=min(use, 1.0), of_gpus=of_gpus)
    elif trial.workers + trial.ps > 1:
        yield Reason.of("bottleneck_communication", use=use, of_gpus=of_gpus, wait=_waiting_share(trial))


def _nearest(selection: Selection) -> Trial | None:
    """Return the trial at the target, or else the nearest one that is not far."""
    grid, row = selection.scored.grid, selection.chosen
    target = {axis: float(getattr(grid, axis)[row]) for axis in _AXES}

    def distance(trial: Trial) -> float:
        known = {axis: float(value) for axis in _AXES if (value := getattr(trial, axis)) is not None}
        return float(sum(abs(np.log(_positive(value) / _positive(target[axis]))) for axis, value in known.items()))

    nearest = min(selection.trials, key=distance, default=None)
    return nearest if nearest and distance(nearest) <= _MOST_DISTANT else None


def _positive(value: float) -> float:
    """Return a value with a logarithm: a half for none."""
    return value if value > 0 else 0.5


def _loaders_unjudged(trials: Sequence[Trial]) -> bool:
    """Return whether trials differ in loaders, but do not tell whether their steps wait for data."""
    counts = {trial.loaders for trial in trials if trial.loaders is not None}
    return len(counts) > 1 and not any(trial.phase_data_s for trial in trials)
