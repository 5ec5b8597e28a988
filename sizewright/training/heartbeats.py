"""Asks every replica again and again whether it is there. One that does not answer is ended, as any that has died."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_EVERY_S = 0.5
_LOG = logging.getLogger(__name__)


@dataclass
class _Asked:
    ref: Any
    since_s: float


class Heartbeats:
    """Calls `end` for what has not answered for `limit_s`, and `lost` once when Ray itself has gone.

    Replicas watch the session the same way through Ray, which ends them with it. A session that is stopped for a while
    goes on: replicas train what they have leased and wait, and while this process does not run nobody counts as silent.
    """

    def __init__(
        self,
        watched: Callable[[], Sequence[Any]],
        *,
        beat: Callable[[Any], Any],
        answered: Callable[[Sequence[Any], float], Sequence[Any]],
        end: Callable[[Any], None],
        engine_alive: Callable[[], bool],
        lost: Callable[[], None],
        limit_s: float,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._watched, self._beat, self._answered, self._end = watched, beat, answered, end
        self._engine_alive, self._lost, self._limit_s = engine_alive, lost, limit_s
        self._clock = clock or time.monotonic
        self._asked: dict[Any, _Asked] = {}
        self._looked_s = self._clock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Look from now on, every half second or four times within the limit."""
        self._thread = threading.Thread(target=self._run, daemon=True, name="heartbeats")
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=10)

    def look(self) -> None:
        """Ask those who have nothing to answer, hear who has answered, and end who is silent for too long."""
        now = self._clock()
        slept = now - self._looked_s > self._limit_s / 2
        self._looked_s = now
        present = list(self._watched())
        self._asked = {each: asked for each, asked in self._asked.items() if each in present}
        if slept:
            for asked in self._asked.values():
                asked.since_s = now
        for each in present:
            if each not in self._asked:
                self._asked[each] = _Asked(self._beat(each), now)
        there = set(self._answered([asked.ref for asked in self._asked.values()], 0.0))
        for each, asked in list(self._asked.items()):
            if asked.ref in there:
                del self._asked[each]
            elif now - asked.since_s > self._limit_s:
                del self._asked[each]
                self._end(each)

    def _run(self) -> None:
        while not self._stop.wait(min(_EVERY_S, self._limit_s / 4)):
            try:
                if not self._engine_alive():
                    self._lost()
                    return
                self.look()
            except Exception:  # such as of a Ray that goes at this moment: the next look tells
                _LOG.debug("a look at the replicas failed", exc_info=True)
