"""Plot time against cost of the allocations on the Pareto front."""

from __future__ import annotations

import numpy as np

from sizewright.errors import InputError
from sizewright.formatting import format_cost, format_count, format_interval, format_seconds
from sizewright.plots._base import COLORS, DASHED, GREY, PREDICTED, Picture, tidy
from sizewright.spec import Alternative, Recommendation


def pareto(recommendation: Recommendation) -> Picture:
    """Plot the recommendation's alternatives with the 90 % interval of their time, the choice marked.

    Raises InputError for a recommendation without a target.
    """
    rows = sorted(recommendation.alternatives, key=lambda row: row.time_and_cost()[1])
    if not rows:
        raise InputError(
            f"The recommendation is '{recommendation.status}' and has no alternatives.", "See its reasons."
        )
    per_million = "" if all(row.cost is not None for row in rows) else " of a million samples"
    time, cost = np.array([row.time_and_cost() for row in rows]).T
    unit, name = _unit(time.max())
    intervals = np.array([_time_interval(row) for row in rows]).T
    picture = Picture()
    axes = picture.subplots()
    axes.plot(cost, time / unit, color=GREY, linewidth=0.8, linestyle=DASHED)
    axes.errorbar(
        cost, time / unit, np.abs(intervals - time) / unit, fmt="none", ecolor=GREY, elinewidth=0.8, capsize=2
    )
    others = [i for i, row in enumerate(rows) if not row.chosen]
    chosen = [i for i, row in enumerate(rows) if row.chosen]
    for indices, marker, size, color, label in (
        (others, "o", 34, COLORS[0], PREDICTED),
        (chosen, "*", 170, COLORS[1], f"{PREDICTED}, chosen"),
    ):
        if indices:
            drawn = axes.scatter(
                cost[indices],
                time[indices] / unit,
                marker=marker,
                s=size,
                facecolors="none",
                edgecolors=color,
                linewidths=1.4,
                zorder=3,
                label=label,
            )
            picture.label(drawn, [_description(rows[i]) for i in indices])
    tidy(
        axes,
        xlabel=f"cost{per_million}, in the currency of the prices",
        ylabel=f"{f'time{per_million}' if per_million else 'completion time'} ({name})",
        ylim=(0, None),
        xlim=(0, None),
    )
    axes.legend(frameon=False, fontsize=9)
    picture.numbers = (
        ("allocation", "samples/s", f"time{per_million}", f"cost{per_million}", ""),
        [
            (
                row.allocation.describe(),
                _rate(row),
                format_seconds(row.time_and_cost()[0]),
                _cost(row),
                "chosen" if row.chosen else "",
            )
            for row in rows
        ],
    )
    choice = f" Chosen: {_description(rows[chosen[0]])}." if chosen else ""
    picture.alt = (
        f"{format_count(len(rows), 'allocation')} from {format_seconds(time.max())} for {_cost(rows[0])} "
        f"to {format_seconds(time.min())} for {_cost(rows[-1])}.{choice}"
    )
    return picture


def _time_interval(row: Alternative) -> tuple[float, float]:
    """Return the interval of the time in seconds, from that of the samples/s."""
    rate, (time_s, _) = row.throughput, row.time_and_cost()
    return time_s * rate.value / rate.upper, time_s * rate.value / max(rate.lower, 1e-9)


def _description(row: Alternative) -> str:
    return f"{row.allocation.describe()}: {format_seconds(row.time_and_cost()[0])} for {_cost(row)}"


def _rate(row: Alternative) -> str:
    rate = row.throughput
    return format_interval(rate.value, rate.lower, rate.upper)[0]


def _cost(row: Alternative) -> str:
    rate = row.throughput
    return format_cost(row.time_and_cost()[1], rate.value, rate.lower, rate.upper)


def _unit(seconds: float) -> tuple[float, str]:
    for size, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return size, name
    return 1.0, "s"
