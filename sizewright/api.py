"""The public functions: record in, record out. Here the parts are put together."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sizewright.datasets.database import is_in_memory
from sizewright.datasets.store import TrialStore
from sizewright.datasets.trials import Trial
from sizewright.errors import InputError, NotEnoughDataError, NoTrialsError, StoreError
from sizewright.executors.plan_files import adjust_plan, is_plan, launch_plan
from sizewright.executors.tuning import Beside, Tuning, tuning
from sizewright.models.memory import MemoryModel
from sizewright.models.memory_report import report
from sizewright.recommender.consider import filled
from sizewright.recommender.recommend import recommend as recommend_from_trials
from sizewright.recommender.warm_start import warm_start
from sizewright.spec import (
    Allocation,
    Cluster,
    Executor,
    HostKind,
    Job,
    MemoryReport,
    Outcome,
    Plan,
    Quota,
    Recommendation,
)

if TYPE_CHECKING:
    from typing import TypeAlias

    from sizewright.datasets.click_logs import ReadReport
    from sizewright.datasets.finished import FinishedJob
    from sizewright.executors.run import Companion, RunProgress
    from sizewright.models.prior import JobCurve, LearnedPrior
    from sizewright.profiler.bank_series import BankStep
    from sizewright.profiler.series import Progress
    from sizewright.recommender.decisions import Decision
    from sizewright.retraining.drift import Drift
    from sizewright.retraining.registry import Registry
    from sizewright.retraining.retrain import Retraining

    PriorLike: TypeAlias = LearnedPrior | str | Path | None

DEFAULT_STORE = "sqlite:///sizewright.db"
STORE_VARIABLE = "SIZEWRIGHT_STORE"
# The rest is for Ray, this process and the host itself.
TRIAL_SHARE_OF_CORES = 0.8
_TABLE_SHARE_OF_MEMORY = 0.5
_CHECKED_ROWS = 100_000

JobLike = Job | str | Path
_LOG = logging.getLogger(__name__)
SHIPPED_PRIOR = SHIPPED_BANK = "shipped"
LOCALHOST = "127.0.0.1"
DEFAULT_TRACKING = "sqlite:///sizewright-models.db"
TRACKING_VARIABLE = "SIZEWRIGHT_TRACKING_URI"


def profile(
    job: JobLike,
    *,
    store: str | TrialStore | None = None,
    trials: int = 9,
    fresh: bool = False,
    accept_drift: bool = False,
    address: str | None = None,
    prior: PriorLike = None,
    progress: Callable[[Progress, int], None] | None = None,
) -> list[Trial]:
    """Run a series of real trial steps of the job on this host, or on the Ray cluster at `address` (host:port), and
    keep every trial in the store.

    `trials` allocations are measured, the first of them at three table scales and once more at the end. Where the host
    can hold all that the bounds allow, each trial goes where the best allocation may be, and the series ends as soon as
    another is not worth it; else they are spread. With a `prior`, "shipped" or a file, the first of trials that are not
    spread is where that expects the best, and two may be enough. An unfinished series of this host goes on where it
    stopped unless `fresh`. `progress` is called with each trial
    and how many there will be. A series during which the host's speed drifted is void and is measured once more;
    with `accept_drift` it is kept and the standard errors of its trials are raised to the drift.

    Raises MissingExtraError without torch and ray, EngineError when Ray or the host refuses.
    """
    from sizewright.profiler.guided import GuidedPlanner, within_host
    from sizewright.profiler.spread import SpreadPlanner
    from sizewright.profiler.workflow import profile_job
    from sizewright.training.session import Session

    job = load_job(job)
    if job.command:
        _foretold(prior, job)
        return _profile_command(job, store, trials, fresh, accept_drift, address, progress)
    check_log(job)
    job = counted(job)
    foretold = _foretold(prior, job)
    with _open(store, create=True) as opened, Session(job, address=address) as session:
        opened.history.add_job(job)
        scale = MemoryModel(job).scale_that_fits(_TABLE_SHARE_OF_MEMORY * session.memory_bytes)

        def planner() -> SpreadPlanner | GuidedPlanner:
            whole = session.whole_cores
            cores = session.cores * (1.0 if whole else TRIAL_SHARE_OF_CORES)
            if within_host(job, cores):
                return GuidedPlanner(job, cores, count=trials, full_scale=scale, whole_cores=whole, foretold=foretold)
            return SpreadPlanner(job, cores, count=trials, full_scale=scale, whole_cores=whole)

        first = planner()
        if foretold is not None and isinstance(first, SpreadPlanner):
            _LOG.warning(
                "The prior does not choose these trials: the bounds allow more than this host can hold, so "
                "they are spread. `recommend --prior` uses both."
            )
        # All trials share one session: replicas are loaded once, and going to fewer of them starts nothing.
        session.load_ahead(workers=first.most("worker"), ps=first.most("ps"))
        return profile_job(session, planner, opened, fresh=fresh, accept_drift=accept_drift, progress=progress)


def _profile_command(
    job: Job,
    store: str | TrialStore | None,
    trials: int,
    fresh: bool,
    accept_drift: bool,
    address: str | None,
    progress: Callable[[Progress, int], None] | None,
) -> list[Trial]:
    """Each trial is a start of the command of its own."""
    from sizewright.profiler.command_planner import CommandPlanner
    from sizewright.profiler.measure_command import measure_command
    from sizewright.profiler.workflow import profile_job
    from sizewright.training.command.session import CommandSession

    with _open(store, create=True) as opened, CommandSession(job, address=address, trial=True) as session:
        opened.history.add_job(job)

        def planner() -> CommandPlanner:
            whole = session.whole_cores
            cores = session.cores * (1.0 if whole else TRIAL_SHARE_OF_CORES)
            return CommandPlanner(job, cores, session.memory_bytes, count=trials, whole_cores=whole)

        return profile_job(
            session, planner, opened, fresh=fresh, accept_drift=accept_drift, measure=measure_command, progress=progress
        )


def recommend(
    job: JobLike,
    *,
    trials: Sequence[Trial] | None = None,
    store: str | TrialStore | None = None,
    cluster: Cluster | str | Path | None = None,
    extrapolate: bool = False,
    prior: PriorLike = None,
    tracking_uri: str | None = None,
) -> Recommendation:
    """What the job should ask for, from `trials`, or from those of this job in the store with its runs' memory peaks.

    `extrapolate` lets it choose beyond twice the measured range of an axis. `prior` is one that was learned from other
    jobs: "shipped", a file that `learn_prior` wrote, or what it returned; then no trial is needed, and each helps, as
    do runs in the store of jobs like it.
    With `tracking_uri`, or SIZEWRIGHT_TRACKING_URI, it is the champion of that MLflow registry; while that does not
    answer the last good one, which the reasons say.
    """
    job = counted(job)
    told, why = _prior_asked_for(prior, tracking_uri)
    runs: list[FinishedJob] = []
    history: list[FinishedJob] = []
    if trials is None:
        trials, history = _evidence_of(job, store, needed=told is None)
        runs = [run for run in history if run.key == job.hash]
    found = recommend_from_trials(
        job, trials, cluster=_load_cluster(cluster), extrapolate=extrapolate, prior=told, runs=runs, history=history
    )
    return found.model_copy(update={"reasons": (*found.reasons, why)}) if why else found


def load_prior(prior: LearnedPrior | str | Path = SHIPPED_PRIOR) -> LearnedPrior:
    """A prior as it is, from its file, or the one that is shipped. Raises StoreError where it cannot be read."""
    from sizewright.models.prior import LearnedPrior

    if isinstance(prior, LearnedPrior):
        return prior
    return LearnedPrior.load(None if prior == SHIPPED_PRIOR else prior)


def learn_prior(bank: str | Path | None = None, *, leave_out: Sequence[str] = ()) -> LearnedPrior:
    """Learn a prior from the bank in a folder, or the one that is shipped, without the base shapes named.

    Raises StoreError for a bank that cannot be read, NotEnoughDataError for one that is too small.
    """
    from sizewright.datasets.bank.files import load_bank
    from sizewright.models.prior import LearnedPrior

    loaded = load_bank(bank)
    bases = {job.base for job in loaded.jobs.values()}
    unknown = sorted(set(leave_out) - bases)
    if unknown:
        raise InputError(f"The bank has no base shape {unknown[0]!r}.", f"Name any of: {', '.join(sorted(bases))}.")
    jobs = {key: job for key, job in loaded.jobs.items() if job.base not in leave_out}
    return LearnedPrior.fit([trial for trial in loaded.trials if trial.job_hash in jobs], jobs)


def open_registry(tracking_uri: str | None = None) -> Registry:
    """The registry of learned priors at an MLflow URI, that of SIZEWRIGHT_TRACKING_URI, or a file here."""
    from sizewright.retraining.registry import Registry

    return Registry(tracking_uri or os.environ.get(TRACKING_VARIABLE) or DEFAULT_TRACKING)


def retrain(
    *,
    store: str | TrialStore | None = None,
    tracking_uri: str | None = None,
    bank: str | Path | None = SHIPPED_BANK,
    dry_run: bool = False,
    margin: float = 0.02,
    worst_family: float = 0.05,
    progress: Callable[[str], None] = lambda _: None,
) -> Retraining:
    """Learn the prior anew from the store's trials and runs and a bank's, log it to MLflow, and register it.

    It becomes the champion if its error on what is held out (base shapes of the bank, and one in four of your own
    trials and runs) is less than the champion's by the share `margin` and that of no family surely more by the share
    `worst_family`; else it stays challenger, with the reason. `bank` is a folder, "shipped", or None to learn from the
    store alone. In a `dry_run` nothing is logged or registered.

    Raises NotEnoughDataError where the store tells nothing new, RegistryError where the registry does not answer,
    MissingExtraError without mlflow.
    """
    from sizewright.datasets.bank.files import load_bank
    from sizewright.retraining.gate import Limits
    from sizewright.retraining.retrain import retrain as retrain_from_store

    registry, limits = open_registry(tracking_uri), Limits(margin, worst_family)
    with _open(store, create=False) as opened:
        loaded = load_bank(None if bank == SHIPPED_BANK else bank) if bank is not None else None
        return retrain_from_store(opened, registry, loaded, limits=limits, dry_run=dry_run, progress=progress)


def compare_priors(
    which: Sequence[str], *, store: str | TrialStore | None = None, tracking_uri: str | None = None
) -> list[dict[str, Any]]:
    """Registered priors, by number or alias, on what is held out of the shipped bank and of the store, if there is one.

    One row a version and family, and one for all. Raises InputError for a version that is not there, RegistryError.
    """
    from sizewright.datasets.bank.files import load_bank
    from sizewright.retraining.compare import compare_versions
    from sizewright.retraining.lessons import gather

    registry = open_registry(tracking_uri)
    versions = [registry.version(one) for one in which]
    try:
        with _open(store, create=False) as opened:
            lessons = gather(opened, load_bank())
    except NoTrialsError:
        lessons = gather(None, load_bank())
    return compare_versions(registry, versions, lessons)


def drift(*, store: str | TrialStore | None = None, tracking_uri: str | None = None) -> Drift:
    """Whether runs still go as foretold: by the champion of the registry (see `open_registry`), or by whatever
    foretold them where there is none."""
    from sizewright.retraining.drift import drift as drift_of

    asked = (
        tracking_uri or os.environ.get(TRACKING_VARIABLE) or Path(DEFAULT_TRACKING.removeprefix("sqlite:///")).exists()
    )
    champion = open_registry(tracking_uri).champion() if asked else None
    with _open(store, create=False) as opened:
        return drift_of(opened.history.finished(), champion.source if champion else "")


def measure_bank(
    folder: str | Path,
    *,
    resume: bool = False,
    sessions: int | None = None,
    progress: Callable[[BankStep], None] | None = None,
) -> dict[str, Any]:
    """Measure the bank's jobs on this host into a folder, at most so many `sessions` of them; the answer is its card.

    Every trial is kept at once; with `resume` it goes on with what is missing.
    Raises MissingExtraError without torch and ray, StoreError for a folder that cannot be used.
    """
    from sizewright.profiler.bank_series import measure_bank as measure_all
    from sizewright.profiler.bank_series import open_session

    return measure_all(folder, open_session, resume=resume, most_series=sessions, progress=progress)


def plan(job: JobLike, recommendation: Recommendation, *, current: Allocation | None = None) -> Plan:
    """The plan that launches a recommendation's target, or brings the job there from the `current` allocation.

    Raises InputError when it has none.
    """
    job = load_job(job)
    if recommendation.target is None:
        raise InputError(
            f"The recommendation for {recommendation.job} is '{recommendation.status}' and has no target to launch.",
            "Follow its remedies first.",
        )
    reason = " ".join(recommendation.reasons[:2])
    if current is not None:
        return adjust_plan(job, current, recommendation.target, reason).expecting(recommendation)
    return launch_plan(job, recommendation.target, reason).expecting(recommendation)


def run(
    plan: Plan | Job | str | Path,
    *,
    executor: str | Executor = "local",
    store: str | TrialStore | None = None,
    record: bool = True,
    tune: bool | Tuning | None = None,
    prior: PriorLike = None,
    tracking_uri: str | None = None,
    cluster: Cluster | str | Path | None = None,
    metrics: str | Path | None = None,
    metrics_port: int | None = None,
    metrics_host: str = LOCALHOST,
    progress: Callable[[RunProgress], None] | None = None,
    decided: Callable[[Decision], None] = lambda _: None,
    **options: Any,
) -> Outcome:
    """Train a plan's job at its target until all samples are trained, and say what became of it.

    A job, or its file, is sized first as `recommend` does, by the shipped prior where no other is asked for, and tuned
    while it trains; a plan's only with `tune`. `tune` may tell how; `decided` is called with every decision.
    Without a `cluster` what the local executor may use is what this host has. Meanwhile it is reached by `tune` in
    other processes; each look is appended to the file `metrics`, and told to whoever asks at `metrics_port`.

    `executor` is a name (`local`, `ray`), made with `options` such as `samples`, `folder`, `resume` and for ray
    `address`; or an executor of your own. `progress` is called twice a second. Ctrl-C stops the job and returns
    its outcome, `stopped`; one that failed on the way is an outcome too. Whatever became of it is kept in the store's
    history, with what its plan had foretold, unless `record` is false.

    Raises StoreError, before anything starts, for a store or file that cannot be used, InputError for a plan, option
    or port that cannot be, MissingExtraError without torch and ray, or prometheus_client for a port, EngineError when
    Ray or the host refuses.
    """
    from sizewright.executors import get_executor
    from sizewright.executors.run import run_plan

    if not isinstance(executor, str) and options:
        raise InputError("Options are for executors that are made by name.", "Give them to your executor itself.")
    made = get_executor(executor, **options) if isinstance(executor, str) else executor
    room = _load_cluster(cluster) or (_this_host() if made.name == "local" else None)
    told, _ = _prior_asked_for(prior, tracking_uri, SHIPPED_PRIOR)
    sized = isinstance(plan, Job) or (not isinstance(plan, Plan) and not is_plan(plan))
    chosen = _sized(plan, store, told, room) if sized else plan  # type: ignore[arg-type]
    chosen = chosen if isinstance(chosen, Plan) else Plan.load(chosen)  # type: ignore[arg-type]
    chosen = chosen.model_copy(update={"job": counted(chosen.job)})
    with ExitStack() as stack:
        opened = stack.enter_context(_open(store, create=True)) if record else None
        beside = None
        if tune or (tune is None and sized and not chosen.job.command):
            how = tune if isinstance(tune, Tuning) else Tuning()
            beside = stack.enter_context(_beside(chosen.job, made, how, store, told, room))
        companions = _companions(stack, metrics, metrics_port, metrics_host)
        keep = (lambda run: _keep(opened, run)) if opened else None
        return run_plan(
            made, chosen, progress=progress, tune=beside, decided=decided, companions=companions, record=keep
        )


def _companions(stack: ExitStack, metrics: str | Path | None, port: int | None, host: str) -> list[Companion]:
    """What is told of a run as it goes on, from before it starts until it has ended."""
    from sizewright.executors.control_socket import ControlSocket

    companions: list[Companion] = []
    if metrics is not None:
        from sizewright.executors.metrics_log import MetricsLog

        log = MetricsLog(metrics)
        log.check()
        companions.append(log.beside)
    if port is not None:
        companions.append(_metrics_port(stack, port, host))
    return [*companions, stack.enter_context(ControlSocket()).beside]


def _metrics_port(stack: ExitStack, port: int, host: str) -> Companion:
    from sizewright.executors.metrics_port import MetricsPort

    return stack.enter_context(MetricsPort(port, host)).beside


def tune(
    job: JobLike,
    *,
    replay: str | Path | None = None,
    change_s: float | None = None,
    prometheus: str | None = None,
    plans: str | Path | None = None,
    how: Tuning | None = None,
    store: str | TrialStore | None = None,
    prior: PriorLike = None,
    tracking_uri: str | None = None,
    cluster: Cluster | str | Path | None = None,
    metrics_port: int | None = None,
    metrics_host: str = LOCALHOST,
    progress: Callable[[RunProgress], None] = lambda _: None,
    decided: Callable[[Decision], None] = lambda _: None,
) -> list[Decision]:
    """Watch a job that another process runs, change it where that pays until it ends, and tell every decision.

    `job` is the name, file or handle id of what `run` trains on this host. With `replay`, a file that `run` recorded
    its metrics in, or `prometheus`, the URL of one that scrapes its metrics port, it is a job file, and nothing is
    changed: the decisions say what would be. Each change that is wanted is also written as a plan into the folder
    `plans`. `how` may ask for a dry run or name a file of decisions, from which the loop goes on; `change_s` are the
    seconds that a change is taken to cost in a replay. Ctrl-C ends the loop, and the job trains on.

    Raises InputError where no such job runs, or where it has another loop, and StoreError for what cannot be read.
    """
    from sizewright.executors.plan_folder import PlanFolder
    from sizewright.executors.run import progress_of
    from sizewright.executors.watch import watch
    from sizewright.executors.watched import watched

    told, _ = _prior_asked_for(prior, tracking_uri)
    decisions: list[Decision] = []
    with ExitStack() as stack:
        found = stack.enter_context(watched(job, replay=replay, change_s=change_s, prometheus=prometheus))
        running, how = found.running, found.how(how or Tuning())
        running.job = counted(running.job)
        listeners = [decisions.append, decided, *([PlanFolder(plans, running.job).decided] if plans else [])]
        running.listeners += listeners
        looks = [progress_of(running, progress)]
        if metrics_port is not None:
            looks.append(_metrics_port(stack, metrics_port, metrics_host)(running))
        room = _load_cluster(cluster) or (_this_host() if running.handle.executor == "local" else None)
        beside = _beside(running.job, running.executor, how, store, told or load_prior(), room, **found.times)
        running.tuner = stack.enter_context(beside)(running.handle, running.allocation)
        watch(
            running, running.tuner, looks=looks, forgive=lambda error: _LOG.warning("A turn was cut short: %s", error)
        )
    return decisions


def _sized(job: JobLike, store: str | TrialStore | None, prior: LearnedPrior | None, room: Cluster | None) -> Plan:
    """The plan that launches what the job is recommended. Raises InputError where nothing is."""
    job = load_job(job)
    found = recommend(job, store=store, prior=prior, cluster=room)
    if found.target is None:
        why = found.reasons[0] if found.reasons else f"It is {found.status}."
        todo = found.remedies[0].text if found.remedies else "Give it sizes: --workers, --ps, ..."
        raise InputError(f"{job.name} cannot be sized: {why}", todo)
    return launch_plan(job, found.target, " ".join(found.reasons[:2])).expecting(found)


def _beside(
    job: Job,
    executor: Executor,
    how: Tuning,
    store: str | TrialStore | None,
    prior: LearnedPrior | None,
    room: Cluster | None,
    **times: Any,
) -> AbstractContextManager[Beside]:
    """The control loop, with all that is known of the job before it runs."""
    trials, history = _evidence_of(job, store, needed=False)
    foretold = None
    if prior is not None:
        told = [filled(job, trial) for trial in trials if trial.usable]
        with suppress(NotEnoughDataError):
            foretold = prior.curve(job)
            foretold = warm_start(job, history, prior, foretold, told).curve or foretold
    return tuning(
        job, executor, how, trials=trials, foretold=foretold, cluster=room,
        forgive=lambda error: _LOG.warning("A decision is not in the log: %s", error), **times,
    )  # fmt: skip


def _this_host() -> Cluster:
    """What this host has for a job; the rest is for Ray and this process."""
    from sizewright.training.host import available_memory_bytes, host_cores

    cores = host_cores()
    host = HostKind(kind="host", cpu=cores, memory_bytes=available_memory_bytes())
    return Cluster(name="this host", hosts=(host,), quota=Quota(cpu=TRIAL_SHARE_OF_CORES * cores))


def memory(
    job: JobLike,
    *,
    trials: Sequence[Trial] = (),
    cluster: Cluster | str | Path | None = None,
) -> MemoryReport:
    """How much memory the job's tables need, table by table, and on how many servers, before anything runs."""
    job = load_job(job)
    if job.command:
        raise InputError(
            "Nothing is known of the memory of a command before it has run.",
            "Measure it: sizewright profile JOB; sizewright recommend then tells what to ask for.",
        )
    if job.model.tables.known:
        return report(job, list(trials), _load_cluster(cluster))
    from sizewright.datasets.vocabulary import count_rows
    from sizewright.models.row_growth import growth_of_tables

    vocabulary = count_rows(job)
    counted = vocabulary.tables
    ranges = [(table.lower, table.upper) for table in counted]
    growth = None
    if not vocabulary.exact:
        growth = growth_of_tables(vocabulary.growth_samples, [table.growth for table in counted])
    if growth:  # the order of the log counts: where new ids keep coming, more may come than its spectrum tells
        most = [int(table.upper(job.training.samples)) for table in growth]
        ranges = [(low, max(high, last)) for (low, high), last in zip(ranges, most, strict=True)]
    return report(job.with_rows(vocabulary.rows), list(trials), _load_cluster(cluster), ranges, growth)


