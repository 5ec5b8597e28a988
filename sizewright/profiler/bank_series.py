"""Measuring the bank: a session for each job, in two passes, and going on where it was stopped."""

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

from sizewright.datasets.bank.card import Card
from sizewright.datasets.bank.files import save_bank
from sizewright.datasets.bank.shapes import BankJob, bank_jobs
from sizewright.datasets.store import TrialStore
from sizewright.datasets.trials import Trial
from sizewright.errors import MissingExtraError, StoreError
from sizewright.profiler._base import Point
from sizewright.profiler.bank_points import first_points, repeated_points
from sizewright.profiler.measure import Timing
from sizewright.profiler.quiet import MOST_OTHER_CORES, QuietMeasure
from sizewright.profiler.series import Measure, is_at, run_series
from sizewright.profiler.spread import QueuePlanner
from sizewright.spec._json import loads
from sizewright.spec._paths import absolute

STORE, HOST = "trials.db", "host.json"
TIMING = Timing(least_s=2.0, greatest_s=3.0, least_steps=4)
MOST_ATTEMPTS = 3
_REPEATED_JOBS = 6  # every sixth is measured again
_PACKAGES = ("numpy", "torch", "ray")

OpenSession = Callable[[BankJob, Sequence[Point]], AbstractContextManager[Any]]


class Series(NamedTuple):
    """One job in one pass."""

    name: str
    bank_job: BankJob
    points: list[Point]


class BankStep(NamedTuple):
    """One trial more: of which job, and `done` of `total` trials."""

    job: str
    trial: Trial
    done: int
    total: int


class _Again(QueuePlanner):
    """What was void is measured again, up to so often."""

    def __init__(self, points: Sequence[Point]) -> None:
        super().__init__(points)
        self._attempts: Counter[Point] = Counter()

    def tell(self, point: Point, trial: Trial) -> None:
        """Void ones go to the end."""
        super().tell(point, trial)
        self._attempts[point] += 1
        if trial.status == "void" and self._attempts[point] < MOST_ATTEMPTS:
            self._queue.append(point)


def all_series(jobs: Sequence[BankJob] | None = None) -> list[Series]:
    """The first pass over all jobs in random order, then some allocations of every sixth in other sessions."""
    numbered = list(enumerate(bank_jobs() if jobs is None else jobs))
    random.Random(0).shuffle(numbered)
    first = [Series(f"first-{b.job.hash}", b, first_points(b, i)) for i, b in numbered]
    again = [Series(f"again-{b.job.hash}", b, repeated_points(b, i)) for i, b in numbered if i % _REPEATED_JOBS == 0]
    return first + again


def measure_bank(
    folder: str | Path,
    open_session: OpenSession,
    *,
    series: Sequence[Series] | None = None,
    resume: bool = False,
    most_series: int | None = None,
    measure: Measure | None = None,
    progress: Callable[[BankStep], None] | None = None,
) -> Card:
    """Measure what is missing, at most `most_series` sessions of it, and write the bank; the answer is its card.

    Every trial is kept in the folder at once. Raises StoreError where the folder holds trials already and `resume` is
    not asked for, or those of another host.
    """
    folder = Path(absolute(folder))
    planned = list(all_series() if series is None else series)
    host = _check_folder(folder, resume)
    total, done = sum(len(s.points) for s in planned), 0
    with TrialStore(folder / STORE) as store:
        left = most_series
        for one in planned:
            missing = _missing(one, store.trials(series=one.name))
            done += len(one.points) - len(missing)
            if not missing or left == 0:
                continue
            left = left - 1 if left is not None else None
            with open_session(one.bank_job, missing) as session:
                steps = run_series(
                    session, _Again(missing), store, one.name, timing=TIMING, measure=measure or QuietMeasure()
                )
                for step in steps:
                    done += step.trial.status != "void"
                    if progress:
                        progress(BankStep(one.bank_job.job.name, step.trial, done, total))
            card = _save(folder, store, planned, host)
        return _save(folder, store, planned, host) if left == most_series else card


def open_session(bank_job: BankJob, points: Sequence[Point]) -> AbstractContextManager[Any]:
    """A session of the real engine, with as many replicas loaded as the points need at most."""
    from sizewright.training.session import Session

    session = Session(bank_job.job)
    try:
        most = QueuePlanner(points)
        session.load_ahead(workers=most.most("worker"), ps=most.most("ps"))
    except BaseException:
        session.stop()
        raise
    return session


def _missing(series: Series, finished: Sequence[Trial]) -> list[Point]:
    """What is still to be measured; a trial that failed is a result."""
    results = [trial for trial in finished if trial.status != "void"]
    return [point for point in series.points if not any(is_at(trial, point) for trial in results)]


def _save(folder: Path, store: TrialStore, planned: Sequence[Series], host: Mapping[str, Any]) -> Card:
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
            "timing": f"{TIMING.warm_up_s} s to warm up, then {TIMING.least_s} to {TIMING.greatest_s} s, until the "
            f"standard error is below {TIMING.target_se:.1%}; at least {TIMING.least_steps} steps of each worker",
            "order": "random over jobs and within each; a session of its own for each job and pass",
            "passes": "`first`: all allocations; `again`: some of every sixth job once more, after all others",
            "void": f"trials during which other work used more than {MOST_OTHER_CORES} cores",
        },
        "measured_from": min((t.started_at for t in kept if t.started_at), default=None),
        "measured_to": max((t.started_at for t in kept if t.started_at), default=None),
        "measured_s": round(sum(t.duration_s or 0.0 for t in kept)),
        "failed": sum(not t.usable for t in kept),
        "discarded": [{"reason": reason, "trials": count} for reason, count in discarded.items()],
        "repeated": sum((t.series or "").startswith("again") for t in kept),
    }
    told = {key: value.isoformat() if hasattr(value, "isoformat") else value for key, value in about.items()}
    return save_bank(folder, kept, [job for job in jobs if job.job.hash in measured], told)


def _check_folder(folder: Path, resume: bool) -> dict[str, Any]:
    """Makes the folder, or makes sure that it can be gone on with here; the answer describes this host."""
    here: dict[str, Any] = {
        "cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version(),
        "versions": {package: _version(package) for package in _PACKAGES},
    }  # fmt: skip
    told = folder / HOST
    try:
        if not told.exists():
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise StoreError(f"{folder} holds other files already.", "Name a folder that is new or empty.")
            told.write_text(json.dumps({**here, "name": platform.node()}) + "\n", encoding="utf-8")
            return here
        if not resume:
            raise StoreError(f"{folder} holds a bank already.", "Go on with --resume, or name another folder.")
        before = dict(loads(told.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(f"{folder} cannot be used for a bank: {error}.", "Name a folder that is new.") from None
    differs = [key for key, value in {**here, "name": platform.node()}.items() if before.get(key) != value]
    if differs:
        raise StoreError(
            f"The bank in {folder} was begun on another host ({', '.join(differs)} differ).",
            "Go on there, or measure a bank of its own in another folder.",
        )
    return here


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        raise MissingExtraError("profile", package) from None
