"""What a control loop decided over time: the speed that it saw, what the job had, and each change with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from sizewright.errors import InputError
from sizewright.plots._base import COLORS, GREY, Picture, tidy, time_unit
from sizewright.recommender.decisions import Decision
from sizewright.spec import Role
from sizewright.spec.units import format_count, format_seconds

ROLES: tuple[tuple[Role, str], ...] = (("worker", "cores of workers"), ("ps", "cores of PS"))
MOST_ROWS = 200


def decided(decisions: Sequence[Decision]) -> Picture:
    """What `sizewright run --decisions` keeps of one run: samples/s at each turn; below it the cores that it trained
    with, and a mark for each change that was wanted, which tells its reason.

    Of several runs it is the last one. Raises InputError without a decision.
    """
    if not decisions:
        raise InputError("No decision was kept.", "Keep them: sizewright run JOB --decisions FILE.")
    turns = [turn for turn in decisions if turn.run == decisions[-1].run]
    began = turns[0].at
    at_s = np.array([(turn.at - began).total_seconds() for turn in turns])
    unit, name = time_unit(at_s[-1])
    picture = Picture(7.4, 4.8)
    upper, lower = picture.subplots(2, 1, sharex=True)
    seen = np.array([np.nan if turn.throughput is None else turn.throughput for turn in turns])
    upper.plot(at_s / unit, seen, color=COLORS[2], linewidth=1.6)
    for number, (role, title) in enumerate(ROLES):
        cores = [turn.allocation.cores(role) for turn in turns]
        if any(cores):
            lower.step(at_s / unit, cores, where="post", color=COLORS[number], linewidth=1.8, label=title)
    _changes(picture, lower, turns, at_s / unit)
    tidy(upper, ylabel="samples/s", ylim=(0, None))
    tidy(lower, ylabel="cores", xlabel=f"time since the first turn ({name})", ylim=(0, None))
    lower.legend(frameon=False, fontsize=8)
    picture.numbers = (("at", "turns", "decided", "to", "why", "became"), _rows(turns, at_s))
    wanted = [turn for turn in turns if turn.kind == "adjust"]
    blind = sum(turn.kind == "blind" for turn in turns)
    last = f" The last: {wanted[-1].reason.rstrip('.')}." if wanted else ""
    picture.alt = (
        f"{format_count(len(turns), 'turn')} in {format_seconds(at_s[-1])}; changes wanted: {len(wanted)}, "
        f"carried out: "
        f"{sum(bool(turn.applied) for turn in wanted)}; turns that saw nothing to trust: {blind}.{last}"
    )
    return picture


def _changes(picture: Picture, axes: Any, turns: Sequence[Decision], at: Any) -> None:
    """Marks along the time axis, of those that were carried out and of those that were not."""
    top = axes.get_ylim()[1]
    for applied, marker, color, name in ((True, "^", GREY, "change"), (False, "x", COLORS[4], "not carried out")):
        mine = [i for i, turn in enumerate(turns) if turn.kind == "adjust" and bool(turn.applied) == applied]
        if mine:
            drawn = axes.scatter(at[mine], [0.03 * top] * len(mine), marker=marker, s=40, color=color, zorder=3,
                                 label=name)  # fmt: skip
            picture.label(drawn, [f"{_target(turns[i])}: {turns[i].reason}" for i in mine])


def _rows(turns: Sequence[Decision], at_s: Any) -> list[tuple[str, ...]]:
    """One for each stretch of turns that decided the same for the same reason."""
    rows, number = list[tuple[str, ...]](), 0
    for _, same in groupby(turns, key=lambda turn: (turn.kind, turn.stage, turn.reason, turn.target, turn.applied)):
        stretch = list(same)
        turn = stretch[0]
        became = "" if turn.applied is None else "carried out" if turn.applied else turn.error or "not carried out"
        rows.append((format_seconds(at_s[number]), str(len(stretch)), turn.kind, _target(turn), turn.reason, became))
        number += len(stretch)
    return rows[-MOST_ROWS:]


def _target(turn: Decision) -> str:
    if turn.kind != "adjust":
        return "–"
    others = [f"{', '.join(turn.migrate)} elsewhere"] * bool(turn.migrate) + ["look-ups evened out"] * turn.rebalance
    return "; ".join([turn.target.describe(), *others] if turn.target else others)