def load_job(job: JobLike, data: str | None = None) -> Job:
    """A job as it is, or read from its file; with `data`, over that click log instead of its own data.

    Raises JobError for the file and ClickLogError for the log.
    """
    loaded = job if isinstance(job, Job) else Job.load(job)
    if data is None:
        return loaded
    from sizewright.datasets.source import open_log

    loaded = loaded.with_data(data)
    open_log(loaded)
    return loaded


def open_store(url: str | None = None, *, create: bool = False) -> TrialStore:
    """The store at `url`, else at $SIZEWRIGHT_STORE, else `sizewright.db` in the working folder."""
    url = url or os.environ.get(STORE_VARIABLE) or DEFAULT_STORE
    if is_in_memory(url):
        raise StoreError(f"{url} is in memory, and what is kept there would be lost.", "Name a file: --store trials.db")
    return TrialStore(url, create=create)


def counted(job: JobLike) -> Job:
    """The job with its tables counted in its data, where it asks for that."""
    job = load_job(job)
    if job.command or job.model.tables.known:
        return job
    from sizewright.datasets.vocabulary import count_rows

    return job.with_rows(count_rows(job).rows)


def check_log(job: Job) -> ReadReport | None:
    """What the first rows of the job's click log are like; None for synthetic data.

    Raises ClickLogError when the log cannot be read or has too many broken rows.
    """
    if job.data.format == "synthetic":
        return None
    from sizewright.datasets.source import open_log

    log = open_log(job)
    for batch in log.batches(4096):
        if log.report.rows >= _CHECKED_ROWS or not len(batch.labels):
            break
    return log.report


