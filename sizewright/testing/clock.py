"""A clock that moves when told to."""

from __future__ import annotations

from typing import Protocol


class SleepingClock(Protocol):
    """Calling it gives seconds; `sleep` lets some pass."""

    def __call__(self) -> float: ...  # noqa: D102
    def sleep(self, seconds: float) -> None: ...  # noqa: D102


class ManualClock:
    """Stands still between calls of `sleep`, which takes no time of the caller's."""

    def __init__(self, at_s: float = 0.0) -> None:
        self.at_s = at_s

    def __call__(self) -> float:
        """Seconds."""
        return self.at_s

    def sleep(self, seconds: float) -> None:
        """Move on by so many `seconds`."""
        self.at_s += seconds
