"""Plot the observations of a run: samples/s, cores in use and memory over time, against the allocation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from sizewright.errors import InputError
from sizewright.formatting import GIB, format_bytes, format_number, format_seconds
from sizewright.plots._base import COLORS, Picture, tidy, time_unit
from sizewright.runtime.metrics_log import Observed
from sizewright.spec import Role

MAX_WINDOWS = 200
ROLES: tuple[tuple[Role, str], ...] = (("worker", "workers"), ("ps", "PS"))


def observed(windows: Sequence[Observed]) -> Picture:
    """Plot samples/s and cores in use between observations, and the largest peak of a worker and of a PS.

    `windows` are the observations that `sizewright run --metrics` records; dashed lines are the allocation. Raises
    InputError for fewer than two observations.
    """
    if len(windows) < 2:
        raise InputError(
            f"At least two observations of a run are needed, got {len(windows)}.",
            "Record them: sizewright run JOB --metrics FILE.",
        )
    kept = [windows[i] for i in np.unique(np.linspace(0, len(windows) - 1, MAX_WINDOWS + 1).round().astype(int))]
    began, ended = kept[0].at_s, kept[-1].at_s
    unit, name = time_unit(ended - began)
    edges = (np.array([observation.at_s for observation in kept]) - began) / unit
    seconds = np.maximum(np.diff([observation.at_s for observation in kept]), 1e-9)
    trained = np.array([observation.metrics.samples_trained for observation in kept], float)
    rates = np.maximum(np.diff(trained), 0) / seconds
    picture = Picture(7.4, 6.4)
    speed, cores, memory = picture.subplots(3, 1, sharex=True)
    speed.stairs(rates, edges, baseline=None, color=COLORS[2], linewidth=1.6)
    for number, (role, title) in enumerate(ROLES):
        _cores(cores, kept, edges, seconds, role, title, COLORS[number])
        _memory(memory, kept, edges, role, title, COLORS[number])
    tidy(speed, ylabel="samples/s", ylim=(0, None))
    tidy(cores, ylabel="cores in use", ylim=(0, None))
    tidy(memory, ylabel="GiB of the fullest", ylim=(0, None), xlabel=f"time ({name})")
    for panel in (cores, memory):
        panel.legend(frameon=False, fontsize=8)
    picture.numbers = (("at", "samples/s", "peak of a worker", "peak of a PS"), _rows(kept, rates))
    total = (trained[-1] - trained[0]) / max(ended - began, 1e-9)
    picture.alt = (
        f"Observed for {format_seconds(ended - began)}: {format_number(total)} samples/s on average, between "
        f"{format_number(rates.min())} and {format_number(rates.max())}."
    )
    return picture


def _cores(axes: Any, kept: Sequence[Observed], edges: Any, seconds: Any, role: Role, title: str, color: str) -> None:
    """Draw the cores used by the replicas that both observations of a window contain."""
    used = []
    for before, after in pairwise(kept):
        cpu_s = {replica.name: replica.cpu_s for replica in before.metrics.of(role)}
        used.append(sum(max(r.cpu_s - cpu_s[r.name], 0.0) for r in after.metrics.of(role) if r.name in cpu_s))
    if any(used):
        axes.stairs(np.array(used) / seconds, edges, baseline=None, color=color, linewidth=1.6, label=title)
    allocations = [observation.metrics.allocation for observation in kept[1:]]
    allocated = [allocation.cores(role) if allocation else np.nan for allocation in allocations]
    if np.nansum(allocated) > 0:
        axes.stairs(
            allocated, edges, baseline=None, color=color, linewidth=1, linestyle="--", label=f"allocated to {title}"
        )


def _memory(axes: Any, kept: Sequence[Observed], edges: Any, role: Role, title: str, color: str) -> None:
    peaks = [_peak(observation, role) for observation in kept]
    if any(peaks):
        axes.plot(edges, np.array(peaks) / GIB, color=color, linewidth=1.6, label=title)
    limits = [_limit(observation, role) for observation in kept]
    if any(limits):
        axes.step(
            edges,
            np.array(limits) / GIB,
            where="post",
            color=color,
            linewidth=1,
            linestyle="--",
            label=f"limit of {title}",
        )


def _peak(observation: Observed, role: Role) -> int:
    return max((replica.memory_peak_bytes for replica in observation.metrics.of(role)), default=0)


def _limit(observation: Observed, role: Role) -> int:
    """Return the smallest memory limit of the role's replicas."""
    allocation = observation.metrics.allocation
    return min((group.memory_bytes for group in getattr(allocation, role)), default=0) if allocation else 0


def _rows(kept: Sequence[Observed], rates: Any) -> list[tuple[str, ...]]:
    rows = np.unique(np.linspace(0, len(rates) - 1, 20).round().astype(int))
    return [
        (
            format_seconds(kept[i + 1].at_s - kept[0].at_s),
            format_number(rates[i]),
            *(format_bytes(_peak(kept[i + 1], role)) for role, _ in ROLES),
        )
        for i in rows
    ]
