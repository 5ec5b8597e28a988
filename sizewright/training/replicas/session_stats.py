"""The statistics of a session: its duration, its changes and its outcome."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sizewright.errors import SizewrightError
from sizewright.spec import Change, Failure, Outcome
from sizewright.training.ps.snapshots import Snapshots
from sizewright.training.replicas.account import Account


class SessionStats:
    """Collects the statistics of a session.

    Times are seconds since `start`. `resumed` is the number of samples that an earlier run trained.
    """

    def __init__(self, resumed: int = 0) -> None:
        self._resumed = resumed
        self._began: float | None = None
        self._ended: float | None = None
        self._changes: list[Change] = []

    def start(self) -> None:
        """Record that training begins."""
        self._began = time.monotonic()

    def stop(self) -> None:
        """Record that the session ends."""
        self._ended = self._ended or time.monotonic()

    def at_s(self) -> float:
        """Return the seconds since training began."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def changed(self, kind: str, seconds: float, description: str) -> None:
        """Record a finished change; the launch does not count, since training had not begun before it."""
        at_s = self.at_s() - seconds
        if self._began is not None and at_s >= 0:
            self._changes.append(Change(at_s=at_s, kind=kind, seconds=seconds, description=description))

    def outcome(
        self,
        samples: int,
        finished: bool,
        gave_up: SizewrightError | None,
        failures: Sequence[Failure],
        snapshots: Snapshots,
        account: Account,
    ) -> Outcome:
        """Return the outcome so far."""
        status = "finished" if finished else "failed" if gave_up else "stopped" if self._ended else "running"
        end = self._ended or time.monotonic()
        return Outcome(
            status=status,
            message=str(gave_up or snapshots.fault),
            samples=samples,
            samples_resumed=self._resumed,
            duration_s=0.0 if self._began is None else end - self._began,
            samples_repeated=account.samples_repeated,
            updates_lost=account.updates_lost,
            failures=tuple(failures),
            changes=tuple(self._changes),
            snapshots=snapshots.written,
            snapshot_faults=snapshots.faults,
        )
