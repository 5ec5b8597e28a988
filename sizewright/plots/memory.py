"""Plot the memory of a worker and of a PS: the forecast, the requested limit, and the measured peaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import to_rgba

from sizewright.datasets.runs.finished_job import FinishedJob
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import InputError
from sizewright.formatting import GIB, format_bytes, format_percent
from sizewright.plots._base import COLORS, DASHED, FAINT, INK, MEASURED, PREDICTED, Picture, tidy
from sizewright.spec import Recommendation

_NAMES = {"worker": "worker", "ps": "PS"}


def memory(recommendation: Recommendation, trials: Sequence[Trial] = (), runs: Sequence[FinishedJob] = ()) -> Picture:
    """Plot the forecast for the target as bars, the requested limit as a line, and measured peaks as points.

    Peaks of trials are at the trials' own sizes. Unknown values are left out. Raises InputError for a recommendation
    without a target, or where nothing is known about memory.
    """
    target, predicted = recommendation.target, recommendation.predicted
    if target is None or predicted is None:
        raise InputError(f"The recommendation is '{recommendation.status}' and has no forecast.", "See its reasons.")
    roles = [role for role in ("worker", "ps") if target.replicas(role)]
    picture = Picture(7.0, 1.2 + 0.9 * len(roles))
    axes = picture.subplots()
    rows: list[tuple[str, ...]] = []
    sentences: list[str] = []
    for position, role in enumerate(roles):
        forecast = getattr(predicted, f"{role}_memory_bytes")
        limit = max(group.memory_bytes for group in getattr(target, role))
        chance = getattr(predicted, f"{role}_oom_probability")
        if forecast:
            axes.barh(
                position,
                forecast / GIB,
                height=0.5,
                facecolor=to_rgba(COLORS[0], FAINT),
                edgecolor=COLORS[0],
                linewidth=1.2,
                linestyle=DASHED,
                label="" if position else f"{PREDICTED} peak",
            )
        if limit:
            axes.plot(
                [limit / GIB] * 2,
                [position - 0.36, position + 0.36],
                color=COLORS[4],
                linewidth=2.4,
                label="" if position else "requested limit",
            )
        peaks = _peaks(picture, axes, role, position, trials, runs)
        oom_chance = "" if chance is None else format_percent(chance, 1)
        peak, requested = (format_bytes(size) if size else "unknown" for size in (forecast, limit))
        rows.append((_NAMES[role], peak, requested, oom_chance, peaks))
        risk = f", which it exceeds with probability {oom_chance}" if oom_chance else ""
        sentences.append(f"a {_NAMES[role]} peaks at {peak}, with a limit of {requested}{risk}")
    if not axes.has_data():
        raise InputError(
            "It is not known how much memory a replica needs.", "Provide trials or runs with measured peaks."
        )
    axes.set_yticks(range(len(roles)), [_NAMES[role] for role in roles])
    axes.invert_yaxis()
    tidy(axes, xlabel="GiB of one replica", xlim=(0, None))
    picture.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    picture.numbers = (("replica", "predicted", "limit", "probability of exceeding it", "largest measured"), rows)
    picture.alt = f"Predicted: {'; '.join(sentences)}."
    return picture


def _peaks(
    picture: Picture, axes: Any, role: str, position: int, trials: Sequence[Trial], runs: Sequence[FinishedJob]
) -> str:
    """Draw the measured peaks and return the largest as text."""
    measured = [t for t in trials if t.usable and getattr(t, f"{role}_memory_bytes")]
    trial_peaks = [getattr(t, f"{role}_memory_bytes") for t in measured]
    known = [run for run in runs if getattr(run, role).memory_peak_bytes]
    run_peaks = [getattr(run, role).memory_peak_bytes for run in known]
    trial_labels = [
        f"a trial's {_NAMES[role]} with {t.table_scale or 1:g} of the tables: {format_bytes(peak)}"
        for t, peak in zip(measured, trial_peaks, strict=True)
    ]
    run_labels = [
        f"{run.name}'s {_NAMES[role]}: {format_bytes(peak)}" for run, peak in zip(known, run_peaks, strict=True)
    ]
    for values, texts, marker, color, name in (
        (trial_peaks, trial_labels, "o", INK, f"{MEASURED} in a trial"),
        (run_peaks, run_labels, "D", COLORS[2], f"{MEASURED} in a run"),
    ):
        if values:
            shown = "" if position and axes.get_legend_handles_labels()[1].count(name) else name
            drawn = axes.scatter(
                np.array(values) / GIB,
                [position] * len(values),
                marker=marker,
                s=20,
                color=color,
                zorder=3,
                label=shown,
            )
            picture.label(drawn, texts)
    largest = max([*trial_peaks, *run_peaks], default=0)
    return format_bytes(largest) if largest else "–"
