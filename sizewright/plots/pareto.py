"""Cost against time of the allocations that no other beats in both."""

from __future__ import annotations

import numpy as np

from sizewright.errors import InputError
from sizewright.plots._base import COLORS, GREY, Picture, tidy
from sizewright.spec import Alternative, Recommendation
from sizewright.spec.units import format_seconds


def pareto(recommendation: Recommendation) -> Picture:
    """The recommendation's alternatives with the 90 % interval of their time, the choice marked.

    Raises InputError for a recommendation without a target.
    """
    rows = sorted(recommendation.alternatives, key=lambda row: row.cost)
    if not rows:
        raise InputError(
            f"The recommendation is '{recommendation.status}' and has no alternatives.", "See its reasons."
        )
    unit, name = _unit(max(row.completion_time_s for row in rows))
    cost, time = (np.array([getattr(row, key) for row in rows]) for key in ("cost", "completion_time_s"))
    ends = np.array([_ends(row) for row in rows]).T
    picture = Picture()
    axes = picture.subplots()
    axes.plot(cost, time / unit, color=GREY, linewidth=0.8, drawstyle="default")
    axes.errorbar(cost, time / unit, np.abs(ends - time) / unit, fmt="none", ecolor=GREY, elinewidth=0.8, capsize=2)
    others = [i for i, row in enumerate(rows) if not row.chosen]
    chosen = [i for i, row in enumerate(rows) if row.chosen]
    for among, marker, size, color, label in ((others, "o", 34, COLORS[0], "alternative"),
                                              (chosen, "*", 170, COLORS[1], "chosen")):  # fmt: skip
        if among:
            drawn = axes.scatter(
                cost[among], time[among] / unit, marker=marker, s=size, color=color, zorder=3, label=label
            )
            picture.label(drawn, [_described(rows[i]) for i in among])
    tidy(axes, xlabel="cost", ylabel=f"completion time ({name})", ylim=(0, None), xlim=(0, None))
    axes.legend(frameon=False, fontsize=9)
    picture.numbers = (
        ("allocation", "samples/s", "time", "cost", ""),
        [
            (
                row.allocation.describe(), f"{row.throughput.value:,.0f}", format_seconds(row.completion_time_s),
                f"{row.cost:.3g}", "chosen" if row.chosen else "",
            )
            for row in rows
        ],
    )  # fmt: skip
    marked = f" Chosen: {_described(rows[chosen[0]])}." if chosen else ""
    picture.alt = (
        f"{len(rows)} allocations from {format_seconds(time.max())} for {cost.min():.3g} "
        f"to {format_seconds(time.min())} for {cost.max():.3g}.{marked}"
    )
    return picture


def _ends(row: Alternative) -> tuple[float, float]:
    """Seconds, from the ends of the samples/s."""
    rate = row.throughput
    return row.completion_time_s * rate.value / rate.upper, row.completion_time_s * rate.value / max(rate.lower, 1e-9)


def _described(row: Alternative) -> str:
    return f"{row.allocation.describe()}: {format_seconds(row.completion_time_s)} for {row.cost:.3g}"


def _unit(seconds: float) -> tuple[float, str]:
    return next(((size, name) for size, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")) if seconds >= size),
                (1.0, "s"))  # fmt: skip
