"""The control loop of the operator: look at all jobs that ask for sizes, and size those that are suspended.

A turn lists the jobs and handles each by what its object says, so that nothing is lost when the operator ends at any
moment, or another one takes over.
"""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from typing import Any, NamedTuple

from sizewright.cluster.problem.candidates import JobTable
from sizewright.datasets.trials.trial import Trial
from sizewright.errors import EngineError, InputError, SizewrightError
from sizewright.executors.kubernetes.api import KubeApi
from sizewright.executors.kubernetes.cluster_executor import QUEUE_LABEL
from sizewright.executors.kubernetes.merge_patch import merge_patch, merged
from sizewright.executors.kubernetes.objects import seconds_of
from sizewright.executors.plan_annotations import OF_A_PLAN, REASON, has_plan, plan_annotations, read_plan
from sizewright.operator import labels
from sizewright.operator.decide import Decision, Policy, decide
from sizewright.operator.job_copies import JobCopies
from sizewright.operator.job_description import describe_job
from sizewright.operator.job_kinds import JobKind, job_kinds
from sizewright.operator.labels import annotations_of, name_of, uid_of
from sizewright.operator.metrics import OperatorMetrics
from sizewright.operator.sharing import Options, Sharing, allocation_of, alternatives, running_table
from sizewright.operator.trial_jobs import TrialJobs, TrialSettings
from sizewright.operator.tuner import RESIZED, SCALED, Tuner, TuningSettings
from sizewright.recommender.control.auto_scale import Scaling
from sizewright.recommender.control.scaler import AutoScaler
from sizewright.runtime.guardrails import check_rails
from sizewright.spec import Allocation, Cluster, Job, Rails, Recommendation

_LOG = logging.getLogger(__name__)

_FIRST_RETRY_S, _MAX_RETRY_S = 10.0, 300.0
_FRESH_S = 5.0
"""A job that was listed earlier is read again before it is sized."""
_MAX_TUNING_S = 10.0
"""Running jobs are looked at for so long in one turn."""
_IMMUTABLE = "immutable"
"""The word with which servers and webhooks refuse to let a field change, with 422 or 403."""
_MAX_MESSAGE = 1000  # characters of an Event's message: the server takes 1024

Act = Callable[[JobKind, dict[str, Any]], None]
"""Acts on a suspended job as it is now, of a kind with an executor for it."""


@dataclass(frozen=True, kw_only=True)
class OperatorSettings:
    """What the operator may do, and how much of it at a time."""

    policy: Policy = "leave"
    rails: Rails = field(default_factory=Rails)
    """Guardrails of all jobs."""
    namespaces: Sequence[str] = ("",)
    """Namespaces whose jobs are sized; an empty name stands for all of them."""
    dry_run: bool = False
    """Write Events only."""
    recreates: bool = False
    """Delete jobs whose sizes cannot change, and create them again, if their annotation allows it."""
    copies_in: str | None = None
    """Namespace for copies of jobs that are being created again; without one, a job may be lost with the operator."""
    jobs_per_s: float = 10.0
    """At most so many jobs are sized in a second."""
    limit_s: float = 1800.0
    """A job that cannot be sized for so long is resumed as it is."""
    reuse_s: float = 60.0
    """An answer serves all jobs of the same description for so long."""
    trials: TrialSettings = field(default_factory=TrialSettings)
    """The trial jobs of the policy `trials`."""
    tuning: TuningSettings = field(default_factory=TuningSettings)
    """What changes of running jobs."""
    shared: Cluster | None = None
    """The capacity that all jobs share; None where each gets what is recommended for it alone."""
    share_every_s: float = 300.0
    """The capacity is divided at arrivals and ends, and after so long."""


class _Failure(NamedTuple):
    """A job that could not be sized: how often and why, and when it is tried again on the operator's clock."""

    times: int
    message: str
    again_at_s: float


