"""Plot a run over time: its allocation, its speed, and its changes."""

from __future__ import annotations

from typing import Any

import numpy as np

from sizewright.datasets.runs.finished_job import FinishedJob
from sizewright.errors import InputError
from sizewright.formatting import format_count, format_number, format_seconds
from sizewright.plots._base import COLORS, DASHED, FAINT, GREY, MEASURED, PREDICTED, Picture, tidy, time_unit


def over_time(run: FinishedJob) -> Picture:
    """Plot measured and predicted samples/s of each segment, and below it the cores, with changes and failures marked.

    Raises InputError for a run without known allocations.
    """
    if not run.stretches:
        raise InputError(
            f"Run {run.name} has no record of its allocations over time.", "Use a run that `sizewright run` recorded."
        )
    edges = [segment.at_s for segment in run.stretches]
    edges.append(run.stretches[-1].at_s + run.stretches[-1].duration_s)
    unit, name = time_unit(edges[-1])
    times = np.array(edges) / unit
    picture = Picture(7.4, 4.8)
    upper, lower = picture.subplots(2, 1, sharex=True)
    _speeds(upper, run, times)
    for number, (role, title) in enumerate((("worker", "cores of workers"), ("ps", "cores of PS"))):
        cores = [segment.allocation.cores(role) for segment in run.stretches]  # type: ignore[arg-type]
        if any(cores):
            lower.stairs(cores, times, baseline=None, color=COLORS[number], linewidth=2, label=title)
    events = _events(picture, lower, run, unit)
    tidy(upper, ylabel="samples/s", ylim=(0, None))
    tidy(lower, ylabel="cores", xlabel=f"time since the start ({name})", ylim=(0, None))
    for panel in (upper, lower):
        panel.legend(frameon=False, fontsize=8)
    rows = [
        (
            format_seconds(segment.at_s),
            format_seconds(segment.duration_s),
            segment.allocation.describe(),
            format_number(segment.throughput) if segment.throughput else "–",
        )
        for segment in run.stretches
    ]
    picture.numbers = (("at", "duration", "allocation", "samples/s"), rows)
    picture.alt = (
        f"{run.name} ran for {format_seconds(edges[-1])} at {format_count(len(rows), 'allocation')}, "
        f"from {rows[0][2]} to {rows[-1][2]}; {events}; outcome: {run.outcome.status}."
    )
    return picture


def _speeds(axes: Any, run: FinishedJob, times: Any) -> None:
    if run.expected:
        axes.axhspan(
            run.expected.lower,
            run.expected.upper,
            color=COLORS[0],
            alpha=FAINT,
            linewidth=0,
            label=f"{PREDICTED}, 90 %",
        )
        axes.axhline(run.expected.value, color=COLORS[0], linewidth=1, linestyle=DASHED)
    rates = [segment.throughput or np.nan for segment in run.stretches]
    axes.stairs(rates, times, baseline=None, color=COLORS[1], linewidth=2, label=MEASURED)


def _events(picture: Picture, axes: Any, run: FinishedJob, unit: float) -> str:
    """Mark changes and failures on the time axis, and return their numbers as text."""
    changes, failures = run.outcome.changes, run.outcome.failures
    top = axes.get_ylim()[1]
    change_events = [(c.at_s, f"{c.kind} took {format_seconds(c.seconds)}: {c.description}") for c in changes]
    failure_events = [(f.at_s, f"{f.replica} {f.cause}: {f.action}") for f in failures]
    for name, marker, color, events in (
        ("change", "^", GREY, change_events),
        ("failure", "x", COLORS[4], failure_events),
    ):
        if events:
            at = [at_s / unit for at_s, _ in events]
            drawn = axes.scatter(at, [0.03 * top] * len(at), marker=marker, s=40, color=color, zorder=3, label=name)
            picture.label(drawn, [text for _, text in events])
    return f"{format_count(len(changes), 'change')} and {format_count(len(failures), 'failure')}"
