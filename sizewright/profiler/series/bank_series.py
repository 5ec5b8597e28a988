"""Measure the trial bank: one session per job, in two passes, resumable."""

from __future__ import annotations

import json
import os
import platform
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from sizewright.datasets.trial_bank.card import Card
from sizewright.datasets.trial_bank.files import save_bank
from sizewright.datasets.trial_bank.shapes import BankJob, bank_jobs
from sizewright.datasets.trials.store import TrialStore
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import MissingExtraError, StoreError
from sizewright.formatting import format_percent
from sizewright.profiler.measure.measure import Timing
from sizewright.profiler.measure.quiet import MAX_OTHER_CORES, QuietMeasure
from sizewright.profiler.series._base import TrialPoint
from sizewright.profiler.series.bank_points import first_points, repeated_points
from sizewright.profiler.series.series import Measure, is_at, run_series
from sizewright.profiler.series.space_filling import QueuePlanner
from sizewright.spec._json import loads
from sizewright.spec._paths import absolute
from sizewright.spec._text_files import MAX_JSON_MIB, read_file

STORE, HOST = "trials.db", "host.json"
TIMING = Timing(min_s=2.0, max_s=3.0, min_steps=4)
MAX_ATTEMPTS = 3
_REPEATED_JOBS = 6  # every sixth job is measured again
_PACKAGES = ("numpy", "torch", "ray")

OpenSession = Callable[[BankJob, Sequence[TrialPoint]], AbstractContextManager[Any]]


class BankSeries(NamedTuple):
    """The points of one job in one pass."""

    name: str
    bank_job: BankJob
    points: list[TrialPoint]


class BankStep(NamedTuple):
    """A measured trial of a job, and the progress: `done` of `total` trials."""

    job: str
    trial: Trial
    done: int
    total: int


class _RetryPlanner(QueuePlanner):
    """A queue that repeats void trials, up to `MAX_ATTEMPTS` times."""

    def __init__(self, points: Sequence[TrialPoint]) -> None:
        super().__init__(points)
        self._attempts: Counter[TrialPoint] = Counter()

    def tell(self, point: TrialPoint, trial: Trial) -> None:
        """Record a trial; append its point to the queue if it is void."""
        super().tell(point, trial)
        self._attempts[point] += 1
        if trial.status == "void" and self._attempts[point] < MAX_ATTEMPTS:
            self._queue.append(point)


def all_series(jobs: Sequence[BankJob] | None = None) -> list[BankSeries]:
    """Return the first pass over all jobs in random order, then a second over some points of every sixth job."""
    numbered = list(enumerate(bank_jobs() if jobs is None else jobs))
    random.Random(0).shuffle(numbered)
    first = [BankSeries(f"first-{b.job.hash}", b, first_points(b, i)) for i, b in numbered]
    again = [
        BankSeries(f"again-{b.job.hash}", b, repeated_points(b, i)) for i, b in numbered if i % _REPEATED_JOBS == 0
    ]
    return first + again


def measure_bank(
    folder: str | Path,
    open_session: OpenSession,
    *,
    series: Sequence[BankSeries] | None = None,
    resume: bool = False,
    max_series: int | None = None,
    measure: Measure | None = None,
    progress: Callable[[BankStep], None] | None = None,
) -> Card:
    """Measure the missing trials, in at most `max_series` sessions, write the bank, and return its card.

    Every trial is saved to the folder at once. Raises StoreError if the folder contains trials and `resume` is false,
    or if they are from another host.
    """
    folder = Path(absolute(folder))
    planned = list(all_series() if series is None else series)
    host = _check_folder(folder, resume)
    total, done = sum(len(s.points) for s in planned), 0
    with TrialStore(folder / STORE) as store:
        measured = 0
        for each in planned:
            missing = _missing(each, store.trials(series=each.name))
            done += len(each.points) - len(missing)
            if not missing or measured == max_series:
                continue
            measured += 1
            with open_session(each.bank_job, missing) as session:
                steps = run_series(
                    session, _RetryPlanner(missing), store, each.name, timing=TIMING, measure=measure or QuietMeasure()
                )
                for step in steps:
                    done += step.trial.status != "void"
                    if progress:
                        progress(BankStep(each.bank_job.job.name, step.trial, done, total))
            card = _save(folder, store, planned, host)
        return card if measured else _save(folder, store, planned, host)


