"""Profiling one job on this host: resume or start a series, run it, and void it when the host drifted."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable

from sizewright.datasets.store import TrialStore
from sizewright.datasets.trials import Trial, now
from sizewright.errors import TrialVoidError
from sizewright.profiler._base import Point, SeriesPlanner
from sizewright.profiler.interference import void_if_starved
from sizewright.profiler.measure import Timing, Trainer, measure
from sizewright.profiler.series import Measure, SeriesStep, drift, run_series
from sizewright.spec import Job

_ATTEMPTS = 2


def profile_job(
    trainer: Trainer,
    planner: Callable[[], SeriesPlanner],
    store: TrialStore,
    *,
    fresh: bool = False,
    accept_drift: bool = False,
    measure: Measure = measure,
    progress: Callable[[SeriesStep, int], None] | None = None,
) -> list[Trial]:
    """The trials of one whole series of the trainer's job.

    A series whose repeated first trial differs by more than two standard errors is void and is measured once more.
    A trial that lost much of its speed to other work on the host is void. With `accept_drift` both are kept, and the
    standard errors are raised by the drift and by what was lost.
    Raises TrialVoidError when both attempts drift.
    """

    def measured(trainer: Trainer, point: Point, timing: Timing) -> Trial:
        trial = measure(trainer, point, timing)
        return trial if accept_drift else void_if_starved(trial)

    series, finished = (None, []) if fresh else latest_series(store, trainer.job, trainer.host)
    before = 0
    for _ in range(_ATTEMPTS):
        series = series or f"{trainer.job.hash}-{now():%Y%m%d%H%M%S}-{secrets.token_hex(2)}"
        plan = planner()
        total, trials = before + plan.left(), []
        for step in run_series(trainer, plan, store, series, finished=finished, measure=measured):
            trials.append(step.trial)
            if progress:
                progress(step, total)
        change, void = drift(trials)
        if change is None or not void:
            return trials
        told = f"The host's speed changed by {change:+.0%} between the first and the last trial of a series."
        if accept_drift:
            store.mark(series, "ok", told)
            # A steady drift puts the trials, one after the other, evenly over the change: that is its spread.
            store.widen(series, abs(change) / math.sqrt(12))
            return [trial for trial in store.trials(series=series) if trial.status != "void"]
        store.mark(series, "void", told)
        series, finished, before = None, [], before + len(trials)
    raise TrialVoidError(
        f"{told} So did the attempt before.",
        "Profile again when the host is quieter, or accept wider intervals with --accept-drift.",
    )


def latest_series(store: TrialStore, job: Job, host: str) -> tuple[str | None, list[Trial]]:
    """The last series of a job on a host with its good trials, unless it was voided."""
    trials = [t for t in store.trials(job=job, host=host) if t.series]
    mine = [t for t in trials if t.series == trials[-1].series]
    usable = [t for t in mine if t.usable]
    voided = not usable and any(t.status == "void" for t in mine)
    return (None, []) if voided or not mine else (mine[0].series, usable)
