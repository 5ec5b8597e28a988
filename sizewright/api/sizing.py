"""Measuring a job, and what it should ask for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

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
    counted,
    evidence_of,
    its_store,
    load_cluster,
    load_job,
)
from sizewright.api.other_jobs import tell_other_jobs
from sizewright.api.priors import foretold_by, prior_asked_for
from sizewright.datasets.trials import Trial, Trials
from sizewright.errors import InputError
from sizewright.executors.plan_files import adjust_plan, launch_plan
from sizewright.models.given import GivenModel
from sizewright.models.memory import MemoryModel, table_bytes
from sizewright.models.memory_report import report
from sizewright.models.registry import get_model
from sizewright.recommender.answer import ok
from sizewright.recommender.recommend import decide
from sizewright.recommender.run_peaks import peaks_of
from sizewright.recommender.sized import Sized
from sizewright.spec import Allocation, Job, MemoryReport, Plan, Recommendation
from sizewright.spec.units import format_bytes, format_count

if TYPE_CHECKING:
    from sizewright.api.priors import PriorLike
    from sizewright.datasets.finished import FinishedJob
    from sizewright.models import BaseThroughputModel
    from sizewright.profiler.series import SeriesStep

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
    data: str | Path | None = None,
    progress: Callable[[SeriesStep, int], None] | None = None,
) -> Trials:
    """Run a series of real trial steps of the job on this host, or on the Ray cluster at `address` (host:port), and
    keep every trial in the store.

    `trials` allocations are measured, the first of them at three table scales and once more at the end. Where the host
    can hold all that the bounds allow, each trial goes where the best allocation may be, and the series ends as soon as
    another is not worth it; else they are spread. With a `prior`, "shipped" or a file, the first of trials that are not
    spread is where that expects the best, and two may be enough. An unfinished series of this host goes on where it
    stopped unless `fresh`. `progress` is called with each trial
    and how many there will be. A series during which the host's speed drifted is void and is measured once more;
    with `accept_drift` it is kept and the standard errors of its trials are raised to the drift. So it is with a trial
    that lost much of its speed to other work on the host. One series runs on a host at a time: another waits for it.
    With `data` samples are those of this click log instead of the job's own.

    Raises JobError for the job file, ClickLogError for its log, InputError for a prior that tells nothing of it,
    StoreError for a store that cannot be used, MissingExtraError without torch and ray, EngineError when Ray or the
    host refuses, TrialVoidError where the host drifted twice. A trial that fails is kept as such, and raises nothing.
    """
    from sizewright.profiler.guided import GuidedPlanner, within_host
    from sizewright.profiler.one_series import alone_on_host
    from sizewright.profiler.spread import SpreadPlanner
    from sizewright.profiler.workflow import profile_job
    from sizewright.training.session import Session

    job = load_job(job, data)
    if job.command:
        foretold_by(prior, job)
        return _profile_command(job, store, trials, fresh, accept_drift, address, progress)
    check_log(job)
    job = counted(job)
    foretold = foretold_by(prior, job)
    with (
        its_store(store, create=True) as opened,
        alone_on_host(_LOG.warning),
        Session(job, address=address) as session,
    ):
        opened.history.add_job(job)
        memory = session.memory_bytes
        scale = MemoryModel(job).scale_that_fits(_TABLE_SHARE_OF_MEMORY * memory)
        if scale < 1:
            _LOG.warning(
                "The tables need %s and this host has %s free: trials train tables of %.2g of their rows. Memory is "
                "counted from the rows, and corrected by what these trials use.",
                format_bytes(table_bytes(job)), format_bytes(memory), scale,
            )  # fmt: skip

        def planner() -> SpreadPlanner | GuidedPlanner:
            whole = session.whole_cores
            cores = session.cores * (1.0 if whole else TRIAL_SHARE_OF_CORES)
            if within_host(job, cores):
                return GuidedPlanner(
                    job, cores, memory, count=trials, full_scale=scale, whole_cores=whole, foretold=foretold
                )
            return SpreadPlanner(job, cores, memory, count=trials, full_scale=scale, whole_cores=whole)

        first = planner()
        if foretold is not None and isinstance(first, SpreadPlanner):
            _LOG.warning(
                "The prior does not choose these trials: the bounds allow more than this host can hold, so "
                "they are spread. `recommend --prior` uses both."
            )
        # All trials share one session: replicas are loaded once, and going to fewer of them starts nothing.
        session.load_ahead(workers=first.most("worker"), ps=first.most("ps"))
        return Trials(profile_job(session, planner, opened, fresh=fresh, accept_drift=accept_drift, progress=progress))


def _profile_command(
    job: Job,
    store: StoreLike | None,
    trials: int,
    fresh: bool,
    accept_drift: bool,
    address: str | None,
    progress: Callable[[SeriesStep, int], None] | None,
) -> Trials:
    """Each trial is a start of the command of its own."""
    from sizewright.profiler.command_planner import CommandPlanner
    from sizewright.profiler.measure_command import measure_command
    from sizewright.profiler.one_series import alone_on_host
    from sizewright.profiler.workflow import profile_job
    from sizewright.training.command.session import CommandSession

    with (
        its_store(store, create=True) as opened,
        alone_on_host(_LOG.warning),
        CommandSession(job, address=address, trial=True) as session,
    ):
        opened.history.add_job(job)

        def planner() -> CommandPlanner:
            whole = session.whole_cores
            cores = session.cores * (1.0 if whole else TRIAL_SHARE_OF_CORES)
            return CommandPlanner(job, cores, session.memory_bytes, count=trials, whole_cores=whole)

        finished = profile_job(
            session, planner, opened, fresh=fresh, accept_drift=accept_drift, measure=measure_command, progress=progress
        )
        return Trials(finished)


def recommend(
    job: JobLike,
    *,
    trials: TrialsLike | None = None,
    store: StoreLike | None = None,
    cluster: ClusterLike | None = None,
    extrapolate: bool = False,
    model: str | BaseThroughputModel | None = None,
    prior: PriorLike = None,
    tracking_uri: str | None = None,
    data: str | Path | None = None,
    samples: float | str | None = None,
    objective: str | None = None,
    deadline: str | float | None = None,
) -> Recommendation:
    """What the job should ask for, from `trials`, or from those of this job in the store with its runs' memory peaks.

    `job` is a file, a dict or a Job; `trials` are a list of Trial or of dicts, a data frame, or a CSV or Parquet file;
    `cluster` is a file, a dict or a Cluster. `data`, a click log, `samples`, `objective` and `deadline`, such as "4h",
    take the place of the job's own.

    `extrapolate` lets it choose beyond twice the measured range of an axis. `prior` is one that was learned from other
    jobs: "shipped", a file that `learn_prior` wrote, or what it returned; then no trial is needed, and each helps, as
    do runs in the store of jobs like it.
    With `tracking_uri`, or SIZEWRIGHT_TRACKING_URI, it is the champion of that MLflow registry; while that does not
    answer the last good one, which the reasons say.

    `model` is a name of `sizewright.models.model_names`, or a throughput model of your own, of which a copy is fitted;
    neither a prior nor the registry is asked then. Absent, it is the default one.

    Too little data, and bounds within which nothing fits, are answers with remedies, not errors. Raises JobError for
    the job or cluster file, ClickLogError for a log whose ids are to be counted, NoTrialsError where there is neither
    store nor prior, StoreError for a store or prior that cannot be read, MissingExtraError without mlflow where that is
    asked, InputError for a model that cannot take the trials, or that is given together with a `prior`.
    """
    return size(
        job, trials=trials, store=store, cluster=cluster, extrapolate=extrapolate, model=model, prior=prior,
        tracking_uri=tracking_uri, data=data, samples=samples, objective=objective, deadline=deadline,
    ).answer  # fmt: skip


def size(
    job: JobLike,
    *,
    trials: TrialsLike | None = None,
    store: StoreLike | None = None,
    cluster: ClusterLike | None = None,
    extrapolate: bool = False,
    model: str | BaseThroughputModel | None = None,
    prior: PriorLike = None,
    tracking_uri: str | None = None,
    data: str | Path | None = None,
    samples: float | str | None = None,
    objective: str | None = None,
    deadline: str | float | None = None,
) -> Sized:
    """As `recommend`, together with what the answer was made of."""
    job = counted(load_job(job, data, samples=samples, objective=objective, deadline=deadline))
    if model is not None and prior is not None:
        raise InputError("A prior is for the default model alone.", "Leave out the prior, or the model.")
    given = None if model is None else GivenModel(get_model(model))
    told, why = (None, "") if given else prior_asked_for(prior, tracking_uri)
    runs: list[FinishedJob] = []
    history: list[FinishedJob] = []
    if trials is None:
        evidence, history = evidence_of(job, store, needed=told is None)
        runs = [run for run in history if run.key in job.hashes]
    else:
        evidence = as_trials(trials, has_ps=job.has_ps)
        why = " ".join(filter(None, (why, _of_other_jobs(job, evidence))))
    found = decide(
        job, evidence, cluster=load_cluster(cluster), model=given, extrapolate=extrapolate, prior=told, runs=runs,
        history=history,
    )  # fmt: skip
    answer, fitted = (found, None) if isinstance(found, Recommendation) else (ok(found), found.model)
    if trials is None and not evidence:
        answer = tell_other_jobs(job, answer, store)
    if why:
        answer = answer.model_copy(update={"reasons": (*answer.reasons, why)})
    return Sized(job, answer, evidence, runs, fitted)


def _of_other_jobs(job: Job, trials: Sequence[Trial]) -> str:
    """What to say where trials that were given were measured for another job."""
    others = [trial for trial in trials if trial.job_hash and trial.job_hash not in job.hashes]
    if not others:
        return ""
    verbs = "was measured for another job and is" if len(others) == 1 else "were measured for another job and are"
    named = f" ({others[0].job})" if others[0].job else ""
    return f"{len(others):,} of {format_count(len(trials), 'trial')} {verbs} taken as of this one{named}."


def memory(
    job: JobLike,
    *,
    trials: TrialsLike | None = None,
    store: StoreLike | None = None,
    cluster: ClusterLike | None = None,
    data: str | Path | None = None,
    samples: float | str | None = None,
) -> MemoryReport:
    """How much memory the job's tables need, table by table, and on how many servers, before anything runs.

    Peaks of `trials`, or of the job's trials and runs in the store, correct what is counted, as `recommend` does; with
    a `cluster`, servers have to fit its hosts. Raises JobError for the job or cluster file, ClickLogError for a log
    whose ids are to be counted, StoreError for a store that cannot be read, InputError for a job that runs a command.
    """
    job = load_job(job, data, samples=samples)
    if job.command:
        raise InputError(
            "The tables of a command are not known, so that none can be counted.",
            "Its memory is what trials show: `sizewright recommend JOB` tells what to ask for, after `profile`.",
        )
    if trials is None:
        own, runs = evidence_of(counted(job), store, needed=False)
        measured = [*own, *peaks_of(run for run in runs if run.key in job.hashes)]
    else:
        measured = as_trials(trials)
    if job.model.tables.known:
        return report(job, measured, load_cluster(cluster))
    from sizewright.datasets.vocabulary import count_rows
    from sizewright.models.row_growth import growth_of_tables

    vocabulary = count_rows(job)
    vocabularies = vocabulary.tables
    ranges = [(table.lower, table.upper) for table in vocabularies]
    growth = None
    if not vocabulary.exact:
        growth = growth_of_tables(vocabulary.growth_samples, [table.growth for table in vocabularies])
    if growth:  # the order of the log counts: where new ids keep coming, more may come than its spectrum tells
        most = [int(table.upper(job.samples or 0)) for table in growth]
        ranges = [(low, max(high, last)) for (low, high), last in zip(ranges, most, strict=True)]
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
    """The plan that launches a recommendation's target, or brings the job there from the `current` allocation.

    The recommendation may be a file that holds its JSON. `data`, `samples`, `objective` and `deadline` are those that
    it was asked for with. Raises InputError when it has no target.
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
