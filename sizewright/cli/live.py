"""What a person sees of a running job: how far it is, at what, what was decided and why, and where it is going."""

from __future__ import annotations

import time
from collections import deque
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from sizewright.cli.bars import new_bar
from sizewright.cli.layout import DataTable
from sizewright.how_far import heard_by
from sizewright.spec.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from sizewright.executors.run import RunProgress
    from sizewright.recommender.decisions import Decision
    from sizewright.spec import Recommendation

_MOST_SHOWN = 6
_SPARKS = "▁▂▃▄▅▆▇█"
_MOST_SPARKS = 60


class LiveView:
    """On `console` while it is entered. On one that is no terminal, changes are told as lines, and nothing is drawn."""

    def __init__(self, console: Console, total: int | None = None) -> None:
        self._console = console
        self._bar = new_bar(console)
        self._task = self._bar.add_task("starting", total=total)
        self._rates: deque[float] = deque(maxlen=_MOST_SPARKS)
        self._told: deque[Decision] = deque(maxlen=_MOST_SHOWN)
        self._latest: Decision | None = None
        self._last: RunProgress | None = None
        self._live = Live(self._drawn(), console=console, refresh_per_second=4)
        self._stack = ExitStack()

    def __enter__(self) -> LiveView:
        self._stack.enter_context(heard_by(self._heard))
        if self._console.is_interactive:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._live.stop()
        if self._last and not self._console.is_interactive:
            self._console.print(describe(self._last), soft_wrap=True)

    def sized(self, found: Recommendation) -> None:
        """What the job is launched at, and what that rests on."""
        if found.target is not None:
            self._console.print(f"Sized: {found.target.describe()}", style="bold")
        for reason in found.reasons:
            self._console.print(f"• {reason}")

    def progressed(self, now: RunProgress) -> None:
        """Another look at the job."""
        if now.paused != (self._last is not None and self._last.paused):
            self._console.print("The control loop is paused." if now.paused else "The control loop goes on.")
        self._last = now
        self._bar.update(self._task, completed=now.samples, description=describe(now))
        if now.samples_left is not None:
            left_s = now.samples_left / now.samples_per_s if now.samples_per_s > 0 else None
            ends_at = None if left_s is None else time.monotonic() + left_s
            self._bar.update(self._task, total=now.samples + now.samples_left, ends_at=ends_at)
        self._rates.append(now.samples_per_s)
        self._draw()

    def decided(self, decision: Decision) -> None:
        """A turn of its control loop."""
        self._latest = decision
        if not self._told or _is_new(decision, self._told[-1]):
            self._told.append(decision)
            if not self._console.is_interactive and decision.kind == "adjust":
                self._console.print(f"{_when(decision.at)} {told(decision)}", soft_wrap=True)
        self._draw()

    def _heard(self, what: str, done: float, total: float) -> None:
        """What is done before it runs."""
        if self._last is None:
            self._bar.update(self._task, description=f"{what}, {done / total:.0%}")

    def _draw(self) -> None:
        if self._console.is_interactive:
            self._live.update(self._drawn())

    def _drawn(self) -> RenderableType:
        parts: list[RenderableType] = [self._bar]
        if any(self._rates):
            room = max(1, self._console.width - len("samples/s  "))
            parts.append(Text(f"samples/s  {sparks(list(self._rates)[-room:])}", style="cyan", no_wrap=True))
        if self._latest:
            parts += [Text(f"at         {self._latest.allocation.describe()}"), Text(_going(self._latest))]
        if self._told:
            parts.append(_table(list(self._told)))
        return Group(*parts)


def describe(now: RunProgress) -> str:
    """How far a job is, in a few words."""
    return f"{now.samples:,} samples, {now.samples_per_s:,.0f}/s, {format_count(now.workers, 'worker')} + {now.ps} PS"


def told(decision: Decision) -> str:
    """A decision in a sentence or two."""
    if decision.kind == "adjust" and decision.applied is False:
        return f"It could not be changed: {decision.error} ({decision.reason})"
    if decision.kind == "adjust" and decision.applied is None:
        return f"It would be changed: {decision.reason}"
    return f"It was changed: {decision.reason}" if decision.kind == "adjust" else decision.reason


def sparks(values: list[float]) -> str:
    """A line as high as the values; from 0."""
    most = max(values) or 1.0
    return "".join(_SPARKS[min(len(_SPARKS) - 1, int(value / most * len(_SPARKS)))] for value in values)


def _going(decision: Decision) -> str:
    going = decision.forecast
    parts = [] if going.finish_s is None else [f"done in {format_seconds(going.finish_s)}"]
    if going.ps_peak_bytes:
        memory = f"fullest PS {format_bytes(going.ps_peak_bytes)}"
        if going.ps_peak_at_end_bytes:
            memory += f", at the end at most {format_bytes(going.ps_peak_at_end_bytes)}"
        parts.append(memory + (f" of {format_bytes(going.ps_limit_bytes)}" if going.ps_limit_bytes else ""))
    return f"forecast   {'; '.join(parts) or 'nothing yet'}"


def _table(decisions: list[Decision]) -> DataTable:
    table = DataTable("", "", "", "", text=("",))
    for decision in decisions:
        style = "bold green" if decision.applied else "yellow" if decision.kind != "keep" else "dim"
        table.add_row(_when(decision.at), decision.kind, told(decision), styles=("dim", style))
    return table


def changes_table(decisions: list[Decision]) -> DataTable:
    """Every change that was made or wanted, one that was wanted again and again once."""
    changes = [decision for decision in decisions if decision.kind == "adjust"]
    return _table([one for one, last in zip(changes, [None, *changes], strict=False) if not last or _is_new(one, last)])


def _is_new(decision: Decision, last: Decision) -> bool:
    """Whether it says more than the last that was told."""
    if decision.kind == last.kind == "adjust":
        return decision.applied is not None or not decision.wants_as(last)
    return decision.kind == "adjust" or _words(decision.reason) != _words(last.reason)


def _words(reason: str) -> list[str]:
    """A reason without its numbers: one that differs by those only is not told anew."""
    return [word for word in reason.split() if not any(letter.isdigit() for letter in word)]


def _when(at: datetime) -> str:
    return f"{at.astimezone():%H:%M:%S}"
