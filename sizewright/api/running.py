"""Run a job, and tune it while it runs."""

from __future__ import annotations

import getpass
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sizewright.api._records import ClusterLike, JobLike, PlanLike, QueueLike, RailsLike, StoreLike, as_record
from sizewright.api.applying import load_rails
from sizewright.api.inputs import (
    TRIAL_SHARE_OF_CORES,
    counted_job,
    evidence_of,
    load_cluster,
    load_job,
    opened_store,
)
from sizewright.api.priors import SHIPPED_PRIOR, custom_predictor, load_prior, select_prior
from sizewright.api.sizing import recommend
from sizewright.datasets.trials.store import TrialStore
from sizewright.datasets.trials.trial import Trial, now
from sizewright.errors import InputError, NotEnoughDataError, StoreError
from sizewright.models.factory import make_predictor
from sizewright.recommender.control.auto_scale import Scaling
from sizewright.recommender.control.scaler import AutoScaler
from sizewright.recommender.similar_jobs.warm_start import warm_start
from sizewright.recommender.sizing.evaluate_grid import with_defaults
from sizewright.runtime.audit_log import AuditLog
from sizewright.runtime.guardrail_executor import GuardrailExecutor
from sizewright.runtime.plan_files import is_plan, launch_plan
from sizewright.runtime.tuning import ControllerFactory, Tuning, controller_factory
from sizewright.settings import EnvironmentSettings
from sizewright.spec import Allocation, Cluster, Executor, HostKind, Job, Outcome, Plan, Quota, Rails, Recommendation

if TYPE_CHECKING:
    from sizewright.api.priors import PriorLike
    from sizewright.cluster.allocators import Allocator
    from sizewright.datasets.runs.finished_job import FinishedJob
    from sizewright.models import BaseThroughputModel
    from sizewright.models.prior import LearnedPrior
    from sizewright.recommender.control.decisions import Decision
    from sizewright.runtime.run import Observer, RunProgress

LOCALHOST = "127.0.0.1"
_LOG = logging.getLogger(__name__)


def run(
    plan: PlanLike | JobLike,
    *,
    executor: str | Executor = "local",
    store: StoreLike | None = None,
    record: bool = True,
    tune: bool | Tuning | None = None,
    prior: PriorLike = None,
    tracking_uri: str | None = None,
    cluster: ClusterLike | None = None,
    rails: RailsLike | None = None,
    ledger: str | Path | None = None,
    metrics: str | Path | None = None,
    metrics_port: int | None = None,
    metrics_host: str = LOCALHOST,
    data: str | Path | None = None,
    objective: str | None = None,
    deadline: str | float | None = None,
    progress: Callable[[RunProgress], None] | None = None,
    decided: Callable[[Decision], None] = lambda _: None,
    sized: Callable[[Recommendation], None] = lambda _: None,
    **options: object,
) -> Outcome:
    """Train the job of a plan at its target allocation until all samples are trained, and return the outcome.

    A job (a record, a dict or a file) is sized first, as by `recommend`, with the shipped prior unless another one is
    named; `sized` is called with the recommendation. Such a job is tuned while it trains, unless it runs a command; the
    job of a plan is tuned only with `tune`. `tune` may be a Tuning; `decided` is called with every decision. `data`,
    `objective` and `deadline` override those of a job. Without a `cluster`, the local executor may use what this host
    has.

    While the job trains, `tune` in another process can attach to it. Each metrics report is appended to the file
    `metrics`, and exported to Prometheus at `metrics_host`:`metrics_port`.

    The plan and every change have to respect `rails` ($SIZEWRIGHT_RAILS), and are recorded in the audit log `ledger`
    ($SIZEWRIGHT_LEDGER), where these are set.

    `executor` is a name (`local`, `ray`), made with `options` such as `samples`, `folder`, `resume` and, for ray,
    `address`; or your own executor. `progress` is called twice a second. Ctrl-C stops the job and returns its outcome
    with status `stopped`; a job that fails returns an outcome too. The outcome is kept in the history of the store,
    with the prediction of its plan, unless `record` is false.

    Raises StoreError, before anything starts, for a store or file that cannot be used, InputError for an invalid plan,
    option or port, MissingExtraError without torch and ray, or without prometheus_client for a port, EngineError when
    Ray or the host refuses.
    """
    from sizewright.executors import get_executor
    from sizewright.runtime.run import run_plan

    if not isinstance(executor, str) and options:
        raise InputError("Options apply only to executors that are named.", "Pass them to your executor itself.")
    loaded_executor = get_executor(executor, **options) if isinstance(executor, str) else executor
    loaded_rails = load_rails(rails)
    guarded = _guarded(loaded_executor, loaded_rails, ledger)
    capacity = load_cluster(cluster) or (this_host() if guarded.name == "local" else None)
    loaded_prior, _ = select_prior(prior, tracking_uri, SHIPPED_PRIOR)
    plan_or_job = _load_plan_or_job(plan, data, objective, deadline)
    (plan_or_job if isinstance(plan_or_job, Job) else plan_or_job.job).check_trainable()
    if isinstance(plan_or_job, Job):
        to_run = _size(loaded_rails.narrow(plan_or_job), store, loaded_prior, capacity, sized)
    else:
        to_run = plan_or_job
    to_run = to_run.model_copy(update={"job": loaded_rails.narrow(counted_job(to_run.job))})
    with ExitStack() as stack:
        opened = stack.enter_context(opened_store(store, create=True)) if record else None
        control_loop = None
        if tune or (tune is None and isinstance(plan_or_job, Job) and not to_run.job.command):
            settings = tune if isinstance(tune, Tuning) else Tuning()
            control_loop = stack.enter_context(
                _control_loop(to_run.job, guarded, settings, store, loaded_prior, capacity)
            )
        return run_plan(
            guarded,
            to_run,
            progress=progress,
            tune=control_loop,
            on_decision=decided,
            observers=_observers(stack, metrics, metrics_port, metrics_host),
            record=(lambda finished: _add_to_history(opened, finished)) if opened else None,
        )