class Operator:
    """Sizes the suspended jobs of a cluster that ask for it.

    `answer` recommends the size of a job, `known_jobs` returns the descriptions in the history, and `record` keeps the
    trial of a trial job. `scaler` knows how a job trains with other numbers of workers. `check` is called before
    anything is asked or changed, and ends the turn by raising. `told` gets the name of a job and what an Event says of
    it. `clock` measures pauses, and `now` is the time of day.
    """

    def __init__(
        self,
        api: KubeApi,
        answer: Callable[[Job], Recommendation],
        known_jobs: Callable[[], Sequence[Job]] = list,
        settings: OperatorSettings = OperatorSettings(),
        metrics: OperatorMetrics | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        check: Callable[[], None] = lambda: None,
        told: Callable[[str, str], None] = lambda name, message: None,
        record: Callable[[Trial], None] = lambda trial: None,
        scaler: Callable[[Job, Scaling], AutoScaler] = lambda job, scaling: AutoScaler(job, scaling=scaling),
    ) -> None:
        self._api = api
        self._answer = answer
        self._load_known_jobs = known_jobs
        self._settings = settings
        self._metrics = metrics or OperatorMetrics(clock)
        self._clock, self._now, self._sleep = clock, now, sleep
        self._check = check
        self._told = told
        self._kinds = job_kinds(api)
        self._copies = JobCopies(api, self._settings.copies_in if self._settings.recreates else None)
        self._record = record
        self._trials = TrialJobs(
            api,
            self._recorded,
            settings.trials,
            settings.rails,
            settings.limit_s,
            lambda job_object, message: self._tell(job_object, "Trial", message),
            now,
        )
        self._sharing = (
            Sharing(settings.shared, settings.share_every_s, clock, dry_run=settings.dry_run)
            if settings.shared
            else None
        )
        self._tuner = Tuner(
            api,
            settings.tuning,
            settings.rails,
            scaler,
            self._tell_of_change,
            clock,
            now,
            dry_run=settings.dry_run,
            sharing=self._sharing,
        )
        self._answers: dict[str, tuple[float, Recommendation]] = {}
        self._known_jobs: Sequence[Job] | None = None
        self._failures: dict[str, _Failure] = {}
        self._shown: set[str] = set()
        """Uids of jobs that nothing more is said of: a dry run has decided on them, or they run already."""
        self._uncounted: set[str] = set()
        """Uids of running jobs of which it was told that their sizes cannot be read."""
        self._told_to_wait: set[str] = set()
        """Uids of jobs that would wait by a dry run; others have an annotation."""
        self._seen: set[str] = set()
        """Uids of the jobs of this turn."""
        self._places: dict[str, tuple[str, str]] = {}
        """Kind and namespace, as they are listed, of each uid that is remembered."""
        self.errors: list[SizewrightError] = []
        """Why the last turn could not look at all jobs."""

    def turn(self) -> int:
        """Handle the jobs that are due, and return how many that were."""
        handled, unread = 0, set[tuple[str, str]]()
        running, listed = list[tuple[JobKind, dict[str, Any]]](), list[tuple[JobKind, dict[str, Any]]]()
        self.errors, self._known_jobs, self._seen = [], None, set()
        self._restore()
        self._keep(self._trials.look(self._kinds, self._settings.namespaces))
        measured = set[str]()
        for kind, namespace in itertools.product(self._kinds, self._settings.namespaces):
            self._check()
            self._metrics.alive()
            executor, listed_at_s = kind.executor, self._clock()
            try:
                found = self._api.list(executor.api_version, executor.kind, namespace, labels.SIZE, skip_odd=True)
            except SizewrightError as error:
                self._keep([error])
                unread.add((executor.kind, namespace))
                continue
            self._seen.update(map(uid_of, found))
            self._places.update(dict.fromkeys(map(uid_of, found), (executor.kind, namespace)))
            listed += [(kind, job_object) for job_object in found]
            for job_object in found:
                if kind.is_suspended(job_object) and not _is_sized(job_object) and self._measures(job_object):
                    measured.add(uid_of(job_object))
                if self._may_tune(kind, job_object) and self._tuner.late_s(job_object) >= 0:
                    running.append((kind, job_object))
                if not self._is_due(job_object):
                    continue
                if kind.is_suspended(job_object):
                    began_s = self._clock()
                    self._check()
                    self._handle(kind, job_object, self._size, is_fresh=began_s - listed_at_s < _FRESH_S)
                    handled += 1
                    self._pause_since(began_s)
                else:
                    self._tell_of_running(kind, job_object)
        if self._sharing:
            self._sharing.is_blind = bool(unread)
            handled += 0 if unread else self._share(self._sharing, listed)
        self._tune(running)
        if not self._settings.dry_run:
            self._check()
            self._keep(self._trials.end_all_but(measured, unread))
        self._forget_all_but({uid for uid, place in self._places.items() if uid in self._seen or place in unread})
        self._metrics.turned()
        return handled

    def _restore(self) -> None:
        """Create the jobs again that an operator had deleted when it was killed."""
        self._check()
        try:
            for job_object in self._copies.restore():
                self._mark(job_object)
                self._tell(job_object, "Sized", "It was created again with its sizes.")
        except SizewrightError as error:
            self._metrics.failed()
            self.errors.append(error)

    def _share(self, sharing: Sharing, listed: Sequence[tuple[JobKind, dict[str, Any]]]) -> int:
        """Divide the cluster if that is due, resume whose share is free, and return how many jobs were handled."""
        tables = [table for each in listed if (table := self._running_table(sharing, *each))]
        suspended = {
            uid_of(each): (kind, each)
            for kind, each in listed
            if kind.is_suspended(each) and not each["metadata"].get("deletionTimestamp")
        }
        self._metrics.alive()
        try:
            sharing.update(tables, suspended.keys())
        except SizewrightError as error:
            self._keep([error])
            return 0
        handled = 0
        for uid in sharing.waiting:
            kind, job_object = suspended[uid]
            act = partial(self._take_share, sharing)
            if sharing.may_start(uid) or not self._is_told_to_wait(job_object):
                began_s = self._clock()
                self._check()
                self._handle(kind, job_object, act, is_fresh=False)
                handled += 1
                self._pause_since(began_s)
        self._metrics.waiting = len(sharing.waiting)
        return handled

    def _running_table(self, sharing: Sharing, kind: JobKind, job_object: dict[str, Any]) -> JobTable | None:
        """Return what a running job has and could have; None for one that does not run, or whose sizes are unknown."""
        if kind.is_suspended(job_object) or kind.executor.end_status(job_object) is not None:
            return None
        uid = uid_of(job_object)
        try:
            job = read_plan(job_object).job if has_plan(job_object) else Job()
            held = sharing.counted(allocation_of(kind.for_job(job_object, self._api).executor, job_object), job)
        except Exception as error:  # one job must not stop the others
            if uid not in self._uncounted:
                self._uncounted.add(uid)
                self._tell(job_object, "NotCounted", f"What it uses of the cluster is not counted. {error}", "Warning")
            return None
        offered = self._tuner.offered(job_object) if self._may_tune(kind, job_object) else None
        return running_table(uid, held, offered)

    def _take_share(self, sharing: Sharing, kind: JobKind, job_object: dict[str, Any]) -> None:
        """Write the share of a job that waits into its object, and resume it; without one it is told that it waits."""
        uid = uid_of(job_object)
        if not sharing.asks_for(uid, job_object):
            return  # it is sized again in the next turn
        if share := sharing.share(uid):
            job, answer = sharing.offer_at(uid, share)
            self._carry_out(kind, job_object, decide(job, answer, self._settings.policy))
            sharing.has_resumed(uid, share)
        elif not self._is_told_to_wait(job_object):
            self._tell_to_wait(job_object, sharing.reason(uid))

    def _is_told_to_wait(self, job_object: Mapping[str, Any]) -> bool:
        annotations = annotations_of(job_object)
        is_annotated = labels.WAITS in annotations and labels.FAILING_SINCE not in annotations
        return uid_of(job_object) in self._told_to_wait if self._settings.dry_run else is_annotated

    def _tell_to_wait(self, job_object: dict[str, Any], sentence: str) -> None:
        """Say why a job waits. It could be sized, so that its time to be resumed as it is does not run."""
        if self._settings.dry_run:
            self._told_to_wait.add(uid_of(job_object))
            self._tell(job_object, "WouldWait", f"Nothing is changed. {sentence}")
            return
        annotations: dict[str, str | None] = {labels.WAITS: sentence}
        if labels.FAILING_SINCE in annotations_of(job_object):
            annotations[labels.FAILING_SINCE] = None
        self._check()
        self._api.change(job_object, {"metadata": {"annotations": annotations}})
        self._tell(job_object, "WaitsForCapacity", sentence)

    def _tune(self, running: Sequence[tuple[JobKind, dict[str, Any]]]) -> None:
        """Look at running jobs, for so long that jobs that are to be sized do not wait much for them."""
        began_s = self._clock()
        for kind, listed in sorted(running, key=lambda each: -self._tuner.late_s(each[1])):
            if self._clock() - began_s > _MAX_TUNING_S:
                return  # the others are due in the next turn
            self._check()
            self._metrics.alive()
            self._tuner.tune(kind, listed, partial(self._may_tune, kind))

    def _pause_since(self, began_s: float) -> None:
        """Wait, so that no more jobs are handled in a second than may be."""
        self._metrics.alive()
        self._sleep(max(0.0, began_s + 1 / self._settings.jobs_per_s - self._clock()))

    def _may_tune(self, kind: JobKind, job_object: dict[str, Any]) -> bool:
        """Return whether a job runs with sizes of this operator, and lets them change."""
        return (
            _is_sized(job_object)
            and has_plan(job_object)
            and not kind.is_suspended(job_object)
            and not job_object["metadata"].get("deletionTimestamp")
            and kind.executor.end_status(job_object) is None
            and any(self._tuner.may_change(job_object))
        )

    def _keep(self, errors: Iterable[SizewrightError]) -> None:
        """Keep errors of this turn that are of no single job."""
        for error in errors:
            if str(error) not in map(str, self.errors):
                self._metrics.failed()
                self.errors.append(error)

    def _tell_of_change(self, job_object: Mapping[str, Any], reason: str, message: str, kind: str) -> None:
        if reason in (RESIZED, SCALED):
            self._metrics.changed(reason.lower())
        self._tell(job_object, reason, message, kind)

    def _recorded(self, trial: Trial) -> None:
        self._record(trial)
        self._metrics.measured(trial.status)
        self._answers.clear()  # they rest on the trials before

    def _mark(self, created: dict[str, Any]) -> dict[str, Any]:
        """Note that an object that was created again has its sizes."""
        return self._api.change(created, {"metadata": {"annotations": {labels.SIZED: uid_of(created)}}})

    def _remember(self, created: Mapping[str, Any], job_object: Mapping[str, Any]) -> None:
        """Remember an object that may have been created again in place of one that was listed."""
        self._seen.add(uid_of(created))
        self._places[uid_of(created)] = self._places[uid_of(job_object)]

    def _forget_all_but(self, uids: set[str]) -> None:
        self._places = {uid: place for uid, place in self._places.items() if uid in uids}
        self._tuner.forget_all_but(uids)
        self._failures = {uid: failure for uid, failure in self._failures.items() if uid in uids}
        self._shown &= uids
        self._uncounted &= uids
        self._told_to_wait &= uids

    def _is_due(self, job_object: dict[str, Any]) -> bool:
        """Return whether a job was neither sized nor told of, and is not to be tried again only later."""
        uid = uid_of(job_object)
        if _is_sized(job_object) or uid in self._shown or job_object["metadata"].get("deletionTimestamp"):
            return False
        if self._sharing and self._sharing.has_offer(job_object):
            return False
        failure = self._failures.get(uid)
        return failure is None or self._clock() >= failure.again_at_s

    def _tell_of_running(self, kind: JobKind, job_object: dict[str, Any]) -> None:
        """Tell once of a new job that runs without having been sized."""
        self._shown.add(uid_of(job_object))
        created_s = seconds_of(job_object["metadata"].get("creationTimestamp"))
        is_new = created_s is not None and self._now() - created_s < self._settings.limit_s
        if is_new and kind.executor.end_status(job_object) is None:
            self._tell(job_object, "NotSuspended", "It was not suspended any more, and keeps its sizes.", "Warning")

    def _handle(self, kind: JobKind, job_object: dict[str, Any], act: Act, *, is_fresh: bool) -> None:
        """Act on a suspended job. What goes wrong is told by an Event, and tried again later."""
        try:
            if not is_fresh:
                current = self._read(kind, job_object)
                if current is None or not kind.is_suspended(current) or _is_sized(current):
                    return
                job_object = current
            _check_label(job_object)
            act(kind.for_job(job_object, self._api), job_object)
        except SizewrightError as error:
            self._failed(kind, job_object, error)
        except Exception as error:  # one job must not stop the others
            _LOG.exception(f"{name_of(job_object)} could not be sized.")
            self._failed(kind, job_object, EngineError(f"It could not be sized: {type(error).__name__}: {error}."))
        else:
            if not (self._sharing and self._sharing.has_offer(job_object)):  # it may be refused its share yet
                self._failures.pop(uid_of(job_object), None)

    def _size(self, kind: JobKind, job_object: dict[str, Any]) -> None:
        """Write the sizes of a job into its object, and resume it if it asks for that; or let it wait for its share."""
        described = describe_job(job_object, kind.executor, self._api, self._known)
        job = self._settings.rails.narrow(described)
        answer = self._answer_for(job)
        if answer.target is None and self._measures(job_object):
            if self._settings.dry_run:
                self._shown.add(uid_of(job_object))
                self._tell(job_object, "WouldSize", "Nothing is changed. Trial jobs would measure it first.")
                return
            self._check()
            if self._trials.advance(kind, job_object, job):
                return
        if self._sharing and _asks_to_start(job_object):
            options = self._options(self._sharing, kind, job_object, job, answer)
            if all(option.cores() for option in options):  # what states no cores takes none that are counted
                self._sharing.add(job_object, job, answer, options)
                return
        self._carry_out(kind, job_object, decide(job, answer, self._settings.policy))

    def _options(
        self, sharing: Sharing, kind: JobKind, job_object: dict[str, Any], job: Job, answer: Recommendation
    ) -> Options:
        """Return what a job's object could ask for, and the recommendations by which it would.

        Raises the error of the recommended sizes if none are possible.
        """
        options: dict[Allocation, Recommendation] = {}
        errors: list[InputError] = []
        for option in alternatives(answer):
            decision = decide(job, option, self._settings.policy)
            try:
                sized = self._sized(kind, job_object, decision)
            except InputError as error:
                errors.append(error)
                continue
            target = decision.plan.target if decision.plan else None
            options.setdefault(sharing.counted(allocation_of(kind.executor, sized, target), job), option)
        if not options:
            raise errors[0]
        return options

    def _sized(self, kind: JobKind, job_object: dict[str, Any], decision: Decision) -> Mapping[str, Any]:
        """Return the object with the sizes of a decision. Raises InputError if guardrails or the object refuse them."""
        if decision.plan is None:
            return job_object
        check_rails(decision.plan, self._settings.rails)
        return kind.executor.with_sizes(job_object, decision.plan)

    def _carry_out(self, kind: JobKind, job_object: dict[str, Any], decision: Decision) -> None:
        """Write the sizes of a decision into a job's object, and resume it if it asks for that."""
        sized = self._sized(kind, job_object, decision)
        if self._settings.dry_run:
            self._shown.add(uid_of(job_object))
            self._metrics.decided(decision.outcome)
            self._tell(job_object, "WouldSize", f"Nothing is changed. {decision.sentence}")
            return
        self._check()
        written = self._write(kind, job_object, sized, decision)
        self._metrics.decided(decision.outcome)
        self._tell(written, "Sized" if decision.plan else "LeftAsItIs", decision.sentence)
        if kind.executor.sizes_of(written) != kind.executor.sizes_of(dict(sized)):
            self._tell(written, "SizesRewritten", "The cluster has written other sizes than these.", "Warning")

    def _measures(self, job_object: Mapping[str, Any]) -> bool:
        """Return whether trial jobs may measure a job; its annotation says so."""
        return self._settings.policy == "trials" and annotations_of(job_object).get(labels.TRIALS) == "yes"

    def _known(self) -> Sequence[Job]:
        """Return the descriptions in the history, which is read once a turn."""
        if self._known_jobs is None:
            self._known_jobs = self._load_known_jobs()
        return self._known_jobs

    def _answer_for(self, job: Job) -> Recommendation:
        """Return the recommendation for a job. Jobs of one description share it for a while."""
        now_s, key = self._clock(), job.model_dump_json()
        self._answers = {k: each for k, each in self._answers.items() if now_s - each[0] < self._settings.reuse_s}
        if key not in self._answers:
            self._answers[key] = now_s, self._answer(job)
        return self._answers[key][1]

    def _write(
        self, kind: JobKind, job_object: dict[str, Any], sized: Mapping[str, Any], decision: Decision
    ) -> dict[str, Any]:
        """Change and resume the object, or create it again where the cluster does not let its sizes change."""
        changes = self._changes(kind, job_object, sized, decision)
        try:
            return self._api.change(job_object, changes)
        except InputError as error:
            if _IMMUTABLE not in error.message:
                raise
            if not self._settings.recreates or annotations_of(job_object).get(labels.RECREATE) != "yes":
                error.remedy += f" An operator with --recreate creates jobs again that have {labels.RECREATE}: yes."
                raise
            document = kind.executor.as_created(merged(job_object, changes))
            with self._copies.kept(uid_of(job_object), document):
                created = kind.executor.recreate(job_object, document)
            self._remember(created, job_object)
            self._shown.add(uid_of(created))
            with suppress(SizewrightError):  # somebody has changed it already; it has its sizes
                created = self._mark(created)
            return created

    def _changes(
        self, kind: JobKind, job_object: dict[str, Any], sized: Mapping[str, Any], decision: Decision
    ) -> dict[str, Any]:
        """Return the patch that writes the sizes, says so, and resumes the job if it asks for that."""
        metadata: dict[str, Any] = {"annotations": _annotations(job_object, decision)}
        if queue := annotations_of(job_object).get(labels.QUEUE):
            metadata["labels"] = {QUEUE_LABEL: queue}
        if _asks_to_start(job_object):
            sized = merged(sized, kind.resumed())
        return {**merge_patch(job_object, sized), "metadata": metadata}

    def _failed(self, kind: JobKind, job_object: dict[str, Any], error: SizewrightError) -> None:
        """Tell why a job could not be sized, once. After the limit it is resumed as it is."""
        current = self._read_or_same(kind, job_object)
        if current is None or not kind.is_suspended(current) or _is_sized(current):
            return  # the next turn sees what it is now
        uid, message = uid_of(current), str(error)
        is_recreated = uid != uid_of(job_object)
        versions = {each["metadata"].get("resourceVersion") for each in (current, job_object)}
        has_changed = len(versions) > 1 and not is_recreated
        last = self._failures.get(uid_of(job_object))
        times = last.times + 1 if last else 1
        wait_s = 0.0 if has_changed else min(_MAX_RETRY_S, _FIRST_RETRY_S * 2 ** (times - 1))
        since_s = seconds_of(annotations_of(current).get(labels.FAILING_SINCE))
        left_s = self._settings.limit_s - (self._now() - since_s if since_s is not None else 0.0)
        if left_s > 0:
            wait_s = min(wait_s, left_s)
        self._remember(current, job_object)
        self._failures[uid] = _Failure(times, message, self._clock() + wait_s)
        self._metrics.failed()
        if self._sharing:
            self._sharing.remove(uid_of(job_object))
        if not has_changed and (last is None or last.message != message):
            self._tell(current, "CannotSize", message, "Warning")
        if self._settings.dry_run:
            return
        try:
            if since_s is None:
                since = datetime.fromtimestamp(self._now(), timezone.utc).isoformat(timespec="seconds")
                self._api.change(current, {"metadata": {"annotations": {labels.FAILING_SINCE: since}}})
            elif left_s <= 0 and (_asks_to_start(current) or _waits_for_queue(current)):
                self._give_up(kind, current)
        except SizewrightError as failure:
            _LOG.warning(f"{name_of(current)}: {failure}")

    def _give_up(self, kind: JobKind, job_object: dict[str, Any]) -> None:
        decision = Decision("left", "It could not be sized for too long, and its sizes were left as they are.")
        self._api.change(job_object, self._changes(kind, job_object, job_object, decision))
        self._metrics.decided(decision.outcome)
        self._tell(job_object, "LeftAsItIs", decision.sentence, "Warning")

    def _read(self, kind: JobKind, job_object: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the job of this name as it is now; None if there is none."""
        meta, executor = job_object["metadata"], kind.executor
        return self._api.get(executor.api_version, executor.kind, meta["namespace"], meta["name"])

    def _read_or_same(self, kind: JobKind, job_object: dict[str, Any]) -> dict[str, Any] | None:
        try:
            return self._read(kind, job_object)
        except SizewrightError:  # the server does not answer; what follows says so
            return job_object

    def _tell(self, job_object: Mapping[str, Any], reason: str, message: str, kind: str = "Normal") -> None:
        """Write an Event. One that cannot be written is logged, and changes nothing else."""
        self._told(name_of(job_object), message)
        meta = job_object["metadata"]
        at = datetime.fromtimestamp(self._now(), timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
        about = {"apiVersion": job_object["apiVersion"], "kind": job_object["kind"], "uid": uid_of(job_object)}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name'][:200]}.{uuid.uuid4().hex[:16]}", "namespace": meta["namespace"]},
            "involvedObject": {**about, "name": meta["name"], "namespace": meta["namespace"]},
            "reason": reason,
            "message": message[:_MAX_MESSAGE],
            "type": kind,
            "source": {"component": "sizewright-operator"},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        try:
            self._api.create(event)
        except SizewrightError as error:
            _LOG.warning(f"{name_of(job_object)}: an Event could not be written. {error}")


def _check_label(job_object: Mapping[str, Any]) -> None:
    """Raise InputError for a label that asks for nothing known."""
    value = job_object["metadata"]["labels"][labels.SIZE]
    if value not in (labels.START, labels.HOLD):
        raise InputError(
            f"Its label {labels.SIZE} is '{value}'.",
            f"Write {labels.START} to have it resumed with its sizes, or {labels.HOLD} to keep it suspended.",
        )


def _asks_to_start(job_object: Mapping[str, Any]) -> bool:
    """Return whether the operator is to resume a job; Kueue resumes those in its queues."""
    of_job = job_object["metadata"]["labels"]
    is_queued = QUEUE_LABEL in of_job or labels.QUEUE in annotations_of(job_object)
    return of_job[labels.SIZE] == labels.START and not is_queued


def _waits_for_queue(job_object: Mapping[str, Any]) -> bool:
    """Return whether a job enters a queue of Kueue, and starts from there, once the operator lets it."""
    of_job = job_object["metadata"]["labels"]
    waits = labels.QUEUE in annotations_of(job_object) and QUEUE_LABEL not in of_job
    return waits and of_job[labels.SIZE] == labels.START


def _annotations(job_object: Mapping[str, Any], decision: Decision) -> dict[str, str | None]:
    """Return what a decision writes; annotations of an earlier one, as copies of jobs have them, are removed."""
    earlier = (*OF_A_PLAN, labels.TARGET, labels.INTERVAL, labels.FAILING_SINCE, labels.WAITS, labels.TRIALS_DONE)
    annotations: dict[str, str | None] = {name: None for name in earlier if name in annotations_of(job_object)}
    annotations |= {labels.SIZED: uid_of(job_object), labels.OUTCOME: decision.outcome, REASON: decision.sentence}
    if decision.plan:
        annotations |= {labels.TARGET: decision.plan.target.describe(), **plan_annotations(decision.plan)}
    return annotations | ({labels.INTERVAL: decision.interval} if decision.interval else {})


def _is_sized(job_object: Mapping[str, Any]) -> bool:
    return bool(annotations_of(job_object).get(labels.SIZED) == uid_of(job_object))
