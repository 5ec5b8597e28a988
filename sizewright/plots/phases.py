"""Plot the time of a step by phase, for each allocation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sizewright.datasets.trials.trial import Trial
from sizewright.errors import InputError
from sizewright.plots._base import COLORS, Picture, tidy

MAX_BARS = 20
_PHASES = {
    "phase_data_s": "read data",
    "phase_pull_s": "pull rows",
    "phase_compute_s": "compute",
    "phase_push_s": "push gradients",
}


def phases(trials: Sequence[Trial]) -> Picture:
    """Plot busy milliseconds of a worker's step, stacked by phase: the mean over the trials of each allocation.

    The slowest allocation comes first; of more than 20, evenly spaced ones are drawn. Raises InputError where no trial
    has measured its phases.
    """
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.usable and any(getattr(trial, phase) is not None for phase in _PHASES):
            groups.setdefault(_name(trial), []).append(trial)
    if not groups:
        raise InputError("No trial has the phases of its steps.", "Measure trials that do: sizewright profile JOB.")
    means = {name: [_mean(group, phase) for phase in _PHASES] for name, group in groups.items()}
    order = sorted(means, key=lambda name: -sum(means[name]))
    kept = [order[i] for i in np.unique(np.linspace(0, len(order) - 1, MAX_BARS).round().astype(int))]
    values = np.array([means[name] for name in kept]) * 1000
    picture = Picture(7.4, 1.4 + 0.26 * len(kept))
    axes = picture.subplots()
    bar_starts = np.zeros(len(kept))
    for number, phase in enumerate(_PHASES.values()):
        axes.barh(range(len(kept)), values[:, number], left=bar_starts, height=0.7, color=COLORS[number], label=phase)
        bar_starts += values[:, number]
    axes.set_yticks(range(len(kept)), kept, fontsize=8)
    axes.invert_yaxis()
    tidy(axes, xlabel="ms of a step, without waiting for other replicas", ylabel="workers, PS (× cores)")
    axes.grid(visible=False, axis="y")
    picture.legend(loc="outside lower center", ncols=len(_PHASES), frameon=False, fontsize=8)
    rows = [(name, *(f"{value:.2f}" for value in row)) for name, row in zip(kept, values, strict=True)]
    picture.numbers = (("workers, PS (replicas × cores)", *(f"{name}, ms" for name in _PHASES.values())), rows)
    longest = list(_PHASES.values())[int(values.sum(axis=0).argmax())]
    picture.alt = (
        f"Steps take {bar_starts.max():.1f} ms at {kept[0]} and {bar_starts.min():.1f} ms at {kept[-1]}; "
        f"the longest phase is: {longest}."
    )
    return picture


def _name(trial: Trial) -> str:
    def size(count: int, cores: float | None) -> str:
        return f"{count} × {cores:g}" if cores else str(count)

    scale = f", {trial.table_scale:g} of the tables" if trial.table_scale and trial.table_scale != 1 else ""
    servers = f", {size(trial.ps, trial.ps_cpu)}" if trial.ps else ""
    return f"{size(trial.workers, trial.worker_cpu)}{servers}{scale}"


def _mean(trials: Sequence[Trial], phase: str) -> float:
    return float(np.mean([getattr(trial, phase) or 0.0 for trial in trials]))
