"""Long work tells how far it is. Whoever listens is shown it; without a listener nothing happens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
Listener = Callable[[str, float, float], None]
"""What is done, how much of it is done, and how much there is to do."""

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """What is told in this thread meanwhile goes to `listener`."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


def tell(what: str, done: float, total: float) -> None:
    """So much of it is done."""
    if listener := _listener.get():
        listener(what, done, total)


def steps(what: str, items: Collection[T]) -> Iterator[T]:
    """The items, one after the other; before each it is told how many are done."""
    for done, item in enumerate(items):
        tell(what, done, len(items))
        yield item
    if items:
        tell(what, len(items), len(items))


@contextmanager
def part(what: str, number: int, count: int) -> Iterator[None]:
    """What is told meanwhile is of one of `count` equal parts: before it `number` are done, and then one more."""
    whole = _listener.get()
    if whole is None:
        yield
        return
    whole(what, number, count)
    with heard_by(lambda _, done, total: whole(what, number + done / total, count)):
        yield
    whole(what, number + 1, count)
