"""Heartbeats, which find replicas that no longer answer and end them."""

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
class _PendingCall:
    ref: Any
    since_s: float
    restarted: bool = False
    """True once a delay of the checks has restarted the time of this call."""


class Heartbeats:
    """Calls `end` for replicas that have not answered for `limit_s`, and `lost` once when Ray itself has ended.

    In the other direction, Ray ends the replicas when the session ends. A session that is suspended for a while can
    continue: replicas train their leases and wait, and the time of the suspension does not count as silence. This holds
    once for each call, so that a silent replica is found even if every check is late.
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
        self._watched = watched
        self._beat = beat
        self._answered = answered
        self._end = end
        self._engine_alive = engine_alive
        self._lost = lost
        self._limit_s = limit_s
        self._clock = clock or time.monotonic
        self._pending: dict[Any, _PendingCall] = {}
        self._last_check_s = self._clock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start checking, every half second or four times within the limit."""
        self._thread = threading.Thread(target=self._run, daemon=True, name="heartbeats")
        self._thread.start()

    def stop(self) -> None:
        """Stop checking."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=10)

    def check(self) -> None:
        """Call replicas without a pending call, take the answers, and end replicas that were silent for too long."""
        now = self._clock()
        was_suspended = now - self._last_check_s > self._limit_s / 2
        self._last_check_s = now
        watched = list(self._watched())
        self._pending = {replica: call for replica, call in self._pending.items() if replica in watched}
        if was_suspended:
            for call in self._pending.values():
                if not call.restarted:
                    call.since_s, call.restarted = now, True
        for replica in watched:
            if replica not in self._pending:
                self._pending[replica] = _PendingCall(self._beat(replica), now)
        answered = set(self._answered([call.ref for call in self._pending.values()], 0.0))
        for replica, call in list(self._pending.items()):
            if call.ref in answered:
                del self._pending[replica]
            elif now - call.since_s > self._limit_s:
                del self._pending[replica]
                self._end(replica)

    def _run(self) -> None:
        while not self._stop.wait(min(_EVERY_S, self._limit_s / 4)):
            try:
                if not self._engine_alive():
                    self._lost()
                    return
                self.check()
            except Exception:  # for instance because Ray is ending, which the next check will find
                _LOG.debug("checking the replicas failed", exc_info=True)
