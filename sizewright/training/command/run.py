"""One start of a command: all its replicas, from the first process to the last, and what they report together."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from sizewright.errors import NoReportsError, ReplicaDiedError, TrialTimeoutError
from sizewright.spec import ROLES, Allocation, Job, ReplicaMetrics, Role
from sizewright.spec.units import format_count
from sizewright.training.command.here import Here
from sizewright.training.command.on_ray import OnRay, RayReplica
from sizewright.training.command.rendezvous import make_start
from sizewright.training.command.replica import CommandReplica, Look
from sizewright.training.command.reports import Report

_POLL_S = 0.05
_REPORTS_OF_ONE = 3
_STEP_TOGETHER_S, _START_APART_S = 5.0, 45.0  # workers of TensorFlow look every 30 s whether the first has begun
_ALL_KEPT = 20_000
_HOW = {
    "log_samples": "call sizewright.log_samples(n) in it, or set command.progress to json or a pattern",
    "json": 'print lines such as {"samples": 512}, with all samples so far',
    "regex": "print lines that command.progress.pattern matches",
}


class Run:
    """Replicas of one allocation. Not thread-safe."""

    def __init__(self, job: Job, allocation: Allocation, place: Here | OnRay, folder: Path) -> None:
        assert job.command is not None
        self.allocation, self.folder = allocation, folder
        self._job, self._command = job, job.command
        self._replicas: list[CommandReplica | RayReplica] = []
        self._looks: list[Look] = []
        self._told: dict[str, list[Report]] = {}
        self._place = place

    def start(self, env: Mapping[str, str]) -> None:
        """Start every replica. Raises JobError for a command that cannot be."""
        sizes = [(role, i, size) for role in ROLES for i, size in enumerate(self.allocation.each(role))]
        seats = [self._place.seat(*each) for each in sizes]
        batch_size = self.allocation.batch_size
        for seat in seats:
            replica = self._place.replica(self._job, seat, batch_size, self.folder)
            self._replicas.append(replica)
            start = make_start(self._job, seats, seat, batch_size)
            replica.start(start._replace(env={**start.env, **env}))

    def hold(self) -> None:
        """Put CPU limits on."""
        for replica in self._replicas:
            replica.hold()

    def look(self) -> None:
        """See what has changed. Raises for a replica that ended badly, and for silence."""
        now = time.monotonic()
        self._looks = [replica.look() for replica in self._replicas]
        for replica, look in self._trainers():
            told = self._told.setdefault(replica.seat.name, [])
            told += [Report(now + report.at_s, report.samples) for report in look.told]
            del told[:-_ALL_KEPT]
        if not self.finished:
            for replica, look in zip(self._replicas, self._looks, strict=True):
                if look.exit_code:
                    why = replica.why()
                    raise ReplicaDiedError(why.message, why.remedy, oom=why.oom)

    def check_silence(self) -> None:
        """Raises TrialTimeoutError when nothing was reported for too long."""
        heard = {name: told[-1].at_s for name, told in self._told.items() if told}
        name = (min if self._each_reports else max)(heard, key=lambda name: heard[name], default="")
        silent_s = time.monotonic() - heard.get(name, time.monotonic())
        if silent_s > self._command.silent_s and not self._ended_well(name) and not self.finished:
            who = name if self._each_reports else "The command"
            told = f"{who} has reported nothing for {silent_s:.0f} s and is taken to hang."
            raise TrialTimeoutError(told + self._nonsense() + self._last_lines(name), self._where())

    def await_reports(self) -> None:
        """Until every worker has reported; where a chief or one for all reports, until anybody has.

        Raises NoReportsError for a command that ends or goes on without, and where some report and others do not.
        """
        began = time.monotonic()
        while True:
            self.look()
            silent = [name for name, told in self._told.items() if not told]
            if not silent or (len(silent) < len(self._told) and (not self._each_reports or self.finished)):
                return
            who = silent[0] if self._each_reports and len(self._told) > 1 else "The command"
            if self.finished:
                some = len(silent) < len(self._told)
                raise self._silent(f"{who} ended and reported no samples.", silent[0], recurs=some)
            if heard := self._some_report(began):
                told = f"{heard} reports samples and {', '.join(silent)} {'do' if len(silent) > 1 else 'does'} not."
                raise self._silent(told, silent[0], recurs=True)
            if time.monotonic() - began > self._command.start_s:
                raise self._silent(f"{who} reported no samples within {self._command.start_s:g} s.", silent[0])
            time.sleep(_POLL_S)

    def _some_report(self, began: float) -> str:
        """The first worker that reports, once the others have had as long again; empty until then."""
        heard = {name: told for name, told in self._told.items() if len(told) >= _REPORTS_OF_ONE}
        first = min(heard, key=lambda name: heard[name][0].at_s, default="")
        together = self._command.rendezvous == "torchrun" or self._job.training.sync == "sync"
        grace_s = _STEP_TOGETHER_S if together else _START_APART_S
        if first and time.monotonic() > began + 2 * (heard[first][0].at_s - began) + grace_s:
            return first
        return ""

    @property
    def finished(self) -> bool:
        """Whether the command has ended well: its chief, or without one all workers."""
        role: Role = "chief" if self._has("chief") else "worker"
        codes = [look.exit_code for look in self._looks if look.metrics.role == role]
        return bool(codes) and all(code == 0 for code in codes)

    @property
    def metrics(self) -> tuple[ReplicaMetrics, ...]:
        """As of the last look."""
        return tuple(look.metrics for look in self._looks)

    @property
    def samples(self) -> int:
        """All samples reported."""
        counts = [look.metrics.samples for _, look in self._trainers()]
        return max(counts, default=0) if self._command.progress.counts == "job" else sum(counts)

    @property
    def counts_anew(self) -> bool:
        """Whether its counts begin at 0 with each start."""
        return self._command.progress.source == "log_samples" or any(look.counts_anew for look in self._looks)

    @property
    def left_behind(self) -> str:
        """What a replica that has ended has left running, in a sentence."""
        left = {r.seat.name: look.left_behind for r, look in zip(self._replicas, self._looks, strict=True)}
        return " ".join(
            f"{name} left {format_count(n, 'process', 'processes')} behind, now ended." for name, n in left.items() if n
        )

    def series(self) -> list[list[Report]]:
        """What each replica has reported, on this host's monotonic clock; of the whole job where one counts for it."""
        series = [list(told) for told in self._told.values() if told]
        return (
            [max(series, key=lambda told: told[-1].samples)]
            if series and self._command.progress.counts == "job"
            else series
        )

    def end(self, grace_s: float) -> None:
        """Ask all to end, for instance to write a checkpoint; after `grace_s` make them."""
        try:
            if grace_s and not self.finished:
                for replica in self._replicas:
                    replica.terminate()
                deadline = time.monotonic() + grace_s
                while time.monotonic() < deadline and not all(replica.ended() for replica in self._replicas):
                    time.sleep(_POLL_S)
        finally:  # an interrupt cuts the grace short, and nothing else
            for replica in self._replicas:
                replica.kill()

    @property
    def _each_reports(self) -> bool:
        """Whether every worker has to: there is no chief that may do so for all."""
        return self._command.progress.counts == "replica" and not self._has("chief")

    def _trainers(self) -> Iterator[tuple[CommandReplica | RayReplica, Look]]:
        """Those whose samples count, and how they looked last."""
        for replica, look in zip(self._replicas, self._looks, strict=True):
            if replica.seat.role in ("chief", "worker"):
                yield replica, look

    def _ended_well(self, name: str) -> bool:
        return any(replica.seat.name == name and look.exit_code == 0 for replica, look in self._trainers())

    def _has(self, role: Role) -> bool:
        return any(replica.seat.role == role for replica in self._replicas)

    def _silent(self, told: str, name: str, *, recurs: bool = False) -> NoReportsError:
        """How it should have reported, and what it said instead."""
        how = f" Let it {_HOW[self._command.progress.source]}"
        how += "; or set command.progress.counts to job, if one reports for all." if name != "worker-0" else "."
        if recurs:
            how = " Set command.progress.counts to job, if it reports for all; else let each worker report."
        return NoReportsError(told + self._nonsense() + how + self._last_lines(name), self._where(), recurs=recurs)

    def _nonsense(self) -> str:
        return next((f" It said: {look.nonsense}" for look in self._looks if look.nonsense), "")

    def _last_lines(self, name: str) -> str:
        """Of the replica that should have reported."""
        return next(replica for replica, _ in self._trainers() if replica.seat.name == name).last_lines()

    def _where(self) -> str:
        return f"Its logs: {self.folder}"
