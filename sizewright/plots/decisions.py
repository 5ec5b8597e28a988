"""Plot the decisions of a control loop over time: observed speed, allocation, and each change with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from sizewright.errors import InputError
from sizewright.formatting import format_count, format_seconds
from sizewright.plots._base import COLORS, GREY, Picture, tidy, time_unit
from sizewright.recommender.control.decisions import Decision
from sizewright.spec import Role

ROLES: tuple[tuple[Role, str], ...] = (("worker", "cores of workers"), ("ps", "cores of PS"))
MAX_ROWS = 200


def decisions(decisions: Sequence[Decision]) -> Picture:
    """Plot samples/s at each turn, and below it the cores, with a mark for each proposed change and its reason.

    `decisions` are those that `sizewright run --decisions` records; of several runs the last is drawn. Raises
    InputError without a decision.
    """
    if not decisions:
        raise InputError("There are no decisions to plot.", "Record them: sizewright run JOB --decisions FILE.")
    turns = [turn for turn in decisions if turn.run == decisions[-1].run]
    began = turns[0].at
    at_s = np.array([(turn.at - began).total_seconds() for turn in turns])
    unit, name = time_unit(at_s[-1])
    picture = Picture(7.4, 4.8)
    upper, lower = picture.subplots(2, 1, sharex=True)
    throughputs = np.array([np.nan if turn.throughput is None else turn.throughput for turn in turns])
    upper.plot(at_s / unit, throughputs, color=COLORS[2], linewidth=1.6)
    for number, (role, title) in enumerate(ROLES):
        cores = [turn.allocation.cores(role) for turn in turns]
        if any(cores):
            lower.step(at_s / unit, cores, where="post", color=COLORS[number], linewidth=1.8, label=title)
    _changes(picture, lower, turns, at_s / unit)
    tidy(upper, ylabel="samples/s", ylim=(0, None))
    tidy(lower, ylabel="cores", xlabel=f"time since the first turn ({name})", ylim=(0, None))
    lower.legend(frameon=False, fontsize=8)
    picture.numbers = (("at", "turns", "decision", "target", "reason", "result"), _rows(turns, at_s))
    proposed = [turn for turn in turns if turn.kind == "adjust"]
    applied = sum(bool(turn.applied) for turn in proposed)
    skipped = sum(turn.kind == "blind" for turn in turns)
    last = f" Last change: {proposed[-1].reason.rstrip('.')}." if proposed else ""
    picture.alt = (
        f"{format_count(len(turns), 'turn')} in {format_seconds(at_s[-1])}; proposed changes: {len(proposed)}, "
        f"applied: {applied}; skipped turns: {skipped}.{last}"
    )
    return picture


def _changes(picture: Picture, axes: Any, turns: Sequence[Decision], at: Any) -> None:
    """Draw marks along the time axis, for applied changes and for others."""
    top = axes.get_ylim()[1]
    for applied, marker, color, name in ((True, "^", GREY, "change"), (False, "x", COLORS[4], "not applied")):
        indices = [i for i, turn in enumerate(turns) if turn.kind == "adjust" and bool(turn.applied) == applied]
        if indices:
            drawn = axes.scatter(
                at[indices], [0.03 * top] * len(indices), marker=marker, s=40, color=color, zorder=3, label=name
            )
            picture.label(drawn, [f"{_target(turns[i])}: {turns[i].reason}" for i in indices])


def _rows(turns: Sequence[Decision], at_s: Any) -> list[tuple[str, ...]]:
    """Return one row for each sequence of turns with the same decision and reason."""
    rows: list[tuple[str, ...]] = []
    index = 0
    for _, group in groupby(turns, key=lambda turn: (turn.kind, turn.stage, turn.reason, turn.target, turn.applied)):
        turn, *rest = group
        result = "" if turn.applied is None else "applied" if turn.applied else turn.error or "not applied"
        kind = "skipped" if turn.kind == "blind" else turn.kind
        rows.append((format_seconds(at_s[index]), str(1 + len(rest)), kind, _target(turn), turn.reason, result))
        index += 1 + len(rest)
    return rows[-MAX_ROWS:]


def _target(turn: Decision) -> str:
    if turn.kind != "adjust":
        return "–"
    changes = [turn.target.describe()] if turn.target else []
    if turn.migrate:
        changes.append(f"{', '.join(turn.migrate)} migrated")
    if turn.rebalance:
        changes.append("look-ups rebalanced")
    return "; ".join(changes)
