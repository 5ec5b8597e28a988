"""Profiling one job on this host: resume or start a series, run it, and void it when the host drifted."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from sizewright.datasets.store import TrialStore
from sizewright.datasets.trials import Trial, now
from sizewright.errors import TrialVoidError
from sizewright.profiler.series import Progress, drift, run_series
from sizewright.profiler.spread import SpreadPlanner
from sizewright.spec import Job

_ATTEMPTS = 2


def profile_job(
    job: Job,
    planner: Callable[[], SpreadPlanner],
    store: TrialStore,
    *,
    host: str,
    fresh: bool = False,
    accept_drift: bool = False,
    progress: Callable[[Progress, int], None] | None = None,
) -> list[Trial]:
    """The trials of one whole series.

    A series whose repeated first trial differs by more than two standard errors is void and is measured once more.
    With `accept_drift` it is kept, and the standard errors of its trials are raised to the drift.
    Raises TrialVoidError when both attempts drift.
    """
    from sizewright.training.session import Session

    series, finished = (None, []) if fresh else _latest_series(store, job, host)
    with Session(job) as session:
        for _ in range(_ATTEMPTS):
            series = series or f"{job.hash}-{now():%Y%m%d%H%M%S}-{secrets.token_hex(2)}"
            plan = planner()
            total = len(plan.points)
            trials = []
            for step in run_series(session, plan, store, series, finished=finished):
                trials.append(step.trial)
                if progress:
                    progress(step, total)
            change, void = drift(trials)
            if not void:
                return trials
            told = f"The host's speed changed by {change:+.0%} between the first and the last trial of the series."
            if accept_drift:
                store.mark(series, "ok", told)
                store.widen(series, abs(change))
                return store.trials(series=series)
            store.mark(series, "void", told)
            series, finished = None, []
    raise TrialVoidError(
        f"{told} So did the attempt before.",
        "Profile again when the host is quieter, or accept wider intervals with --accept-drift.",
    )


def _latest_series(store: TrialStore, job: Job, host: str) -> tuple[str | None, list[Trial]]:
    """The last series of this job on this host with its good trials, unless it was voided."""
    trials = [t for t in store.trials(job_hash=job.hash, host=host) if t.series]
    if not trials:
        return None, []
    series = trials[-1].series
    mine = [t for t in trials if t.series == series]
    voided = mine and all(t.status == "void" for t in mine)
    return (None, []) if voided else (series, [t for t in mine if t.usable])
