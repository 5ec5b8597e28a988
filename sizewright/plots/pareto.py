"""Cost against time of the allocations that no other beats in both."""

from __future__ import annotations

import numpy as np

from sizewright.errors import InputError
from sizewright.plots._base import COLORS, DASHED, GREY, PREDICTED, Picture, tidy
from sizewright.spec import Alternative, Recommendation
from sizewright.spec.units import format_cost, format_count, format_interval, format_seconds


def pareto(recommendation: Recommendation) -> Picture:
    """The recommendation's alternatives with the 90 % interval of their time, the choice marked.

    Raises InputError for a recommendation without a target.
    """
    rows = sorted(recommendation.alternatives, key=lambda row: row.time_and_cost()[1])
    if not rows:
        raise InputError(
            f"The recommendation is '{recommendation.status}' and has no alternatives.", "See its reasons."
        )
    of = "" if all(row.cost is not None for row in rows) else " of a million samples"
    time, cost = np.array([row.time_and_cost() for row in rows]).T
    unit, name = _unit(time.max())
    ends = np.array([_ends(row) for row in rows]).T
    picture = Picture()
    axes = picture.subplots()
    axes.plot(cost, time / unit, color=GREY, linewidth=0.8, linestyle=DASHED)
    axes.errorbar(cost, time / unit, np.abs(ends - time) / unit, fmt="none", ecolor=GREY, elinewidth=0.8, capsize=2)
    others = [i for i, row in enumerate(rows) if not row.chosen]
    chosen = [i for i, row in enumerate(rows) if row.chosen]
    for among, marker, size, color, label in ((others, "o", 34, COLORS[0], PREDICTED),
                                              (chosen, "*", 170, COLORS[1], f"{PREDICTED}, chosen")):  # fmt: skip
        if among:
            drawn = axes.scatter(
                cost[among], time[among] / unit, marker=marker, s=size, facecolors="none", edgecolors=color,
                linewidths=1.4, zorder=3, label=label,
            )  # fmt: skip
            picture.label(drawn, [_described(rows[i]) for i in among])
    tidy(
        axes,
        xlabel=f"cost{of}, in the currency of the prices",
        ylabel=f"{f'time{of}' if of else 'completion time'} ({name})",
        ylim=(0, None),
        xlim=(0, None),
    )
    axes.legend(frameon=False, fontsize=9)
    picture.numbers = (
        ("allocation", "samples/s", f"time{of}", f"cost{of}", ""),
        [
            (
                row.allocation.describe(), _rate(row),
                format_seconds(row.time_and_cost()[0]), _cost(row), "chosen" if row.chosen else "",
            )
            for row in rows
        ],
    )  # fmt: skip
    marked = f" Chosen: {_described(rows[chosen[0]])}." if chosen else ""
    picture.alt = (
        f"{format_count(len(rows), 'allocation')} from {format_seconds(time.max())} for {_cost(rows[0])} "
        f"to {format_seconds(time.min())} for {_cost(rows[-1])}.{marked}"
    )
    return picture


def _ends(row: Alternative) -> tuple[float, float]:
    """Seconds, from the ends of the samples/s."""
    rate, (time_s, _) = row.throughput, row.time_and_cost()
    return time_s * rate.value / rate.upper, time_s * rate.value / max(rate.lower, 1e-9)


def _described(row: Alternative) -> str:
    return f"{row.allocation.describe()}: {format_seconds(row.time_and_cost()[0])} for {_cost(row)}"


def _rate(row: Alternative) -> str:
    rate = row.throughput
    return format_interval(rate.value, rate.lower, rate.upper)[0]


def _cost(row: Alternative) -> str:
    rate = row.throughput
    return format_cost(row.time_and_cost()[1], rate.value, rate.lower, rate.upper)


def _unit(seconds: float) -> tuple[float, str]:
    return next(((size, name) for size, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")) if seconds >= size),
                (1.0, "s"))  # fmt: skip
