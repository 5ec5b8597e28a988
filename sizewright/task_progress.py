"""Report the progress of long tasks to a listener; without a listener nothing happens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
Listener = Callable[[str, float, float], None]
"""Called with the name of the task, the amount done, and the total amount."""

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def progress_listener(listener: Listener) -> Iterator[None]:
    """Send the progress that is reported in this thread within the context to `listener`."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


def report_progress(what: str, done: float, total: float) -> None:
    """Report that `done` of `total` is done."""
    if listener := _listener.get():
        listener(what, done, total)


def steps(what: str, items: Collection[T]) -> Iterator[T]:
    """Yield the items, and report before each how many are done."""
    for done, item in enumerate(items):
        report_progress(what, done, len(items))
        yield item
    if items:
        report_progress(what, len(items), len(items))


@contextmanager
def part(what: str, number: int, count: int) -> Iterator[None]:
    """Report progress within the context as progress of part `number` of `count` equal parts of a task."""
    listener = _listener.get()
    if listener is None:
        yield
        return
    listener(what, number, count)
    with progress_listener(lambda _, done, total: listener(what, number + done / total, count)):
        yield
    listener(what, number + 1, count)