def _load_plan_or_job(
    source: PlanLike | JobLike, data: str | Path | None, objective: str | None, deadline: str | float | None
) -> Plan | Job:
    """Return the plan or the job. Raises InputError when data, objective or deadline are passed with a plan."""
    is_file = isinstance(source, str | os.PathLike) and is_plan(source)
    if not (is_file or isinstance(source, Plan) or (isinstance(source, Mapping) and "target" in source)):
        return load_job(source, data, objective=objective, deadline=deadline)
    if data is not None or objective is not None or deadline is not None:
        raise InputError(
            "A plan already has its data and objective.", "Leave out data, objective and deadline, or pass the job."
        )
    return as_record(Plan, source, "plan")


def _guarded(executor: Executor, rails: Rails, ledger: str | Path | None) -> Executor:
    """Return the executor behind its guardrails and audit log; the executor itself when there are neither."""
    path = ledger or EnvironmentSettings.from_environment().ledger
    if rails == Rails() and not path:
        return executor
    audit_log = AuditLog(path) if path else None
    if audit_log:
        audit_log.check()
    return GuardrailExecutor(executor, rails=rails, audit_log=audit_log, asked_by=getpass.getuser(), once=False)


def _observers(stack: ExitStack, metrics: str | Path | None, port: int | None, host: str) -> list[Observer]:
    """Return the observers of a run: the metrics file, the metrics port and the control socket."""
    from sizewright.runtime.control_socket import ControlSocket

    observers: list[Observer] = []
    if metrics is not None:
        from sizewright.runtime.metrics_log import MetricsLog

        log = MetricsLog(metrics)
        log.check()
        observers.append(log.observer)
    if port is not None:
        observers.append(_metrics_port(stack, port, host))
    return [*observers, stack.enter_context(ControlSocket()).observer]


def _metrics_port(stack: ExitStack, port: int, host: str) -> Observer:
    from sizewright.runtime.metrics_port import MetricsPort

    return stack.enter_context(MetricsPort(port, host)).observer


