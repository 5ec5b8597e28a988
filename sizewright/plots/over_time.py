"""A run over time: what it had, how fast it trained, and when that was changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sizewright.datasets.finished import FinishedJob
from sizewright.errors import InputError
from sizewright.plots._base import COLORS, DASHED, FAINT, GREY, MEASURED, PREDICTED, Picture, tidy, time_unit
from sizewright.spec.units import format_count, format_number, format_seconds


def over_time(run: FinishedJob) -> Picture:
    """Samples/s of each stretch beside what its plan predicted; below it the cores of workers and PS, with changes
    and failures marked.

    Raises InputError for a run of which no allocation is known.
    """
    if not run.stretches:
        raise InputError(f"Nothing is known of what {run.name} had over time.", "Runs of `sizewright run` tell it.")
    edges = [stretch.at_s for stretch in run.stretches]
    edges.append(run.stretches[-1].at_s + run.stretches[-1].duration_s)
    unit, name = time_unit(edges[-1])
    hours = np.array(edges) / unit
    picture = Picture(7.4, 4.8)
    upper, lower = picture.subplots(2, 1, sharex=True)
    _speeds(upper, run, hours)
    for number, (role, title) in enumerate((("worker", "cores of workers"), ("ps", "cores of PS"))):
        cores = [stretch.allocation.cores(role) for stretch in run.stretches]  # type: ignore[arg-type]
        if any(cores):
            lower.stairs(cores, hours, baseline=None, color=COLORS[number], linewidth=2, label=title)
    events = _events(picture, lower, run, unit)
    tidy(upper, ylabel="samples/s", ylim=(0, None))
    tidy(lower, ylabel="cores", xlabel=f"time since it began ({name})", ylim=(0, None))
    for panel in (upper, lower):
        panel.legend(frameon=False, fontsize=8)
    rows = [
        (format_seconds(s.at_s), format_seconds(s.duration_s), s.allocation.describe(),
         format_number(s.throughput) if s.throughput else "–") for s in run.stretches
    ]  # fmt: skip
    picture.numbers = (("at", "for", "allocation", "samples/s"), rows)
    picture.alt = (
        f"{run.name} ran for {format_seconds(edges[-1])} at {format_count(len(rows), 'allocation')}: "
        f"began with {rows[0][2]}, ended "
        f"with {rows[-1][2]}; {events}; it {run.outcome.status}."
    )
    return picture


def _speeds(axes: Any, run: FinishedJob, hours: Any) -> None:
    if run.expected:
        axes.axhspan(run.expected.lower, run.expected.upper, color=COLORS[0], alpha=FAINT, linewidth=0,
                     label=f"{PREDICTED}, 90 %")  # fmt: skip
        axes.axhline(run.expected.value, color=COLORS[0], linewidth=1, linestyle=DASHED)
    rates = [stretch.throughput or np.nan for stretch in run.stretches]
    axes.stairs(rates, hours, baseline=None, color=COLORS[1], linewidth=2, label=MEASURED)


def _events(picture: Picture, axes: Any, run: FinishedJob, unit: float) -> str:
    """Mark them on the time axis; the answer is how many there were."""
    changes, failures = run.outcome.changes, run.outcome.failures
    top = axes.get_ylim()[1]
    told: Sequence[tuple[str, str, list[tuple[float, str]]]] = (
        ("^", GREY, [(c.at_s, f"{c.kind} took {format_seconds(c.seconds)}: {c.description}") for c in changes]),
        ("x", COLORS[4], [(f.at_s, f"{f.replica} {f.cause}: {f.action}") for f in failures]),
    )
    for (marker, color, events), name in zip(told, ("change", "failure"), strict=True):
        if events:
            drawn = axes.scatter([at / unit for at, _ in events], [0.03 * top] * len(events), marker=marker, s=40,
                                 color=color, zorder=3, label=name)  # fmt: skip
            picture.label(drawn, [text for _, text in events])
    return f"{format_count(len(changes), 'change')} and {format_count(len(failures), 'failure')}"