def open_session(bank_job: BankJob, points: Sequence[TrialPoint]) -> AbstractContextManager[Any]:
    """Open a session of the real engine, with as many replicas loaded as the points need at most."""
    from sizewright.training.session import Session

    session = Session(bank_job.job)
    try:
        queue = QueuePlanner(points)
        session.load_ahead(workers=queue.max_replicas("worker"), ps=queue.max_replicas("ps"))
    except BaseException:
        session.stop()
        raise
    return session


def _missing(series: BankSeries, finished: Sequence[Trial]) -> list[TrialPoint]:
    """Return the points without a trial; a failed trial counts, a void one does not."""
    results = [trial for trial in finished if trial.status != "void"]
    return [point for point in series.points if not any(is_at(trial, point) for trial in results)]


def _save(folder: Path, store: TrialStore, planned: Sequence[BankSeries], host: Mapping[str, Any]) -> Card:
    trials = store.trials()
    kept = [t.model_copy(update={"host": None}) for t in trials if t.status != "void"]
    discarded = Counter(t.message or "" for t in trials if t.status == "void")
    jobs = list({series.bank_job.job.hash: series.bank_job for series in planned}.values())
    measured = {t.job_hash for t in kept}
    about: dict[str, Any] = {
        "host": host,
        "how": {
            "cores": "CFS quota of a control group for each replica, period 20 ms",
            "memory": "control groups; twice what is predicted, and at least 1 GiB for a PS",
            "timing": f"{TIMING.warm_up_s} s to warm up, then {TIMING.min_s} to {TIMING.max_s} s, until the "
            f"standard error is below {format_percent(TIMING.target_se, 1)}; at least {TIMING.min_steps} steps of each "
            "worker",
            "order": "random over jobs and within each; a session of its own for each job and pass",
            "passes": "`first`: all allocations; `again`: some of every sixth job once more, after all others",
            "void": f"trials during which other work used more than {MAX_OTHER_CORES} cores",
        },
        "measured_from": min((t.started_at for t in kept if t.started_at), default=None),
        "measured_to": max((t.started_at for t in kept if t.started_at), default=None),
        "measured_s": round(sum(t.duration_s or 0.0 for t in kept)),
        "failed": sum(not t.usable for t in kept),
        "discarded": [{"reason": reason, "trials": count} for reason, count in discarded.items()],
        "repeated": sum((t.series or "").startswith("again") for t in kept),
    }
    card = {key: value.isoformat() if hasattr(value, "isoformat") else value for key, value in about.items()}
    return save_bank(folder, kept, [job for job in jobs if job.job.hash in measured], card)


def _check_folder(folder: Path, resume: bool) -> dict[str, Any]:
    """Create the folder, or check that its bank can be resumed on this host; return a description of the host."""
    host: dict[str, Any] = {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {package: _version(package) for package in _PACKAGES},
    }
    host_file = folder / HOST
    try:
        if not host_file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise StoreError(f"{folder} already contains other files.", "Choose a new or empty folder.")
            host_file.write_text(json.dumps({**host, "name": platform.node()}) + "\n", encoding="utf-8")
            return host
        if not resume:
            raise StoreError(f"{folder} already contains a bank.", "Continue with --resume, or choose another folder.")
        before = dict(loads(read_file(host_file, MAX_JSON_MIB).decode()))
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(f"{folder} cannot be used for a bank: {error}.", "Choose a new folder.") from None
    differs = [key for key, value in {**host, "name": platform.node()}.items() if before.get(key) != value]
    if differs:
        raise StoreError(
            f"The bank in {folder} was started on another host ({', '.join(differs)} differ).",
            "Continue on that host, or measure another bank in another folder.",
        )
    return host


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        raise MissingExtraError("profile", package) from None
