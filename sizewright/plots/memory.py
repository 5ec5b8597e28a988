"""Memory of a worker and of a PS: what is forecast, what is asked for, what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import to_rgba

from sizewright.datasets.finished import FinishedJob
from sizewright.datasets.trials import Trial
from sizewright.errors import InputError
from sizewright.plots._base import COLORS, DASHED, FAINT, INK, MEASURED, PREDICTED, Picture, tidy
from sizewright.spec import Recommendation
from sizewright.spec.units import GIB, format_bytes

_NAMES = {"worker": "worker", "ps": "PS"}


def memory(recommendation: Recommendation, trials: Sequence[Trial] = (), runs: Sequence[FinishedJob] = ()) -> Picture:
    """The forecast of the recommendation's target as bars, the limit that is asked for as a line, and greatest peaks of
    trials (at their own sizes) and runs as points.

    What nothing tells is left out. Raises InputError for a recommendation without a target, or where nothing at all is
    known of memory.
    """
    target, predicted = recommendation.target, recommendation.predicted
    if target is None or predicted is None:
        raise InputError(f"The recommendation is '{recommendation.status}' and forecasts nothing.", "See its reasons.")
    roles = [role for role in ("worker", "ps") if target.replicas(role)]
    picture = Picture(7.0, 1.2 + 0.9 * len(roles))
    axes = picture.subplots()
    rows, told = list[tuple[str, ...]](), list[str]()
    for place, role in enumerate(roles):
        forecast = getattr(predicted, f"{role}_memory_bytes")
        limit = max(group.memory_bytes for group in getattr(target, role))
        chance = getattr(predicted, f"{role}_oom_probability")
        if forecast:
            axes.barh(place, forecast / GIB, height=0.5, facecolor=to_rgba(COLORS[0], FAINT), edgecolor=COLORS[0],
                      linewidth=1.2, linestyle=DASHED, label="" if place else f"{PREDICTED} peak")  # fmt: skip
        if limit:
            axes.plot([limit / GIB] * 2, [place - 0.36, place + 0.36], color=COLORS[4], linewidth=2.4,
                      label="" if place else "limit asked for")  # fmt: skip
        peaks = _peaks(picture, axes, role, place, trials, runs)
        broken = "" if chance is None else f"{chance:.1%}"
        peak, asked = (format_bytes(size) if size else "unknown" for size in (forecast, limit))
        rows.append((_NAMES[role], peak, asked, broken, peaks))
        likely = f", broken with a chance of {broken}" if broken else ""
        told.append(f"a {_NAMES[role]} peaks at {peak} of {asked}{likely}")
    if not axes.has_data():
        raise InputError("Nothing tells how much memory a replica needs.", "Bring trials or runs with their peaks.")
    axes.set_yticks(range(len(roles)), [_NAMES[role] for role in roles])
    axes.invert_yaxis()
    tidy(axes, xlabel="GiB of one replica", xlim=(0, None))
    picture.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    picture.numbers = (("replica", "predicted", "limit", "chance of breaking it", "greatest measured"), rows)
    picture.alt = f"Predicted: {'; '.join(told)}."
    return picture


def _peaks(
    picture: Picture, axes: Any, role: str, place: int, trials: Sequence[Trial], runs: Sequence[FinishedJob]
) -> str:
    """Draw what was measured; the answer is the greatest in words."""
    measured = [t for t in trials if t.usable and getattr(t, f"{role}_memory_bytes")]
    of_trials = [getattr(t, f"{role}_memory_bytes") for t in measured]
    known = [run for run in runs if getattr(run, role).memory_peak_bytes]
    of_runs = [getattr(run, role).memory_peak_bytes for run in known]
    labels = [f"a trial's {_NAMES[role]} with {t.table_scale or 1:g} of the tables: {format_bytes(peak)}"
              for t, peak in zip(measured, of_trials, strict=True)]  # fmt: skip
    names = [f"{run.name}'s {_NAMES[role]}: {format_bytes(peak)}" for run, peak in zip(known, of_runs, strict=True)]
    for values, texts, marker, color, name in (
        (of_trials, labels, "o", INK, f"{MEASURED} in a trial"),
        (of_runs, names, "D", COLORS[2], f"{MEASURED} in a run"),
    ):  # fmt: skip
        if values:
            shown = "" if place and axes.get_legend_handles_labels()[1].count(name) else name
            drawn = axes.scatter(
                np.array(values) / GIB, [place] * len(values), marker=marker, s=20, color=color, zorder=3, label=shown
            )
            picture.label(drawn, texts)
    most = max([*of_trials, *of_runs], default=0)
    return format_bytes(most) if most else "–"
