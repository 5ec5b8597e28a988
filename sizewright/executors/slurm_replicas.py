"""Replicas of a Slurm job as they tell of themselves in its folder: samples, and whether they run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, get_args

from sizewright.executors.slurm_cli import Used
from sizewright.executors.slurm_sizes import groups_of, rounded
from sizewright.executors.slurm_step import EXIT_FILE, OUTPUT_FILE, REPLICA_FILE, own_command
from sizewright.progress import Reading
from sizewright.spec import Allocation, Group, Metrics, Plan, ReplicaMetrics, Role
from sizewright.spec._json import loads
from sizewright.spec.metrics import LimitedBy
from sizewright.spec.units import is_count
from sizewright.training.command.reports import Reports

_CHUNK = 1 << 20
_LAST = 300


class _Place(NamedTuple):
    role: Role
    number: int
    component: int
    group: Group
    folder: Path


class SlurmReplicas:
    """Of one start of a job, looked at again and again."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self._command = own_command(plan.job)
        self._places = [
            _Place(role, first + i, component, group, folder / f"{role}-{first + i}")
            for component, (role, first, group) in enumerate(groups_of(plan))
            for i in range(group.replicas)
        ]
        self._reports: dict[Path, _Followed] = {}

    @property
    def counts_anew(self) -> bool:
        """Whether its samples begin at 0 with each start."""
        return self._command.progress.source == "log_samples" or any(
            followed.reports.counts_anew for followed in self._reports.values()
        )

    def samples(self) -> int:
        """All that it has trained."""
        counts = [self._reading(place).samples for place in self._places if place.role in ("worker", "chief")]
        whole = self._command.progress.counts == "job" and self._command.progress.source != "log_samples"
        return max(counts, default=0) if whole else sum(counts)

    def look(self, at_s: float, used: Mapping[int, Used]) -> Metrics:
        """Of those that run; `used` tells by component what a task has used."""
        running = [place for place in self._places if _runs(place.folder)]
        return Metrics(
            replicas=tuple(self._metrics(place, at_s, used.get(place.component, Used())) for place in running),
            allocation=self._allocation(running),
        )

    def fault(self) -> str:
        """Of the first that ended badly, in a sentence; empty where none did."""
        for place in self._places:
            code = _text(place.folder / EXIT_FILE).strip()
            if code not in ("", "0"):
                said = _text(place.folder / OUTPUT_FILE).strip()[-_LAST:].rsplit("\n", 1)[-1]
                told = f"{place.folder.name} ended with exit code {code}" + (f": {said}" if said else "")
                return f"{told}. Its log: {place.folder / OUTPUT_FILE}"
        return ""

    @property
    def finished(self) -> bool:
        """Whether all workers, or the chief, have told that they ended well."""
        codes = [_text(p.folder / EXIT_FILE).strip() for p in self._places if p.role in ("worker", "chief")]
        return bool(codes) and all(code == "0" for code in codes)

    def _metrics(self, place: _Place, at_s: float, used: Used) -> ReplicaMetrics:
        reading = self._reading(place)
        return ReplicaMetrics(
            role=place.role, index=place.number, at_s=at_s, cpu_s=used.cpu_s, throttled_s=0.0,
            memory_peak_bytes=used.memory_bytes, limited_by=_limited_by(place.folder), steps=reading.steps,
            samples=reading.samples, last_step_at_s=self._reports[place.folder].told_at_s, data_s=reading.data_s,
            pull_s=reading.pull_s, compute_s=reading.compute_s, push_s=reading.push_s,
        )  # fmt: skip

    def _allocation(self, running: list[_Place]) -> Allocation | None:
        """What runs, group by group; none where no worker does."""
        told: dict[Role, tuple[Group, ...]] = {}
        for component, (role, _, group) in enumerate(groups_of(self.plan)):
            count = sum(place.component == component for place in running)
            if count:
                size = rounded(group).model_copy(update={"replicas": count})
                told[role] = (*told.get(role, ()), size)
        if "worker" not in told:
            return None
        return Allocation(**told, batch_size=self.plan.target.batch_size)

    def _reading(self, place: _Place) -> Reading:
        if place.folder not in self._reports:
            reports = Reports(self._command.progress, self.plan.target.batch_size, place.folder)
            self._reports[place.folder] = _Followed(reports, place.folder)
        return self._reports[place.folder].look()


class _Followed:
    """What a replica reports, in its own files or line by line of its output."""

    def __init__(self, reports: Reports, folder: Path) -> None:
        self.reports, self._folder = reports, folder
        self.told_at_s = 0.0
        """When it did so last: seconds since 1970, whichever host it is on."""
        self._read, self._rest = 0, b""

    def look(self) -> Reading:
        """All so far."""
        before = self.reports.last
        for line in self._lines():
            self.reports.line(line.decode(errors="replace").strip(), 0.0)
        self.reports.look()
        if self.reports.last != before:
            self.told_at_s = max((_changed(path) for path in self._progress_files()), default=0.0)
        return self.reports.last

    def _lines(self) -> Iterator[bytes]:
        try:
            with (self._folder / OUTPUT_FILE).open("rb") as file:
                file.seek(self._read)
                while chunk := file.read(_CHUNK):
                    self._read += len(chunk)
                    *whole, self._rest = (self._rest + chunk).split(b"\n")
                    yield from whole
        except OSError:
            return

    def _progress_files(self) -> list[Path]:
        told = [path for path in self._folder.glob("[0-9]*") if is_count(path.name)]
        return told or [self._folder / OUTPUT_FILE]


def _runs(folder: Path) -> bool:
    return (folder / REPLICA_FILE).exists() and not (folder / EXIT_FILE).exists()


def _limited_by(folder: Path) -> LimitedBy:
    try:
        told = loads(_text(folder / REPLICA_FILE))["limited_by"]
    except (ValueError, KeyError, TypeError):
        return "none"
    return told if told in get_args(LimitedBy) else "none"


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
