"""Run a series of trials: every finished trial is saved at once, and a failed one does not stop the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from sizewright.datasets.trials.planned_fields import gpus_of, loaders_of
from sizewright.datasets.trials.trial import Trial, TrialStatus
from sizewright.errors import (
    EngineDiedError,
    EngineError,
    NoReportsError,
    ReplicaDiedError,
    SizewrightError,
    TrialError,
    TrialVoidError,
)
from sizewright.profiler.measure.host_speed import measure_host_speed
from sizewright.profiler.measure.measure import Timing, Trainer, measure
from sizewright.profiler.series._base import SeriesPlanner, TrialPoint
from sizewright.spec import Group, Job

# Trials of 5 s repeat within 2 to 3 % (one standard error), however small the error within one is.
REPEAT_SE = 0.03


class TrialSink(Protocol):
    """A destination of trials: a store, or a list."""

    def add(self, trial: Trial) -> object:
        """Save a trial."""


Measure = Callable[[Any, TrialPoint, Timing], Trial]
"""Measures a trial with a trainer; raises TrialError if there is no measurement."""


class SeriesStep(NamedTuple):
    """A trial of a series, and whether it was taken from an earlier run of it."""

    point: TrialPoint
    trial: Trial
    reused: bool


def run_series(
    trainer: Trainer,
    planner: SeriesPlanner,
    sink: TrialSink,
    series: str,
    *,
    finished: Sequence[Trial] = (),
    timing: Timing = Timing(),  # noqa: B008 (a frozen record)
    measure: Measure = measure,
    host_speed: Callable[[], float] = measure_host_speed,
) -> Iterator[SeriesStep]:
    """Run a planner's trials and yield each; `finished` trials of the same series are not run again.

    Raises errors that would end every further trial: EngineDiedError, and NoReportsError of a command that never
    reported.
    """
    any_reports = bool(finished)
    reusable = [trial for trial in finished if trial.usable]
    warm_up_s = timing.first_warm_up_s
    while not planner.done():
        point = planner.ask()
        earlier = next((trial for trial in reusable if is_at(trial, point)), None)
        if earlier is not None:
            reusable.remove(earlier)
            trial = earlier
        else:
            timed = replace(timing, warm_up_s=warm_up_s)
            trial = _run_one(trainer, point, timed, measure, host_speed, any_reports)
            trial = trial.model_copy(update={"series": series})
            any_reports = any_reports or trial.usable
            warm_up_s = timing.warm_up_s if trial.status == "ok" else timing.first_warm_up_s
            sink.add(trial)
            if trial.status != "ok":
                trainer.discard()
        planner.tell(point, trial)
        yield SeriesStep(point, trial, earlier is not None)


def drift(trials: Sequence[Trial]) -> tuple[float | None, bool]:
    """Return the relative change between the first trial and its repeat, and whether it voids the series.

    It does beyond two standard errors of the difference. Where both trials tell the cores that they used, the change is
    that of these: models correct a change of the CPU seconds of a sample (`models/host_state.py`). The change is None
    if one of the two failed.
    """
    if len(trials) < 2:
        return None, False
    first, last = trials[0], trials[-1]
    if not (first.usable and last.usable) or _point_of(first) != _point_of(last):
        return None, False
    assert first.throughput is not None
    assert last.throughput is not None
    errors = [max((t.throughput_se or 0.0) / (t.throughput or 1.0), REPEAT_SE) for t in (first, last)]
    change = last.throughput / first.throughput - 1
    if first.cores_used and last.cores_used:
        change = last.cores_used / first.cores_used - 1
    return change, abs(change) > 2 * (errors[0] ** 2 + errors[1] ** 2) ** 0.5


def _run_one(
    trainer: Trainer,
    point: TrialPoint,
    timing: Timing,
    measure: Measure,
    host_speed: Callable[[], float],
    any_reports: bool,
) -> Trial:
    about: dict[str, object] = {"host": trainer.host}
    try:
        trainer.pause()
        about["host_speed"] = host_speed()
        return measure(trainer, point, timing).model_copy(update=about)
    except EngineDiedError:
        raise
    except NoReportsError as error:
        if error.recurs or not any_reports:
            raise
        return _failed(trainer, point, error).model_copy(update=about)
    except (TrialError, EngineError) as error:
        return _failed(trainer, point, error).model_copy(update=about)


def _failed(trainer: Trainer, point: TrialPoint, error: SizewrightError) -> Trial:
    oom_memory = error.oom_memory if isinstance(error, ReplicaDiedError) else None
    status: TrialStatus = "oom" if oom_memory else "void" if isinstance(error, TrialVoidError) else "failed"
    return failed_trial(trainer.job, point, status, str(error)).model_copy(update={"oom_memory": oom_memory})


def failed_trial(job: Job, point: TrialPoint, status: TrialStatus, message: str) -> Trial:
    """Return the trial of a point that has no measurement."""
    allocation = point.allocation
    return Trial(
        workers=allocation.replicas("worker"),
        ps=allocation.replicas("ps"),
        worker_cpu=allocation.worker[0].cpu,
        ps_cpu=_cores_of(allocation.ps),
        batch_size=allocation.batch_size,
        table_scale=point.table_scale,
        job=job.name,
        job_hash=job.hash,
        status=status,
        message=message,
        loaders=loaders_of(job, allocation),
        **gpus_of(job, allocation),
    )


def _point_of(trial: Trial) -> tuple[object, ...]:
    sizes = (trial.worker_cpu, trial.ps_cpu, trial.worker_gpu or 0, trial.batch_size, trial.loaders)
    return (trial.workers, trial.ps, *sizes, trial.table_scale)


def is_at(trial: Trial, point: TrialPoint) -> bool:
    """Return whether a trial measured a point; a point without a number of loaders has that of the trial's job."""
    a = point.allocation
    gpus = a.worker[0].gpu.count if a.worker[0].gpu else 0
    loaders = trial.loaders if a.loaders is None else a.loaders
    sizes = (_cores_of(a.worker), _cores_of(a.ps), gpus, a.batch_size, loaders)
    key = (a.replicas("worker"), a.replicas("ps"), *sizes)
    return _point_of(trial) in ((*key, point.table_scale), (*key, None))


def _cores_of(groups: Sequence[Group]) -> float | None:
    return groups[0].cpu if groups else None
