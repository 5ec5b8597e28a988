"""The progress bar of verbs and of the live view: description, progress, elapsed and remaining time."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TimeElapsedColumn
from rich.text import Text

from sizewright.formatting import format_seconds

_BAR_WIDTH = 20
_BAR_AND_TIMES = _BAR_WIDTH + len(" 100% 0:00:00 59.9 min left")


def new_bar(console: Console, *, transient: bool = False) -> Progress:
    """Return a bar. The field `ends_at` of a task is its expected end by `time.monotonic`, or None if unknown."""
    columns = (BarColumn(_BAR_WIDTH), TaskProgressColumn(), TimeElapsedColumn(), _RemainingTime())
    return _Bar(*columns, console=console, transient=transient, redirect_stdout=False)


class _Bar(Progress):
    """The description is before the bar, or above it on a narrow terminal; a very narrow one shows the times only."""

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


class _RemainingTime(ProgressColumn):
    """Counts down between updates, and is empty once the expected end has passed."""

    def render(self, task: Task) -> Text:
        ends_at = task.fields.get("ends_at")
        remaining_s = 0.0 if ends_at is None else ends_at - time.monotonic()
        text = f"{remaining_s:.0f} s" if remaining_s < 60 else format_seconds(remaining_s)
        return Text(f"{text} left" if remaining_s >= 1 else "", style="progress.remaining")
