"""Metrics of a Slurm job's replicas, read from the files that they write into its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, get_args

from sizewright.executors.slurm.commands import ComponentUsage
from sizewright.executors.slurm.sizes import components_of, rounded
from sizewright.executors.slurm.step import EXIT_FILE, OUTPUT_FILE, REPLICA_FILE, command_of
from sizewright.progress import Reading
from sizewright.spec import Allocation, Group, Metrics, Plan, ReplicaMetrics, Role
from sizewright.spec._json import loads
from sizewright.spec.metrics import LimitedBy
from sizewright.spec.units import is_count
from sizewright.training.command.reports import Reports, counters

_CHUNK_BYTES = 1 << 20
_MAX_LINE_BYTES = 1 << 16
"""Limit for the rest of a line that has not ended, such as that of a progress bar."""
_MAX_MESSAGE = 300


class _Replica(NamedTuple):
    role: Role
    number: int
    component: int
    folder: Path


class SlurmReplicas:
    """Reads the replicas of one start of a job repeatedly."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._command = command_of(plan.job)
        self._replicas = [
            _Replica(role, first + i, component, folder / f"{role}-{first + i}")
            for component, (role, first, group) in enumerate(components_of(plan))
            for i in range(group.replicas)
        ]
        self._progress: dict[Path, _ReplicaProgress] = {}

    @property
    def counts_from_zero(self) -> bool:
        """True if the job counts its samples from 0 at each start."""
        return self._command.progress.source == "log_samples" or any(
            progress.reports.counts_from_zero for progress in self._progress.values()
        )

    def samples(self) -> int:
        """Return the number of samples that the job reports."""
        counts = [self._reading(each).samples for each in self._replicas if each.role in ("worker", "chief")]
        counts_job = self._command.progress.counts == "job" and self._command.progress.source != "log_samples"
        return max(counts, default=0) if counts_job else sum(counts)

    def metrics(self, at_s: float, usage: Mapping[int, ComponentUsage]) -> Metrics:
        """Return the metrics of the replicas that run; `usage` is that of the tasks of each component."""
        running = [replica for replica in self._replicas if _is_running(replica.folder)]
        return Metrics(
            replicas=tuple(
                self._replica_metrics(each, at_s, usage.get(each.component, ComponentUsage())) for each in running
            ),
            allocation=self._allocation(running),
        )

    def failure(self) -> str:
        """Return a sentence on the first replica that failed; empty if none did."""
        for replica in self._replicas:
            code = _read(replica.folder / EXIT_FILE).strip()
            if code not in ("", "0"):
                output = replica.folder / OUTPUT_FILE
                last_line = _end_of(output).strip()[-_MAX_MESSAGE:].rsplit("\n", 1)[-1]
                message = f": {last_line}" if last_line else ""
                return f"{replica.folder.name} ended with exit code {code}{message}. Its log: {output}"
        return ""

    @property
    def finished(self) -> bool:
        """True if all workers, and the chief, have ended with exit code 0."""
        codes = [_read(each.folder / EXIT_FILE).strip() for each in self._replicas if each.role in ("worker", "chief")]
        return bool(codes) and all(code == "0" for code in codes)

    def _replica_metrics(self, replica: _Replica, at_s: float, usage: ComponentUsage) -> ReplicaMetrics:
        reading = self._reading(replica)
        return ReplicaMetrics(
            role=replica.role,
            index=replica.number,
            at_s=at_s,
            cpu_s=usage.cpu_s,
            throttled_s=0.0,
            memory_peak_bytes=usage.memory_bytes,
            limited_by=_limited_by(replica.folder),
            last_step_at_s=self._progress[replica.folder].reported_at_s,
            **counters(reading),
        )

    def _allocation(self, running: list[_Replica]) -> Allocation | None:
        """Return the allocation of the running replicas, or None if no worker runs."""
        groups: dict[Role, tuple[Group, ...]] = {}
        for number, component in enumerate(components_of(self._plan)):
            count = sum(replica.component == number for replica in running)
            if count:
                group = rounded(component.group).model_copy(update={"replicas": count})
                groups[component.role] = (*groups.get(component.role, ()), group)
        if "worker" not in groups:
            return None
        return Allocation(**groups, batch_size=self._plan.target.batch_size)

    def _reading(self, replica: _Replica) -> Reading:
        folder = replica.folder
        if folder not in self._progress:
            reports = Reports(self._command.progress, self._plan.target.batch_size, folder)
            self._progress[folder] = _ReplicaProgress(reports, folder)
        return self._progress[folder].read()


class _ReplicaProgress:
    """Follows what a replica reports, in its progress files or line by line in its output."""

    def __init__(self, reports: Reports, folder: Path) -> None:
        self.reports = reports
        self.reported_at_s = 0.0
        """The time of the last report in seconds since 1970, by the clock of the file system that all hosts share."""
        self._folder = folder
        self._offset = 0
        self._partial_line = b""

    def read(self) -> Reading:
        """Return the sum of all reports so far."""
        before = self.reports.last
        for line in self._new_lines():
            self.reports.line(line.decode(errors="replace").strip(), 0.0)
        self.reports.read_log()
        if self.reports.last != before:
            files = [path for path in self._folder.glob("[0-9]*") if is_count(path.name)]
            files = files or [self._folder / OUTPUT_FILE]
            self.reported_at_s = max(map(_modified_at, files), default=0.0)
        return self.reports.last

    def _new_lines(self) -> Iterator[bytes]:
        try:
            with (self._folder / OUTPUT_FILE).open("rb") as file:
                file.seek(self._offset)
                while chunk := file.read(_CHUNK_BYTES):
                    self._offset += len(chunk)
                    *lines, rest = (self._partial_line + chunk).split(b"\n")
                    self._partial_line = rest[-_MAX_LINE_BYTES:]
                    yield from lines
        except OSError:
            return


def _is_running(folder: Path) -> bool:
    return (folder / REPLICA_FILE).exists() and not (folder / EXIT_FILE).exists()


def _limited_by(folder: Path) -> LimitedBy:
    try:
        limited_by = loads(_read(folder / REPLICA_FILE))["limited_by"]
    except (ValueError, KeyError, TypeError):
        return "none"
    return limited_by if limited_by in get_args(LimitedBy) else "none"


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _end_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _MAX_LINE_BYTES))
            return file.read(_MAX_LINE_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
