"""One start of a command, with all its replicas and their reports."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from sizewright.errors import NoReportsError, ReplicaDiedError, SizewrightError, TrialTimeoutError
from sizewright.formatting import format_count
from sizewright.spec import ROLES, Allocation, Job, ReplicaMetrics, Role
from sizewright.training.command.local_launcher import LocalLauncher
from sizewright.training.command.ray_launcher import RayLauncher, RayReplica
from sizewright.training.command.rendezvous import make_start
from sizewright.training.command.replica import CommandReplica, ReplicaObservation
from sizewright.training.command.reports import Report

_POLL_S = 0.05
_REPORTS_OF_ONE = 3
_GRACE_SYNC_S = 5.0
_GRACE_ASYNC_S = 45.0  # TensorFlow's workers check only every 30 s whether the first has begun
_MAX_REPORTS = 20_000
_HOW = {
    "log_samples": "call sizewright.log_samples(n) in it, or set command.progress to json or a pattern",
    "json": 'print lines such as {"samples": 512}, with all samples so far',
    "regex": "print lines that command.progress.pattern matches",
}


class Run:
    """Runs the replicas of one allocation. It is not thread-safe."""

    def __init__(self, job: Job, allocation: Allocation, place: LocalLauncher | RayLauncher, folder: Path) -> None:
        assert job.command is not None
        self.allocation, self.folder = allocation, folder
        self._job, self._command = job, job.command
        self._replicas: list[CommandReplica | RayReplica] = []
        self._observations: list[ReplicaObservation] = []
        self._reports: dict[str, list[Report]] = {}
        self._place = place

    def start(self, env: Mapping[str, str]) -> None:
        """Start every replica. Raise JobError if the command cannot be started."""
        sizes = [(role, i, size) for role in ROLES for i, size in enumerate(self.allocation.each(role))]
        slots = [self._place.slot(*each) for each in sizes]
        for slot in slots:
            replica = self._place.replica(self._job, slot, self.allocation.batch_size, self.folder)
            self._replicas.append(replica)
            start = make_start(self._job, slots, slot, self.allocation)
            replica.start(start._replace(env={**self._place.device_env(slots, slot), **start.env, **env}))

    def hold(self) -> None:
        """Set the CPU limits of all replicas."""
        for replica in self._replicas:
            replica.hold()

    def observe(self) -> None:
        """Update the state of all replicas. Raise ReplicaDiedError if one has failed."""
        self._read()
        if not self.finished:
            pairs = zip(self._replicas, self._observations, strict=True)
            deaths = [replica.why() for replica, each in pairs if each.exit_code]
            if deaths:  # a rank that ran out of memory ends the others, which may be seen first
                why = next((death for death in deaths if death.oom_memory), deaths[0])
                raise ReplicaDiedError(why.message, why.remedy, oom_memory=why.oom_memory)

    def _read(self) -> None:
        now = time.monotonic()
        self._observations = [replica.observe() for replica in self._replicas]
        for replica, each in self._trainers():
            reports = self._reports.setdefault(replica.slot.name, [])
            reports += [Report(now + report.at_s, report.samples) for report in each.reports]
            del reports[:-_MAX_REPORTS]

    def check_silence(self) -> None:
        """Raise TrialTimeoutError if nothing was reported for too long."""
        last_report_at = {name: reports[-1].at_s for name, reports in self._reports.items() if reports}
        name = (min if self._each_reports else max)(last_report_at, key=lambda name: last_report_at[name], default="")
        silent_s = time.monotonic() - last_report_at.get(name, time.monotonic())
        if silent_s > self._command.silent_s and not self._succeeded(name) and not self.finished:
            who = name if self._each_reports else "The command"
            message = f"{who} has reported nothing for {silent_s:.0f} s and is taken to hang."
            raise TrialTimeoutError(message + self._nonsense() + self._last_lines(name), self._where())

    def await_reports(self) -> None:
        """Wait until every worker has reported, or any replica if a chief or one worker reports for all.

        Raise NoReportsError if the command ends or goes on without reports, or if only some workers report.
        """
        began = time.monotonic()
        while True:
            self.observe()
            silent = [name for name, reports in self._reports.items() if not reports]
            some_report = len(silent) < len(self._reports)
            if not silent or (some_report and (not self._each_reports or self.finished)):
                return
            who = silent[0] if self._each_reports and len(self._reports) > 1 else "The command"
            if self.finished:
                raise self._no_reports(f"{who} ended and reported no samples.", silent[0], recurs=some_report)
            if reporting := self._reporting_alone(began):
                verb = "do" if len(silent) > 1 else "does"
                message = f"{reporting} reports samples and {', '.join(silent)} {verb} not."
                raise self._no_reports(message, silent[0], recurs=True)
            if time.monotonic() - began > self._command.start_s:
                raise self._no_reports(f"{who} reported no samples within {self._command.start_s:g} s.", silent[0])
            time.sleep(_POLL_S)

    def _reporting_alone(self, began: float) -> str:
        """Return the first worker that reports, once the others have had twice that time; empty until then."""
        reporting = {name: reports for name, reports in self._reports.items() if len(reports) >= _REPORTS_OF_ONE}
        first = min(reporting, key=lambda name: reporting[name][0].at_s, default="")
        is_sync = self._command.rendezvous == "torchrun" or self._job.training.sync == "sync"
        grace_s = _GRACE_SYNC_S if is_sync else _GRACE_ASYNC_S
        if first and time.monotonic() > began + 2 * (reporting[first][0].at_s - began) + grace_s:
            return first
        return ""

    @property
    def finished(self) -> bool:
        """Return whether the command has succeeded: its chief, or without a chief all workers."""
        role: Role = "chief" if self._has("chief") else "worker"
        codes = [each.exit_code for each in self._observations if each.metrics.role == role]
        return bool(codes) and all(code == 0 for code in codes)

    @property
    def metrics(self) -> tuple[ReplicaMetrics, ...]:
        """The metrics of all replicas at the last `observe`."""
        return tuple(each.metrics for each in self._observations)

    @property
    def samples(self) -> int:
        """The total number of reported samples."""
        counts = [each.metrics.samples for _, each in self._trainers()]
        return max(counts, default=0) if self._command.progress.counts == "job" else sum(counts)

    @property
    def counts_from_zero(self) -> bool:
        """Return whether the counts restart at 0 with each start."""
        return self._command.progress.source == "log_samples" or any(
            each.counts_from_zero for each in self._observations
        )

    @property
    def orphan_note(self) -> str:
        """A sentence on processes that replicas have left running, empty if there are none."""
        counts = {r.slot.name: each.orphans for r, each in zip(self._replicas, self._observations, strict=True)}
        return " ".join(
            f"{name} left {format_count(count, 'process', 'processes')} behind, now ended."
            for name, count in counts.items()
            if count
        )

    def series(self) -> list[list[Report]]:
        """Return the reports of each replica, on this host's monotonic clock.

        If each replica counts for the whole job, the result has the reports of one alone.
        """
        series = [list(reports) for reports in self._reports.values() if reports]
        if series and self._command.progress.counts == "job":
            return [max(series, key=lambda reports: reports[-1].samples)]
        return series

    def end(self, grace_s: float) -> None:
        """Ask all replicas to end, so that they may write a checkpoint, and kill them after `grace_s`.

        The samples that they report until they end are counted.
        """
        try:
            if grace_s and not self.finished:
                for replica in self._replicas:
                    replica.terminate()
                deadline = time.monotonic() + grace_s
                while time.monotonic() < deadline and not all(replica.ended() for replica in self._replicas):
                    time.sleep(_POLL_S)
                with contextlib.suppress(SizewrightError):  # where Ray is gone, the last count stays
                    self._read()
        finally:  # also after an interrupt
            for replica in self._replicas:
                replica.kill()

    @property
    def _each_reports(self) -> bool:
        """Return whether every worker must report: there is no chief that may do so for all."""
        return self._command.progress.counts == "replica" and not self._has("chief")

    def _trainers(self) -> Iterator[tuple[CommandReplica | RayReplica, ReplicaObservation]]:
        """Yield the replicas whose samples count, and their last states."""
        for replica, each in zip(self._replicas, self._observations, strict=True):
            if replica.slot.role in ("chief", "worker"):
                yield replica, each

    def _succeeded(self, name: str) -> bool:
        return any(replica.slot.name == name and each.exit_code == 0 for replica, each in self._trainers())

    def _has(self, role: Role) -> bool:
        return any(replica.slot.role == role for replica in self._replicas)

    def _no_reports(self, message: str, name: str, *, recurs: bool = False) -> NoReportsError:
        """Return the error for missing reports, with the expected form of reports and the replica's output."""
        how = f" Let it {_HOW[self._command.progress.source]}"
        how += "; or set command.progress.counts to job, if one reports for all." if name != "worker-0" else "."
        if recurs:
            how = " Set command.progress.counts to job, if it reports for all; else let each worker report."
        return NoReportsError(message + self._nonsense() + how + self._last_lines(name), self._where(), recurs=recurs)

    def _nonsense(self) -> str:
        return next((f" It said: {each.nonsense}" for each in self._observations if each.nonsense), "")

    def _last_lines(self, name: str) -> str:
        """Return the last lines of the replica that should have reported."""
        return next(replica for replica, _ in self._trainers() if replica.slot.name == name).last_lines()

    def _where(self) -> str:
        return f"Its logs: {self.folder}"
