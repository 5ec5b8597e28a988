"""The progress bar of a verb, on stderr if that is a terminal, with the remaining time."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from sizewright.cli.output import stderr
from sizewright.task_progress import progress_listener

if TYPE_CHECKING:
    from rich.progress import Progress
    from typing_extensions import Self

_DELAY_S = 0.5
"""Work that is done within this time shows no bar."""
_MIN_INTERVAL_S = 0.1


class Bar:
    """A progress bar for the work `text`, shown while the context is active.

    It shows the steps that are passed to `at`, and those that the work itself reports.
    """

    def __init__(self, text: str, *, at_once: bool = False) -> None:
        self._text = text
        self._delay_s = 0.0 if at_once else _DELAY_S
        self._task_name = ""
        self._started = time.monotonic()
        self._first_done = 0.0
        self._updated = 0.0
        self._console = stderr()
        self._bar: Progress | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(progress_listener(self._on_task_progress))
        if self._console.is_interactive:
            from sizewright.cli.bars import new_bar

            self._bar = new_bar(self._console, transient=True)
            self._task = self._bar.add_task(self._text, total=None)
            self._stack.callback(self._bar.stop)
            self._start(self._bar)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def at(self, what: str, done: float, total: float, *, before: float = 0.0, note: str = "") -> None:
        """Show that `done` of `total` is done, `before` of it in an earlier run; a `note` replaces the name."""
        if self._bar is None:
            return
        now = time.monotonic()
        if what != self._task_name:
            self._begin(what, done, total, now)
        elif done < total and now < self._updated + _MIN_INTERVAL_S:
            return
        self._updated = now
        before = max(before, self._first_done)
        ends_at = now + (now - self._started) * (total - done) / (done - before) if done > before else None
        self._bar.update(self._task, description=note or what, completed=done, total=total, ends_at=ends_at)

    def _on_task_progress(self, what: str, done: float, total: float) -> None:
        self.at(what, done, total)
        if done >= total:
            self._begin(self._text, 0.0, 0.0, time.monotonic())

    def say(self, text: str) -> None:
        """Show what is being done, if the amount of work is unknown."""
        if self._bar:
            self._bar.update(self._task, description=text)

    def line(self, text: str) -> None:
        """Print a permanent line, on a terminal or not."""
        self._console.print(text)

    def _begin(self, what: str, done: float, total: float, now: float) -> None:
        """Start the bar of another task and its clock.

        The clock of the first task starts with this object, unless the task starts at 0.
        """
        if self._bar and self._task_name:
            self._bar.remove_task(self._task)
            self._task = self._bar.add_task(what, total=total or None)
        if self._task_name or not done:
            self._started, self._first_done = now, done
        self._task_name = what

    def _start(self, bar: Progress) -> None:
        if not self._delay_s:
            bar.start()
            return
        starter = threading.Timer(self._delay_s, bar.start)
        starter.daemon = True
        starter.start()
        self._stack.callback(starter.join)
        self._stack.callback(starter.cancel)
