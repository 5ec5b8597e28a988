"""Where the seconds of a step go, by allocation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sizewright.datasets.trials import Trial
from sizewright.errors import InputError
from sizewright.plots._base import COLORS, Picture, tidy

MOST_BARS = 20
_PHASES = {"phase_data_s": "read data", "phase_pull_s": "pull rows", "phase_compute_s": "compute",
           "phase_push_s": "push gradients"}  # fmt: skip


def phases(trials: Sequence[Trial]) -> Picture:
    """Busy milliseconds of a worker's step, stacked by phase: the mean over the trials of each allocation, the slowest
    first; of more than 20, some in even distance.

    Raises InputError where no trial tells its phases.
    """
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.usable and any(getattr(trial, phase) is not None for phase in _PHASES):
            groups.setdefault(_named(trial), []).append(trial)
    if not groups:
        raise InputError("No trial tells the phases of its steps.", "Those that `sizewright profile` measures do.")
    means = {name: [_mean(group, phase) for phase in _PHASES] for name, group in groups.items()}
    order = sorted(means, key=lambda name: -sum(means[name]))
    kept = [order[i] for i in np.unique(np.linspace(0, len(order) - 1, MOST_BARS).round().astype(int))]
    values = np.array([means[name] for name in kept]) * 1000
    picture = Picture(7.4, 1.4 + 0.26 * len(kept))
    axes = picture.subplots()
    left = np.zeros(len(kept))
    for number, phase in enumerate(_PHASES.values()):
        axes.barh(range(len(kept)), values[:, number], left=left, height=0.7, color=COLORS[number], label=phase)
        left += values[:, number]
    axes.set_yticks(range(len(kept)), kept, fontsize=8)
    axes.invert_yaxis()
    tidy(axes, xlabel="ms of a step, without waiting for others", ylabel="workers, PS (× cores)")
    axes.grid(visible=False, axis="y")
    picture.legend(loc="outside lower center", ncols=len(_PHASES), frameon=False, fontsize=8)
    rows = [(name, *(f"{value:.2f}" for value in row)) for name, row in zip(kept, values, strict=True)]
    picture.numbers = (("workers, PS (replicas × cores)", *(f"{name}, ms" for name in _PHASES.values())), rows)
    most = list(_PHASES.values())[int(values.sum(axis=0).argmax())]
    picture.alt = (
        f"Steps take {left.max():.1f} ms at {kept[0]} and {left.min():.1f} ms at {kept[-1]}; most of it goes to: "
        f"{most}."
    )
    return picture


def _named(trial: Trial) -> str:
    def sized(count: int, cores: float | None) -> str:
        return f"{count} × {cores:g}" if cores else str(count)

    scale = f", {trial.table_scale:g} of the tables" if trial.table_scale and trial.table_scale != 1 else ""
    servers = f", {sized(trial.ps, trial.ps_cpu)}" if trial.ps else ""
    return f"{sized(trial.workers, trial.worker_cpu)}{servers}{scale}"


def _mean(trials: Sequence[Trial], phase: str) -> float:
    return float(np.mean([getattr(trial, phase) or 0.0 for trial in trials]))
