"""The live view of a running job: progress, allocation, decisions with reasons, and forecast."""

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
from sizewright.formatting import format_bytes, format_count, format_percent, format_seconds
from sizewright.task_progress import progress_listener

if TYPE_CHECKING:
    from sizewright.recommender.control.decisions import Decision
    from sizewright.runtime.run import RunProgress
    from sizewright.spec import Recommendation

_MAX_DECISIONS = 6
_SPARKS = "▁▂▃▄▅▆▇█"
_MAX_RATES = 60


class LiveView:
    """A view on `console`, drawn while the context is active. If it is not a terminal, changes are printed as lines."""

    def __init__(self, console: Console, total: int | None = None) -> None:
        self._console = console
        self._bar = new_bar(console)
        self._task = self._bar.add_task("starting", total=total)
        self._rates: deque[float] = deque(maxlen=_MAX_RATES)
        self._shown: deque[Decision] = deque(maxlen=_MAX_DECISIONS)
        self._latest: Decision | None = None
        self._last: RunProgress | None = None
        self._live = Live(self._drawn(), console=console, refresh_per_second=4)
        self._stack = ExitStack()

    def __enter__(self) -> LiveView:
        self._stack.enter_context(progress_listener(self._on_task_progress))
        if self._console.is_interactive:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._live.stop()
        if self._last and not self._console.is_interactive:
            self._console.print(describe(self._last), soft_wrap=True)

    def sized(self, answer: Recommendation) -> None:
        """Print the allocation that the job is launched with, and the reasons."""
        if answer.target is not None:
            self._console.print(f"Sized: {answer.target.describe()}", style="bold")
        for reason in answer.reasons:
            self._console.print(f"• {reason}")

    def progressed(self, now: RunProgress) -> None:
        """Show the progress of the job."""
        if now.paused != (self._last is not None and self._last.paused):
            self._console.print("The control loop is paused." if now.paused else "The control loop continues.")
        self._last = now
        self._bar.update(self._task, completed=now.samples, description=describe(now))
        if now.samples_left is not None:
            remaining_s = now.samples_left / now.samples_per_s if now.samples_per_s > 0 else None
            ends_at = None if remaining_s is None else time.monotonic() + remaining_s
            self._bar.update(self._task, total=now.samples + now.samples_left, ends_at=ends_at)
        self._rates.append(now.samples_per_s)
        self._draw()

    def on_decision(self, decision: Decision) -> None:
        """Show a decision of the control loop."""
        self._latest = decision
        if not self._shown or _is_new(decision, self._shown[-1]):
            self._shown.append(decision)
            if not self._console.is_interactive and decision.kind == "adjust":
                self._console.print(f"{_when(decision.at)} {describe_decision(decision)}", soft_wrap=True)
        self._draw()

    def _on_task_progress(self, what: str, done: float, total: float) -> None:
        """Show the progress of the work before the job runs."""
        if self._last is None:
            self._bar.update(self._task, description=f"{what}, {format_percent(done / total)}")

    def _draw(self) -> None:
        if self._console.is_interactive:
            self._live.update(self._drawn())

    def _drawn(self) -> RenderableType:
        parts: list[RenderableType] = [self._bar]
        if any(self._rates):
            room = max(1, self._console.width - len("samples/s  "))
            parts.append(Text(f"samples/s  {sparks(list(self._rates)[-room:])}", style="cyan", no_wrap=True))
        if self._latest:
            parts += [Text(f"at         {self._latest.allocation.describe()}"), Text(_forecast(self._latest))]
        if self._shown:
            parts.append(_table(list(self._shown)))
        return Group(*parts)


def describe(now: RunProgress) -> str:
    """Return the progress of a job in a few words."""
    return f"{now.samples:,} samples, {now.samples_per_s:,.0f}/s, {format_count(now.workers, 'worker')} + {now.ps} PS"


def describe_decision(decision: Decision) -> str:
    """Return a decision as one or two sentences."""
    if decision.kind != "adjust":
        return decision.reason
    if decision.applied is None:
        return f"Would change: {decision.reason}"
    if decision.applied:
        return f"Changed: {decision.reason}"
    return f"Could not change: {decision.error} ({decision.reason})"


def sparks(values: list[float]) -> str:
    """Return the values as a sparkline that starts at 0."""
    top = max(values) or 1.0
    return "".join(_SPARKS[min(len(_SPARKS) - 1, int(value / top * len(_SPARKS)))] for value in values)


def _forecast(decision: Decision) -> str:
    forecast = decision.forecast
    parts = [] if forecast.finish_s is None else [f"done in {format_seconds(forecast.finish_s)}"]
    if forecast.ps_peak_bytes:
        memory = f"fullest PS {format_bytes(forecast.ps_peak_bytes)}"
        if forecast.ps_peak_at_end_bytes:
            memory += f", at the end at most {format_bytes(forecast.ps_peak_at_end_bytes)}"
        parts.append(memory + (f" of {format_bytes(forecast.ps_limit_bytes)}" if forecast.ps_limit_bytes else ""))
    return f"forecast   {'; '.join(parts) or 'nothing yet'}"


def _table(decisions: list[Decision]) -> DataTable:
    table = DataTable("", "", "", "", text=("",))
    for decision in decisions:
        style = "bold green" if decision.applied else "yellow" if decision.kind != "keep" else "dim"
        table.add_row(_when(decision.at), decision.kind, describe_decision(decision), styles=("dim", style))
    return table


def changes_table(decisions: list[Decision]) -> DataTable:
    """Return a table of all changes, made or proposed; a repeated proposal appears once."""
    changes = [decision for decision in decisions if decision.kind == "adjust"]
    return _table(
        [change for change, last in zip(changes, [None, *changes], strict=False) if not last or _is_new(change, last)]
    )


def _is_new(decision: Decision, last: Decision) -> bool:
    """Return True if a decision says more than the last one that was shown."""
    if decision.kind == last.kind == "adjust":
        return decision.applied is not None or not decision.wants_as(last)
    return decision.kind == "adjust" or _words(decision.reason) != _words(last.reason)


def _words(reason: str) -> list[str]:
    """Return a reason without its numbers; reasons that differ by numbers only count as equal."""
    return [word for word in reason.split() if not any(letter.isdigit() for letter in word)]


def _when(at: datetime) -> str:
    return f"{at.astimezone():%H:%M:%S}"
