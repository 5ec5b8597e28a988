"""The bar that verbs and the live view show: what is done, how far that is, and the time it took and has left."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from sizewright.spec.units import format_seconds

_BAR_WIDTH = 20


def new_bar(console: Console, *, transient: bool = False) -> Progress:
    """A task's field `ends_at` says when it is expected to end, by `time.monotonic`; None where nobody knows."""
    return Progress(
        _What(table_column=Column()), BarColumn(_BAR_WIDTH), TaskProgressColumn(), TimeElapsedColumn(), _TimeLeft(),
        console=console, transient=transient, redirect_stdout=False,
    )  # fmt: skip


class _What(ProgressColumn):
    """Cut short where there is no room, before anything else is."""

    def render(self, task: Task) -> Text:
        return Text(task.description, no_wrap=True, overflow="ellipsis")


class _TimeLeft(ProgressColumn):
    """Counts down between looks; what takes longer than it was expected to says nothing."""

    def render(self, task: Task) -> Text:
        ends_at = task.fields.get("ends_at")
        left = 0.0 if ends_at is None else ends_at - time.monotonic()
        told = f"{left:.0f} s" if left < 60 else format_seconds(left)
        return Text(f"{told} left" if left >= 1 else "", style="progress.remaining")
