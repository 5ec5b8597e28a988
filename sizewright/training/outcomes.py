"""Keeps account of a session: when it began, what was changed, what failed."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sizewright.errors import SizewrightError
from sizewright.spec import Change, Failure, Outcome
from sizewright.training.account import Account
from sizewright.training.snapshots import Snapshots


class Ledger:
    """Times are seconds since `start`; `resumed` samples were trained before."""

    def __init__(self, resumed: int = 0) -> None:
        self._resumed = resumed
        self._began: float | None = None
        self._ended: float | None = None
        self._changes: list[Change] = []

    def start(self) -> None:
        """Training begins."""
        self._began = time.monotonic()

    def stop(self) -> None:
        """The session ends."""
        self._ended = self._ended or time.monotonic()

    def at_s(self) -> float:
        """Seconds since training began."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def changed(self, kind: str, seconds: float, description: str) -> None:
        """A change is done; it counts if training had begun before it, so that the launch is none."""
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
        """All of it so far."""
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