def run_queue(
    cluster: ClusterLike,
    jobs: QueueLike,
    *,
    executor: Callable[[], Executor] | str = "local",
    policy: str | Allocator = "default",
    every_s: float = 300.0,
    store: StoreLike | None = None,
    record: bool = True,
    prior: PriorLike = None,
    tracking_uri: str | None = None,
    how: Tuning | None = None,
    decided: Callable[[str, Decision], None] = lambda name, decision: None,
) -> dict[str, Outcome]:
    """Train the jobs of a queue together on one cluster, and return their outcomes by name.

    The capacity is divided among the jobs by `policy`, when one of them ends and every `every_s` seconds: each job
    that trains offers what it could have, with the speeds that its own measurements predict, and follows its share; the
    others wait until there is room. A job that trains is not stopped for others. Jobs are those of `allocate`, sized
    with the shipped prior unless another one is named. `executor` is a name, or makes the executor of one job. `how` is
    the tuning of every job; `decided` is called with the name of a job and each decision. Outcomes are kept in the
    history of the store unless `record` is false. Ctrl-C stops all jobs.

    Raises InputError for jobs that cannot be sized or tuned (those with a command), or that run already, and errors of
    `run` before anything starts.
    """
    from sizewright.api.queues import as_queue, tables_in
    from sizewright.cluster.shared_cluster import SharedCluster
    from sizewright.executors import get_executor
    from sizewright.runtime.recorder import Recorder
    from sizewright.runtime.shared_run import LaunchedJob, SharedRun

    capacity = as_record(Cluster, cluster, "cluster")
    shared = SharedCluster(capacity, policy, every_s=every_s)
    loaded_prior, _ = select_prior(prior, tracking_uri, SHIPPED_PRIOR)
    settings = how or Tuning()
    tables, jobs_by_name, left_out = tables_in(as_queue(jobs), capacity, store, loaded_prior)
    if left_out:
        raise InputError(f"{left_out[0].job} cannot be run: {left_out[0].why}", "Measure it, or leave it out.")
    if running := [table.name for table in tables if table.current is not None]:
        raise InputError(f"{running[0]} runs already, elsewhere.", "Leave it out.")
    with ExitStack() as stack:
        opened = stack.enter_context(opened_store(store, create=True)) if record else None
        executors = {name: get_executor(executor) if isinstance(executor, str) else executor() for name in jobs_by_name}
        loops = {
            name: stack.enter_context(_control_loop(job, executors[name], settings, store, loaded_prior, capacity))
            for name, job in jobs_by_name.items()
        }

        def launch(name: str, allocation: Allocation) -> LaunchedJob:
            plan = launch_plan(jobs_by_name[name], allocation, "It is its share of the cluster.")
            started_at = now()
            handle = executors[name].launch(plan)
            recorder = Recorder(plan, handle, time.monotonic, started_at)

            def end(outcome: Outcome) -> Outcome:
                finished = recorder.finished(outcome)
                if opened:
                    _add_to_history(opened, finished)
                return finished.outcome

            controller = loops[name](handle, allocation)
            return LaunchedJob(executors[name], handle, controller, recorder.on_metrics, end, partial(decided, name))

        shared_run = SharedRun(shared, launch, time.monotonic)
        for table in tables:
            shared_run.submit(table)
        try:
            while shared_run.waiting or shared_run.running:
                shared_run.step()
                time.sleep(settings.turn_s)
        except KeyboardInterrupt:
            _LOG.warning("All jobs are stopped.")
        finally:
            shared_run.stop()
    return shared_run.outcomes


def tune(
    job: JobLike,
    *,
    replay: str | Path | None = None,
    change_s: float | None = None,
    prometheus: str | None = None,
    plans: str | Path | None = None,
    how: Tuning | None = None,
    store: StoreLike | None = None,
    model: str | BaseThroughputModel | None = None,
    prior: PriorLike = None,
    tracking_uri: str | None = None,
    cluster: ClusterLike | None = None,
    metrics_port: int | None = None,
    metrics_host: str = LOCALHOST,
    progress: Callable[[RunProgress], None] = lambda _: None,
    decided: Callable[[Decision], None] = lambda _: None,
) -> list[Decision]:
    """Watch a job that another process runs, adjust it where that pays, and return the decisions when it ends.

    `job` is the name, file or handle id of a job that `run` trains on this host. With `replay`, a metrics file that
    `run` wrote, or `prometheus`, the URL of a server that scrapes its metrics port, `job` is a job file and nothing is
    changed: the decisions say what would be done. Each proposed change is also written as a plan into the folder
    `plans`. `how` may request a dry run, or name a file of decisions, which the loop continues. `change_s` is the
    assumed cost of a change in a replay, in seconds. `model`, a name or a model of your own, predicts the throughput in
    place of the default one and its prior. Ctrl-C ends the loop; the job trains on.

    Raises InputError for a model with a prior, when no such job runs or when another loop tunes it, and StoreError for
    what cannot be read.
    """
    from sizewright.runtime.plan_folder import PlanFolder
    from sizewright.runtime.run import progress_of
    from sizewright.runtime.watched import job_to_watch, watch

    job = job if isinstance(job, str | Path) else load_job(job)
    custom_model = custom_predictor(model, prior)
    loaded_prior = None if custom_model else select_prior(prior, tracking_uri)[0] or load_prior()
    decisions: list[Decision] = []
    with ExitStack() as stack:
        target = stack.enter_context(job_to_watch(job, replay=replay, change_s=change_s, prometheus=prometheus))
        running, settings = target.running, target.attach(how or Tuning())
        running.job = counted_job(running.job)
        running.listeners += [decisions.append, decided]
        if plans:
            running.listeners.append(PlanFolder(plans, running.job).on_decision)
        callbacks = [progress_of(running, progress)]
        if metrics_port is not None:
            callbacks.append(_metrics_port(stack, metrics_port, metrics_host)(running))
        capacity = load_cluster(cluster) or (this_host() if running.handle.executor == "local" else None)
        control_loop = _control_loop(
            running.job, running.executor, settings, store, loaded_prior, capacity, custom_model, **target.times
        )
        running.controller = stack.enter_context(control_loop)(running.handle, running.allocation)
        watch(
            running,
            running.controller,
            callbacks=callbacks,
            on_error=lambda error: _LOG.warning("One pass of the control loop failed: %s", error),
        )
    return decisions


