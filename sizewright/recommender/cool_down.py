"""After a change a job is left alone for a while."""

from __future__ import annotations

from collections.abc import Callable


class CoolDown:
    """By a clock that may jump: one that goes back begins it anew, so that it never lasts longer than was said."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_s, self._lasts_s = 0.0, 0.0

    def begin(self, seconds: float) -> None:
        """From now on."""
        self._began_s, self._lasts_s = self._clock(), seconds

    @property
    def left_s(self) -> float:
        """Seconds to go, 0 or less when it is over."""
        now = self._clock()
        if now < self._began_s:
            self._began_s = now
        return self._lasts_s - (now - self._began_s)
