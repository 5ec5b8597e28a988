"""Profile a job and recommend its size."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sizewright.api._records import (
    ClusterLike,
    JobLike,
    RecommendationLike,
    StoreLike,
    TrialsLike,
    as_record,
    as_trials,
)
from sizewright.api.inputs import (
    TRIAL_SHARE_OF_CORES,
    check_log,
    counted_job,
    evidence_of,
    load_cluster,
    load_job,
    opened_store,
)
from sizewright.api.priors import custom_predictor, prior_for_job
from sizewright.api.sizing_inputs import SizingInputs, sizing_request, with_notes
from sizewright.datasets.trials.trial import Trial, Trials
from sizewright.errors import InputError
from sizewright.formatting import format_bytes
from sizewright.models.factory import make_predictor
from sizewright.models.memory.memory_model import MemoryModel, table_bytes
from sizewright.models.memory.report import report
from sizewright.recommender.sizing.predict import predict as predict_allocation
from sizewright.recommender.sizing.result import SizingResult
from sizewright.recommender.sizing.run_peaks import run_peaks
from sizewright.recommender.sizing.select import recommend_with_model
from sizewright.runtime.plan_files import adjust_plan, launch_plan
from sizewright.spec import Allocation, Job, MemoryReport, Plan, PredictionAnswer, Recommendation, Sizes

if TYPE_CHECKING:
    from sizewright.api.priors import PriorLike
    from sizewright.models import BaseThroughputModel
    from sizewright.profiler.series.series import SeriesStep

_TABLE_SHARE_OF_MEMORY = 0.5
_LOG = logging.getLogger(__name__)


def profile(
    job: JobLike,
    *,
    store: StoreLike | None = None,
    trials: int = 9,
    fresh: bool = False,
    accept_drift: bool = False,
    address: str | None = None,
    prior: PriorLike = None,
    model: str | BaseThroughputModel | None = None,
    data: str | Path | None = None,
    progress: Callable[[SeriesStep, int], None] | None = None,
) -> Trials:
    """Run a series of real training trials of a job and keep every trial in the store.

    The trials run on this host, or on the Ray cluster at `address` (host:port). One series runs on a host at a time;
    a second one waits.

    `trials` is the number of allocations to measure. The first of them is measured at three table scales and again at
    the end. Where the host can hold everything within the bounds, each trial is placed where the best allocation may
    be, and the series ends as soon as a further trial is not worth its cost; otherwise the trials are spread over the
    bounds. With a `prior` ("shipped", a file, or a LearnedPrior) the first trial that is not spread runs at the
    predicted best allocation, and two trials may be enough. `model`, a name or a model of your own, chooses the trials
    in place of the default one. A command is started once per trial.

    An unfinished series of this host is continued unless `fresh`. `progress` is called with each trial and the number
    of trials planned. With `data` the samples come from this click log instead of the job's own.

    A series during which the speed of the host drifted is void and is measured once more. With `accept_drift` it is
    kept, and the standard errors of its trials are raised by the drift. The same holds for a trial that lost much of
    its speed to other work on the host. A trial that fails is stored as failed and raises nothing.

    Raises JobError for the job file, ClickLogError for its log, InputError for a prior that does not cover the job,
    StoreError for a store that cannot be used, MissingExtraError without torch and ray, EngineError when Ray or the
    host refuses, TrialVoidError when the host drifted twice.
    """
    from sizewright.profiler.series.adaptive import AdaptivePlanner, within_host
    from sizewright.profiler.series.one_series import alone_on_host
    from sizewright.profiler.series.space_filling import SpaceFillingPlanner
    from sizewright.profiler.series.workflow import profile_job
    from sizewright.training.session import Session

    job = load_job(job, data)
    job.check_trainable()
    profile_series = partial(profile_job, fresh=fresh, accept_drift=accept_drift, progress=progress)
    if job.command:
        prior_for_job(prior, job)
        return _profile_command(job, store, trials, address, profile_series)
    check_log(job)
    job = counted_job(job)
    prior_curve = prior_for_job(prior, job)
    predictor = custom_predictor(model, prior) or make_predictor(prior_curve, min_allocations=1)
    with (
        opened_store(store, create=True) as opened,
        alone_on_host(_LOG.warning),
        Session(job, address=address) as session,
    ):
        opened.history.add_job(job)
        memory_bytes = session.memory_bytes
        scale = MemoryModel(job).scale_that_fits(_TABLE_SHARE_OF_MEMORY * memory_bytes)
        if scale < 1:
            _LOG.warning(
                "The tables need %s and this host has %s free, so trials train tables with %.2g of their rows. "
                "Memory is computed from the full row counts and corrected by the measured peaks.",
                format_bytes(table_bytes(job)),
                format_bytes(memory_bytes),
                scale,
            )

        def planner() -> SpaceFillingPlanner | AdaptivePlanner:
            whole_cores = session.whole_cores
            cores = session.cores * (1.0 if whole_cores else TRIAL_SHARE_OF_CORES)
            of_series: dict[str, Any] = {"count": trials, "full_scale": scale}
            of_series |= {"whole_cores": whole_cores, "host_gpus": session.gpus}
            if within_host(job, cores, session.gpus):
                return AdaptivePlanner(job, cores, memory_bytes, predictor=predictor, **of_series)
            return SpaceFillingPlanner(job, cores, memory_bytes, **of_series)

        first = planner()
        if prior_curve is not None and isinstance(first, SpaceFillingPlanner):
            _LOG.warning(
                "The prior does not choose these trials: the bounds exceed what this host can hold, so the trials "
                "are spread over the bounds. `recommend --prior` uses the prior and the trials."
            )
        # All trials share one session: replicas are loaded once, and going to fewer of them starts nothing.
        session.load_ahead(workers=first.max_replicas("worker"), ps=first.max_replicas("ps"))
        return Trials(profile_series(session, planner, opened))


def _profile_command(
    job: Job, store: StoreLike | None, trials: int, address: str | None, profile_series: Callable[..., list[Trial]]
) -> Trials:
    """Profile a job that runs a command, which is started again for each trial."""
    from sizewright.profiler.measure.measure_command import measure_command
    from sizewright.profiler.series.one_series import alone_on_host
    from sizewright.profiler.series.space_filling import CommandPlanner
    from sizewright.training.command.session import CommandSession

    with (
        opened_store(store, create=True) as opened,
        alone_on_host(_LOG.warning),
        CommandSession(job, address=address, trial=True) as session,
    ):
        opened.history.add_job(job)

        def planner() -> CommandPlanner:
            whole_cores = session.whole_cores
            cores = session.cores * (1.0 if whole_cores else TRIAL_SHARE_OF_CORES)
            return CommandPlanner(
                job, cores, session.memory_bytes, count=trials, whole_cores=whole_cores, host_gpus=session.gpus
            )

        return Trials(profile_series(session, planner, opened, measure=measure_command))


def recommend(
    job: JobLike,
    *,
    trials: TrialsLike | None = None,
    store: StoreLike | None = None,
    cluster: ClusterLike | None = None,
    machine: str | None = None,
    spot: bool | None = None,
    extrapolate: bool = False,
    model: str | BaseThroughputModel | None = None,
    prior: PriorLike = None,
    tracking_uri: str | None = None,
    data: str | Path | None = None,
    samples: float | str | None = None,
    objective: str | None = None,
    deadline: str | float | None = None,
) -> Recommendation:
    """Recommend the allocation that a job should request.

    The answer rests on `trials`, or on the trials of this job in the store together with the memory peaks of its runs.

    `job` is a file, a dict or a Job. `trials` is a list of Trial or of dicts, a data frame, or a CSV or Parquet file.
    `cluster` is a file, a dict or a Cluster. `data` (a click log), `samples`, `objective` and `deadline`, such as "4h",
    override those of the job.

    Where hosts of the cluster have prices, the answer also chooses their kind, on demand or spot. `machine` names the
    only kind to use; with `spot` only spot hosts are used, with False none.

    `extrapolate` allows allocations beyond twice the measured range of an axis. `prior` is learned from other jobs:
    "shipped", a file that `learn_prior` wrote, or its return value. With a prior no trial is needed, each trial
    improves the answer, and so do runs of similar jobs in the store. With `tracking_uri`, or SIZEWRIGHT_TRACKING_URI,
    the prior is the champion of that MLflow registry; while the registry does not answer, the last usable champion is
    used and the reasons say so.

    `model` is a name from `sizewright.models.model_names`, or your own throughput model, of which a copy is fitted.
    With a model, neither the prior nor the registry is used.

    Too little data, and bounds within which nothing fits, are answers with remedies, not errors. Raises JobError for
    the job or cluster file, ClickLogError for a log whose ids have to be counted, NoTrialsError without a store and
    without a prior, StoreError for a store or prior that cannot be read, MissingExtraError without mlflow when a
    registry is used, InputError for a model that cannot take the trials or that is passed with a `prior`, for a
    `machine` that the cluster does not have, and for `spot` where a job is not checkpointed or no spot price is known.
    """
    job = load_job(job, data, samples=samples, objective=objective, deadline=deadline)
    inputs = SizingInputs(
        job=job,
        trials=trials,
        store=store,
        cluster=cluster,
        machine=machine,
        spot=spot,
        extrapolate=extrapolate,
        model=model,
        prior=prior,
        tracking_uri=tracking_uri,
    )
    return size(inputs).answer


def predict(
    job: JobLike,
    *,
    workers: int | None = None,
    ps: int | None = None,
    worker_cpu: float | str | None = None,
    ps_cpu: float | str | None = None,
    worker_gpu: int | None = None,
    batch_size: int | None = None,
    loaders: int | None = None,
    worker_memory: float | str | None = None,
    ps_memory: float | str | None = None,
    trials: TrialsLike | None = None,
    store: StoreLike | None = None,
    cluster: ClusterLike | None = None,
    machine: str | None = None,
    spot: bool | None = None,
    extrapolate: bool = False,
    model: str | BaseThroughputModel | None = None,
    prior: PriorLike = None,
    tracking_uri: str | None = None,
    data: str | Path | None = None,
    samples: float | str | None = None,
    objective: str | None = None,
    deadline: str | float | None = None,
) -> PredictionAnswer:
    """Predict what to expect at an allocation that you have in mind, compared with the recommended one.

    Sizes that are not given are those of the recommended allocation: numbers of `workers` and `ps`, cores of each,
    `worker_gpu` (GPUs of a worker), `batch_size` (samples per batch of a worker), `loaders` (processes that read for a
    worker). Without `worker_memory` and `ps_memory` (bytes, or "8Gi"), a replica has the memory that it is predicted to
    need. All other arguments are those of `recommend`, such as `deadline` (seconds, or "4h").

    Too little data is an answer with remedies. Raises InputError for sizes that the job cannot have, and the errors of
    `recommend`.
    """
    sizes = Sizes(
        workers=workers,
        ps=ps,
        worker_cpu=worker_cpu,
        ps_cpu=ps_cpu,
        worker_gpu=worker_gpu,
        batch_size=batch_size,
        loaders=loaders,
        worker_memory=worker_memory,
        ps_memory=ps_memory,
    )
    job = load_job(job, data, samples=samples, objective=objective, deadline=deadline)
    inputs = SizingInputs(
        job=job,
        trials=trials,
        store=store,
        cluster=cluster,
        machine=machine,
        spot=spot,
        extrapolate=extrapolate,
        model=model,
        prior=prior,
        tracking_uri=tracking_uri,
    )
    return predict_sizes(inputs, sizes)


def size(inputs: SizingInputs) -> SizingResult:
    """Return the recommendation together with the job, trials, runs and model that it was made from."""
    request, why_not_champion = sizing_request(inputs)
    answer, fitted = recommend_with_model(request)
    answer = with_notes(answer, inputs, request, why_not_champion)
    return SizingResult(request.job, answer, request.trials, request.runs, fitted)


def predict_sizes(inputs: SizingInputs, sizes: Sizes) -> PredictionAnswer:
    """Return the prediction for an allocation of these sizes, compared with the recommended one."""
    request, why_not_champion = sizing_request(inputs)
    return with_notes(predict_allocation(request, sizes), inputs, request, why_not_champion)


def memory(
    job: JobLike,
    *,
    trials: TrialsLike | None = None,
    store: StoreLike | None = None,
    cluster: ClusterLike | None = None,
    data: str | Path | None = None,
    samples: float | str | None = None,
) -> MemoryReport:
    """Return how much memory the job's tables need, per table and per number of servers, before anything runs.

    Memory peaks of `trials`, or of the job's trials and runs in the store, correct the computed sizes, as in
    `recommend`. With a `cluster`, each server has to fit on one of its hosts.

    Raises JobError for the job or cluster file, ClickLogError for a log whose ids have to be counted, StoreError for a
    store that cannot be read, InputError for a job that runs a command without describing its tables.
    """
    job = load_job(job, data, samples=samples)
    if not job.describes_tables:
        raise InputError(
            "The embedding tables of a command are unknown, so their memory cannot be computed.",
            "Describe them beside the command: model.tables with count, rows and dim. Or run: sizewright profile JOB",
        )
    if trials is None:
        stored, runs = evidence_of(counted_job(job), store)
        measured = [*stored, *run_peaks(run for run in runs if run.key in job.hashes)]
    else:
        measured = as_trials(trials)
    if job.model.tables.known:
        return report(job, measured, load_cluster(cluster))
    from sizewright.datasets.clicks.vocabulary import count_rows
    from sizewright.models.memory.row_growth import growth_of_tables

    vocabulary = count_rows(job)
    vocabularies = vocabulary.tables
    ranges = [(table.lower, table.upper) for table in vocabularies]
    growth = None
    if not vocabulary.exact:
        growth = growth_of_tables(vocabulary.growth_samples, [table.growth for table in vocabularies])
    if growth:  # the order of the log matters: where new ids keep coming, more may come than its spectrum shows
        upper_rows = [int(table.upper(job.samples or 0)) for table in growth]
        ranges = [(lower, max(upper, rows)) for (lower, upper), rows in zip(ranges, upper_rows, strict=True)]
    return report(job.with_rows(vocabulary.rows), measured, load_cluster(cluster), ranges, growth)


def plan(
    job: JobLike,
    recommendation: RecommendationLike,
    *,
    current: Allocation | Mapping[str, object] | None = None,
    data: str | Path | None = None,
    samples: float | str | None = None,
    objective: str | None = None,
    deadline: str | float | None = None,
) -> Plan:
    """Return the plan that launches a recommendation's target.

    With a `current` allocation the plan adjusts the running job to the target instead. The recommendation may be a file
    that holds its JSON. Pass the same `data`, `samples`, `objective` and `deadline` as to `recommend`. Raises
    InputError when the recommendation has no target.
    """
    job = load_job(job, data, samples=samples, objective=objective, deadline=deadline).with_absolute_path()
    recommendation = as_record(Recommendation, recommendation, "recommendation")
    if recommendation.target is None:
        raise InputError(
            f"The recommendation for {recommendation.job} is '{recommendation.status}' and has no target to launch.",
            "Follow its remedies first.",
        )
    reason = " ".join(recommendation.reasons[:2])
    if current is not None:
        current = as_record(Allocation, current, "current allocation")
        return adjust_plan(job, current, recommendation.target, reason).expecting(recommendation)
    return launch_plan(job, recommendation.target, reason).expecting(recommendation)