def job_hash(job: JobLike) -> str:
    """The hash under which the store keeps the trials of a job."""
    return counted(job).hash


def assign_job(trials: Sequence[Trial], job: JobLike) -> list[Trial]:
    """The same trials as measurements of `job`; batch size and mode are taken from it where a row has none."""
    job = counted(job)
    return [
        trial.model_copy(
            update={
                "job": job.name,
                "job_hash": job.hash,
                "batch_size": trial.batch_size or job.training.batch_size,
                "sync": trial.sync or job.training.sync,
            }
        )
        for trial in trials
    ]


def _open(store: str | TrialStore | None, *, create: bool) -> AbstractContextManager[TrialStore]:
    """A caller's own store stays open."""
    return nullcontext(store) if isinstance(store, TrialStore) else open_store(store, create=create)


def _keep(store: TrialStore, run: FinishedJob) -> None:
    """A run that has ended is not lost to its user because it cannot be recorded."""
    try:
        store.history.add([run])
    except StoreError as error:
        _LOG.warning("The run is not in the history: %s", error)


def _evidence_of(job: Job, store: str | TrialStore | None, *, needed: bool) -> tuple[list[Trial], list[FinishedJob]]:
    """Its trials in the store; runs of all jobs, or of it alone where its trials are needed since nothing else tells
    of it. None where there is no store and they are not needed."""
    try:
        with _open(store, create=False) as opened:
            return opened.trials(job_hash=job.hash), opened.history.finished(job_hash=job.hash if needed else None)
    except NoTrialsError:
        if needed:
            raise
        return [], []


def _prior_asked_for(
    prior: PriorLike, tracking_uri: str | None, usual: PriorLike = None
) -> tuple[LearnedPrior | None, str]:
    """The prior named, else the champion of the registry, if one is asked for, else the usual; and what is to be said
    of that."""
    uri = tracking_uri or os.environ.get(TRACKING_VARIABLE)
    prior = prior if prior is not None or uri else usual
    if prior is not None or not uri:
        return (load_prior(prior) if prior is not None else None), ""
    from sizewright.retraining.champion import champion_prior

    return champion_prior(uri)


def _foretold(prior: PriorLike, job: Job) -> JobCurve | None:
    try:
        return load_prior(prior).curve(job) if prior is not None else None
    except NotEnoughDataError as error:
        raise InputError(error.message, "Profile it without a prior.") from None


def _load_cluster(cluster: Cluster | str | Path | None) -> Cluster | None:
    return Cluster.load(cluster) if isinstance(cluster, (str, Path)) else cluster
