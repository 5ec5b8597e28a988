"""Running a job, and tuning it while it runs."""

from __future__ import annotations

import getpass
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sizewright.api._records import ClusterLike, JobLike, PlanLike, RailsLike, StoreLike, as_record
from sizewright.api.applying import LEDGER_VARIABLE, load_rails
from sizewright.api.inputs import (
    TRIAL_SHARE_OF_CORES,
    counted,
    evidence_of,
    its_store,
    load_cluster,
    load_job,
)
from sizewright.api.priors import SHIPPED_PRIOR, load_prior, prior_asked_for
from sizewright.api.sizing import recommend
from sizewright.datasets.store import TrialStore
from sizewright.errors import InputError, NotEnoughDataError, StoreError
from sizewright.executors.guarded import Guarded
from sizewright.executors.ledger import Ledger
from sizewright.executors.plan_files import is_plan, launch_plan
from sizewright.executors.tuning import Beside, Tuning, tuning
from sizewright.recommender.consider import filled
from sizewright.recommender.warm_start import warm_start
from sizewright.spec import Cluster, Executor, HostKind, Job, Outcome, Plan, Quota, Rails, Recommendation

if TYPE_CHECKING:
    from sizewright.api.priors import PriorLike
    from sizewright.datasets.finished import FinishedJob
    from sizewright.executors.run import Companion, RunProgress
    from sizewright.models.prior import LearnedPrior
    from sizewright.recommender.decisions import Decision

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
    """Train a plan's job at its target until all samples are trained, and say what became of it.

    A job, its dict or its file, is sized first as `recommend` does, by the shipped prior where no other is asked for,
    which `sized` is told, and tuned while it trains; a plan's only with `tune`. `tune` may tell how; `decided` is
    called with every decision. `data`, `objective` and `deadline` take the place of a job's own.
    Without a `cluster` what the local executor may use is what this host has. Meanwhile it is reached by `tune` in
    other processes; each look is appended to the file `metrics`, and told to whoever asks at `metrics_port`.

    The plan and every change are held to `rails` ($SIZEWRIGHT_RAILS), and recorded in `ledger` ($SIZEWRIGHT_LEDGER), if
    there are such.

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
    held = load_rails(rails)
    made = _guarded(made, held, ledger)
    room = load_cluster(cluster) or (this_host() if made.name == "local" else None)
    told, _ = prior_asked_for(prior, tracking_uri, SHIPPED_PRIOR)
    loaded = _plan_or_job(plan, data, objective, deadline)
    is_job = isinstance(loaded, Job)
    chosen = _sized(held.narrow(loaded), store, told, room, sized) if isinstance(loaded, Job) else loaded
    chosen = chosen.model_copy(update={"job": held.narrow(counted(chosen.job))})
    with ExitStack() as stack:
        opened = stack.enter_context(its_store(store, create=True)) if record else None
        beside = None
        if tune or (tune is None and is_job and not chosen.job.command):
            how = tune if isinstance(tune, Tuning) else Tuning()
            beside = stack.enter_context(_beside(chosen.job, made, how, store, told, room))
        companions = _companions(stack, metrics, metrics_port, metrics_host)
        keep = (lambda run: _keep(opened, run)) if opened else None
        return run_plan(
            made, chosen, progress=progress, tune=beside, decided=decided, companions=companions, record=keep
        )


def _plan_or_job(
    given: PlanLike | JobLike, data: str | Path | None, objective: str | None, deadline: str | float | None
) -> Plan | Job:
    """Raises InputError for a plan that is to have other data or another objective."""
    is_file = isinstance(given, str | os.PathLike) and is_plan(given)
    if not (is_file or isinstance(given, Plan) or (isinstance(given, Mapping) and "target" in given)):
        return load_job(given, data, objective=objective, deadline=deadline)
    if data is not None or objective is not None or deadline is not None:
        raise InputError("A plan has data and an objective already.", "Pass the job, or leave them out.")
    return as_record(Plan, given, "plan")


def _guarded(executor: Executor, rails: Rails, ledger: str | Path | None) -> Executor:
    path = ledger or os.environ.get(LEDGER_VARIABLE)
    if rails == Rails() and not path:
        return executor
    book = Ledger(path) if path else None
    if book:
        book.check()
    return Guarded(executor, rails=rails, ledger=book, asked_by=getpass.getuser(), once=False)


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
    store: StoreLike | None = None,
    prior: PriorLike = None,
    tracking_uri: str | None = None,
    cluster: ClusterLike | None = None,
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

    job = job if isinstance(job, str | Path) else load_job(job)
    told, _ = prior_asked_for(prior, tracking_uri)
    decisions: list[Decision] = []
    with ExitStack() as stack:
        found = stack.enter_context(watched(job, replay=replay, change_s=change_s, prometheus=prometheus))
        running, how = found.running, found.how(how or Tuning())
        running.job = counted(running.job)
        listeners = [
            decisions.append,
            decided,
            *([PlanFolder(plans, running.job).decided] if plans else []),
        ]
        running.listeners += listeners
        looks = [progress_of(running, progress)]
        if metrics_port is not None:
            looks.append(_metrics_port(stack, metrics_port, metrics_host)(running))
        room = load_cluster(cluster) or (this_host() if running.handle.executor == "local" else None)
        beside = _beside(running.job, running.executor, how, store, told or load_prior(), room, **found.times)
        running.tuner = stack.enter_context(beside)(running.handle, running.allocation)
        watch(
            running, running.tuner, looks=looks, forgive=lambda error: _LOG.warning("A turn was cut short: %s", error)
        )
    return decisions


def _sized(
    job: JobLike,
    store: StoreLike | None,
    prior: LearnedPrior | None,
    room: Cluster | None,
    sized: Callable[[Recommendation], None],
) -> Plan:
    """The plan that launches what the job is recommended. Raises InputError where nothing is."""
    job = load_job(job)
    found = recommend(job, store=store, prior=prior, cluster=room)
    if found.target is None:
        why = " ".join(found.reasons) if found.reasons else f"It is {found.status}."
        todo = found.remedies[0].text if found.remedies else "Give it sizes: workers, ps, ..."
        raise InputError(f"{job.name} cannot be sized: {why}", todo)
    sized(found)
    return launch_plan(job, found.target, " ".join(found.reasons[:2])).expecting(found)


def _beside(
    job: Job,
    executor: Executor,
    how: Tuning,
    store: StoreLike | None,
    prior: LearnedPrior | None,
    room: Cluster | None,
    **times: Any,
) -> AbstractContextManager[Beside]:
    """The control loop, with all that is known of the job before it runs."""
    trials, history = evidence_of(job, store, needed=False)
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


def _keep(store: TrialStore, run: FinishedJob) -> None:
    """A run that has ended is not lost to its user because it cannot be recorded."""
    try:
        store.history.add([run])
    except StoreError as error:
        _LOG.warning("The run is not in the history: %s", error)


def this_host() -> Cluster:
    """What this host has for a job; the rest is for Ray and this process."""
    from sizewright.training.host import available_memory_bytes, host_cores

    cores = host_cores()
    host = HostKind(kind="host", cpu=cores, memory_bytes=available_memory_bytes())
    return Cluster(name="this host", hosts=(host,), quota=Quota(cpu=TRIAL_SHARE_OF_CORES * cores))