def _size(
    job: Job,
    store: StoreLike | None,
    prior: LearnedPrior | None,
    capacity: Cluster | None,
    sized: Callable[[Recommendation], None],
) -> Plan:
    """Return the plan that launches the recommended target. Raises InputError when there is no target."""
    recommendation = recommend(job, store=store, prior=prior, cluster=capacity)
    reasons, remedies = recommendation.reasons, recommendation.remedies
    if recommendation.target is None:
        why = " ".join(reasons) or f"the recommendation is '{recommendation.status}'."
        remedy = remedies[0].text if remedies else "Pass a plan with the sizes instead."
        raise InputError(f"{job.name} cannot be sized: {why}", remedy)
    sized(recommendation)
    return launch_plan(job, recommendation.target, " ".join(reasons[:2])).expecting(recommendation)


def _control_loop(
    job: Job,
    executor: Executor,
    settings: Tuning,
    store: StoreLike | None,
    prior: LearnedPrior | None,
    capacity: Cluster | None,
    custom_model: BaseThroughputModel | None = None,
    **times: Any,
) -> AbstractContextManager[ControllerFactory]:
    """Return the control loop of a job, prepared with its stored trials, the history and the prior."""
    trials, predictor = _evidence(job, store, prior)
    return controller_factory(
        job,
        executor,
        settings,
        trials=trials,
        predictor=custom_model or predictor,
        cluster=capacity,
        on_error=lambda error: _LOG.warning("A decision could not be written to the log: %s", error),
        **times,
    )


def _evidence(job: Job, store: StoreLike | None, prior: LearnedPrior | None) -> tuple[list[Trial], BaseThroughputModel]:
    """Return the trials of a job in the store, and a predictor that starts from the history and the prior."""
    trials, history = evidence_of(job, store)
    curve = None
    if prior is not None:
        usable = [with_defaults(job, trial) for trial in trials if trial.usable]
        with suppress(NotEnoughDataError):
            curve = prior.curve(job)
            curve = warm_start(job, history, prior, curve, usable).curve or curve
    return list(trials), make_predictor(curve)


def auto_scaler(
    job: Job,
    scaling: Scaling,
    *,
    store: StoreLike | None = None,
    prior: PriorLike = None,
    tracking_uri: str | None = None,
    cluster: ClusterLike | None = None,
) -> AutoScaler:
    """Return the scale step of a running job, with its trials in the store, the history and the prior."""
    trials, predictor = _evidence(job, store, select_prior(prior, tracking_uri)[0])
    return AutoScaler(job, trials, predictor, cluster=load_cluster(cluster), scaling=scaling)


def _add_to_history(store: TrialStore, run: FinishedJob) -> None:
    """Record a finished run. A store that fails only logs a warning: the outcome must still reach the caller."""
    try:
        store.history.add([run])
    except StoreError as error:
        _LOG.warning("The run could not be added to the history: %s", error)


def this_host() -> Cluster:
    """Return the part of this host that a job may use; the rest is for Ray and this process."""
    from sizewright.training.host.capacity import available_memory_bytes, host_cores

    cores = host_cores()
    host = HostKind(kind="host", cpu=cores, memory_bytes=available_memory_bytes())
    return Cluster(name="this host", hosts=(host,), quota=Quota(cpu=TRIAL_SHARE_OF_CORES * cores))
