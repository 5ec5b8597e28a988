"""Profile one job on this host: resume or start a series, run it, and void it if the host drifted."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable

from sizewright.datasets.trials.store import TrialStore
from sizewright.datasets.trials.trial import Trial, now
from sizewright.errors import TrialVoidError
from sizewright.profiler.measure.interference import void_if_starved
from sizewright.profiler.measure.measure import Timing, Trainer, measure
from sizewright.profiler.series._base import SeriesPlanner, TrialPoint
from sizewright.profiler.series.series import Measure, SeriesStep, drift, run_series
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
    """Run a complete series of the trainer's job, and return its trials.

    A series is void if its repeated first trial differs by more than two standard errors, and is measured once more. A
    trial is void if it lost much of its speed to other work on the host. With `accept_drift` both are kept, and the
    standard errors are widened by the drift and by the lost speed. Raises TrialVoidError if both attempts drift.
    """

    def measured(trainer: Trainer, point: TrialPoint, timing: Timing) -> Trial:
        trial = measure(trainer, point, timing)
        return trial if accept_drift else void_if_starved(trial)

    series, finished = (None, []) if fresh else latest_series(store, trainer.job, trainer.host)
    before = 0
    for _ in range(_ATTEMPTS):
        series = series or f"{trainer.job.hash}-{now():%Y%m%d%H%M%S}-{secrets.token_hex(2)}"
        plan = planner()
        total, trials = before + plan.remaining(), []
        for step in run_series(trainer, plan, store, series, finished=finished, measure=measured):
            trials.append(step.trial)
            if progress:
                progress(step, total)
        change, void = drift(trials)
        if change is None or not void:
            return trials
        message = f"The host's speed changed by {100 * change:+.0f} % between the first and the last trial of a series."
        if accept_drift:
            store.mark(series, "ok", message)
            # The standard deviation of trials that a steady drift spreads evenly over the change.
            store.widen(series, abs(change) / math.sqrt(12))
            return [trial for trial in store.trials(series=series) if trial.status != "void"]
        store.mark(series, "void", message)
        series, finished, before = None, [], before + len(trials)
    raise TrialVoidError(
        f"{message} So did the attempt before.",
        "Profile again while the host is idle, or accept wider intervals with --accept-drift.",
    )


def latest_series(store: TrialStore, job: Job, host: str) -> tuple[str | None, list[Trial]]:
    """Return the last series of a job on a host and its usable trials; (None, []) if there is none or it is void."""
    trials = [t for t in store.trials(job=job, host=host) if t.series]
    if not trials:
        return None, []
    last = [t for t in trials if t.series == trials[-1].series]
    usable = [t for t in last if t.usable]
    voided = not usable and any(t.status == "void" for t in last)
    return (None, []) if voided else (last[0].series, usable)
