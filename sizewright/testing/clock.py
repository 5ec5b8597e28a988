"""A clock that tests move by hand."""

from __future__ import annotations

from typing import Protocol


class SleepingClock(Protocol):
    """A clock that returns seconds when called, and can sleep."""

    def __call__(self) -> float: ...  # noqa: D102
    def sleep(self, seconds: float) -> None: ...  # noqa: D102


class ManualClock:
    """A clock that only moves by `sleep`, which returns at once."""

    def __init__(self, at_s: float = 0.0) -> None:
        self.at_s = at_s

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.at_s

    def sleep(self, seconds: float) -> None:
        """Move the clock forward by `seconds`."""
        self.at_s += seconds
