"""The bar that verbs and the live view show: what is done, how far that is, and the time it took and has left."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TimeElapsedColumn
from rich.text import Text

from sizewright.spec.units import format_seconds

_BAR_WIDTH = 20
_BAR_AND_TIMES = _BAR_WIDTH + len(" 100% 0:00:00 59.9 min left")


def new_bar(console: Console, *, transient: bool = False) -> Progress:
    """A task's field `ends_at` says when it is expected to end, by `time.monotonic`; None where nobody knows."""
    return _Bar(
        BarColumn(_BAR_WIDTH), TaskProgressColumn(), TimeElapsedColumn(), _TimeLeft(),
        console=console, transient=transient, redirect_stdout=False,
    )  # fmt: skip


class _Bar(Progress):
    """What is done stands before the bar, or above it where there is no room beside it; without room for the bar, the
    times stand alone."""

    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.tasks:
            bar: RenderableType = self.make_tasks_table([task])
            if self.console.width < _BAR_AND_TIMES:
                times = (column(task) for column in self.columns[1:] if isinstance(column, ProgressColumn))
                bar = Text(" ").join(text for text in times if isinstance(text, Text))
            if cell_len(task.description) + _BAR_AND_TIMES <= self.console.width:
                yield Columns([Text(task.description), bar])
            else:
                yield from (Text(task.description), bar)


class _TimeLeft(ProgressColumn):
    """Counts down between looks; what takes longer than it was expected to says nothing."""

    def render(self, task: Task) -> Text:
        ends_at = task.fields.get("ends_at")
        left = 0.0 if ends_at is None else ends_at - time.monotonic()
        told = f"{left:.0f} s" if left < 60 else format_seconds(left)
        return Text(f"{told} left" if left >= 1 else "", style="progress.remaining")
