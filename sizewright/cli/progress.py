"""How far a verb is: on a terminal a bar on stderr, with the time that is left; elsewhere nothing."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from sizewright.cli.output import stderr
from sizewright.how_far import heard_by

if TYPE_CHECKING:
    from rich.progress import Progress
    from typing_extensions import Self

_SHOWN_AFTER_S = 0.5
"""What is done by then shows no bar."""
_DRAWN_EVERY_S = 0.1


class Bar:
    """While it is entered, `text` is done; it is told of steps, and hears what the work itself tells."""

    def __init__(self, text: str, *, at_once: bool = False) -> None:
        self._text, self._after_s = text, 0.0 if at_once else _SHOWN_AFTER_S
        self._what, self._began, self._from, self._drawn = "", time.monotonic(), 0.0, 0.0
        self._console = stderr()
        self._bar: Progress | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(heard_by(self._heard))
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
        """So much of the work is done, `before` of it earlier than now; a `note` is shown instead of its name."""
        if self._bar is None:
            return
        now = time.monotonic()
        if what != self._what:
            self._begin(what, done, total, now)
        elif done < total and now < self._drawn + _DRAWN_EVERY_S:
            return
        self._drawn = now
        before = max(before, self._from)
        ends_at = now + (now - self._began) * (total - done) / (done - before) if done > before else None
        self._bar.update(self._task, description=note or what, completed=done, total=total, ends_at=ends_at)

    def _heard(self, what: str, done: float, total: float) -> None:
        self.at(what, done, total)
        if done >= total:
            self._begin(self._text, 0.0, 0.0, time.monotonic())

    def say(self, text: str) -> None:
        """What is being done now, where nobody knows how much there is of it."""
        if self._bar:
            self._bar.update(self._task, description=text)

    def line(self, text: str) -> None:
        """A line that stays, on a terminal or not."""
        self._console.print(text)

    def _begin(self, what: str, done: float, total: float, now: float) -> None:
        """The clock begins anew with other work; the first began with this, unless it says that it begins now."""
        if self._bar and self._what:
            self._bar.remove_task(self._task)
            self._task = self._bar.add_task(what, total=total or None)
        if self._what or not done:
            self._began, self._from = now, done
        self._what = what

    def _start(self, bar: Progress) -> None:
        if not self._after_s:
            bar.start()
            return
        starter = threading.Timer(self._after_s, bar.start)
        starter.daemon = True
        starter.start()
        self._stack.callback(starter.join)
        self._stack.callback(starter.cancel)
