"""The control loop of the operator: look at all jobs that ask for sizes, and size those that are suspended.

A turn lists the jobs and handles each by what its object says, so that nothing is lost when the operator ends at any
moment, or another one takes over.
"""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, NamedTuple

from sizewright.errors import InputError, SizewrightError
from sizewright.executors.kubernetes.api import KubeApi
from sizewright.executors.plan_annotations import plan_annotations
from sizewright.operator import labels
from sizewright.operator.decide import Decision, Policy, decide
from sizewright.operator.job_description import describe_job
from sizewright.operator.job_kinds import JobKind, job_kinds
from sizewright.operator.merge_patch import merge_patch
from sizewright.operator.metrics import OperatorMetrics
from sizewright.runtime.guardrails import check_rails
from sizewright.spec import Job, Rails, Recommendation

_LOG = logging.getLogger(__name__)

_FIRST_RETRY_S, _MAX_RETRY_S = 10.0, 300.0
_MAX_MESSAGE = 1000  # characters of an Event's message: the server takes 1024


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
    jobs_per_s: float = 10.0
    """At most so many jobs are sized in a second."""
    limit_s: float = 1800.0
    """A job that cannot be sized for so long is resumed as it is."""
    reuse_s: float = 60.0
    """An answer serves all jobs of the same description for so long."""


class _Failure(NamedTuple):
    """A job that could not be sized: how often, since when and why, and when it is tried again, on the clock."""

    times: int
    since_s: float
    message: str
    again_at_s: float


class Operator:
    """Sizes the suspended jobs of a cluster that ask for it.

    `answer` recommends the size of a job, and `known_jobs` returns the descriptions in the history.
    `before_each` is called before each job, and ends the turn by raising. `told` gets the name of a job and what an
    Event says of it.
    """

    def __init__(
        self,
        api: KubeApi,
        answer: Callable[[Job], Recommendation],
        known_jobs: Callable[[], Sequence[Job]] = list,
        settings: OperatorSettings = OperatorSettings(),
        metrics: OperatorMetrics | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        before_each: Callable[[], None] = lambda: None,
        told: Callable[[str, str], None] = lambda name, message: None,
    ) -> None:
        self._api = api
        self._answer = answer
        self._known_jobs = known_jobs
        self._settings = settings
        self._metrics = metrics or OperatorMetrics(clock)
        self._clock = clock
        self._sleep = sleep
        self._before_each = before_each
        self._told = told
        self.errors: list[SizewrightError] = []
        """Why the last turn could not look at all jobs."""
        self._kinds = job_kinds(api)
        self._answers: dict[str, tuple[float, Recommendation]] = {}
        self._failures: dict[str, _Failure] = {}
        self._shown: set[str] = set()
        """Uids of jobs that a dry run has decided on."""

    def turn(self) -> int:
        """Handle the jobs that are due, and return how many that were."""
        handled, uids = 0, set()
        self.errors = []
        for kind, namespace in itertools.product(self._kinds, self._settings.namespaces):
            executor = kind.executor
            try:
                found = self._api.list(executor.api_version, executor.kind, namespace, labels.SIZE)
            except SizewrightError as error:
                self._metrics.failed()
                self.errors.append(error)
                continue
            for job_object in found:
                uids.add(_uid(job_object))
                if self._is_due(kind, job_object):
                    began_s = self._clock()
                    self._before_each()
                    self._handle(kind, job_object)
                    handled += 1
                    self._metrics.alive()
                    self._sleep(max(0.0, began_s + 1 / self._settings.jobs_per_s - self._clock()))
        if not self.errors:  # what is gone is forgotten
            self._failures = {uid: failure for uid, failure in self._failures.items() if uid in uids}
            self._shown &= uids
        self._metrics.turned()
        return handled

    def _is_due(self, kind: JobKind, job_object: dict[str, Any]) -> bool:
        uid = _uid(job_object)
        failure = self._failures.get(uid)
        if failure and self._clock() < failure.again_at_s:
            return False
        if not kind.is_suspended(job_object) or job_object["metadata"].get("deletionTimestamp"):
            return False
        return not (_is_sized(job_object) or uid in self._shown) or self._is_to_resume(job_object)

    def _is_to_resume(self, job_object: Mapping[str, Any]) -> bool:
        """Return whether a job was sized and not resumed yet; Kueue resumes those in its queues."""
        meta = job_object["metadata"]
        asks = meta["labels"][labels.SIZE] == labels.START and labels.QUEUE not in meta["labels"]
        resumed = (meta.get("annotations") or {}).get(labels.RESUMED) == _uid(job_object)
        return asks and _is_sized(job_object) and not resumed and not self._settings.dry_run

    def _handle(self, kind: JobKind, job_object: dict[str, Any]) -> None:
        """Size a job and resume it. What goes wrong is told by an Event, and tried again later."""
        try:
            _check_label(job_object)
            kind = kind.for_job(job_object, self._api)
            if not _is_sized(job_object):
                job_object = self._size(kind, job_object)
            self._resume(kind, job_object)
        except SizewrightError as error:
            self._failed(kind, job_object, error)
        else:
            self._failures.pop(_uid(job_object), None)

    def _size(self, kind: JobKind, job_object: dict[str, Any]) -> dict[str, Any]:
        """Write the sizes of a job into its object, and return the object as it is then."""
        described = describe_job(job_object, kind.executor, self._api, self._known_jobs)
        job = self._settings.rails.narrow(described)
        decision = decide(job, self._answer_for(job), self._settings.policy)
        sized: Mapping[str, Any] = job_object
        if decision.plan:
            check_rails(decision.plan, self._settings.rails)
            sized = kind.executor.with_sizes(job_object, decision.plan)
        self._metrics.decided(decision.outcome)
        if self._settings.dry_run:
            self._shown.add(_uid(job_object))
            self._tell(job_object, "WouldSize", f"Nothing is changed. {decision.sentence}")
            return job_object
        written = self._write(kind, job_object, sized, decision)
        self._tell(written, "Sized" if decision.plan else "LeftAsItIs", decision.sentence)
        if kind.executor.sizes_of(written) != kind.executor.sizes_of(dict(sized)):
            self._tell(written, "SizesRewritten", "The cluster has written other sizes than these.", "Warning")
        return written

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
        """Change the object, or create it again where the cluster does not let its sizes change."""
        annotations = _annotations(job_object, decision)
        try:
            return self._api.change(
                job_object, {**merge_patch(job_object, sized), "metadata": {"annotations": annotations}}
            )
        except InputError as error:
            existing = job_object["metadata"].get("annotations") or {}
            if existing.get(labels.RECREATE) != "yes" or self._has_moved_on(kind, job_object):
                error.remedy += f" With the annotation {labels.RECREATE}: yes it is deleted and created again."
                raise
            document = {**sized, "metadata": {**sized["metadata"], "annotations": {**existing, **annotations}}}
            created = kind.executor.recreate(job_object, document)
            return self._api.change(created, {"metadata": {"annotations": {labels.SIZED: _uid(created)}}})

    def _resume(self, kind: JobKind, job_object: dict[str, Any]) -> None:
        if self._is_to_resume(job_object):
            resumed = {"annotations": {labels.RESUMED: _uid(job_object)}}
            self._api.change(job_object, {**kind.resumed(), "metadata": resumed})
            self._metrics.resumed()

    def _failed(self, kind: JobKind, job_object: dict[str, Any], error: SizewrightError) -> None:
        """Tell why a job could not be sized, once. After the limit it is resumed as it is."""
        if self._has_moved_on(kind, job_object):
            return  # the next turn sees what it is now
        uid, message, now_s = _uid(job_object), str(error), self._clock()
        last = self._failures.get(uid)
        times, since_s = (last.times + 1, last.since_s) if last else (1, now_s)
        wait_s = min(_MAX_RETRY_S, _FIRST_RETRY_S * 2 ** (times - 1))
        self._failures[uid] = _Failure(times, since_s, message, now_s + wait_s)
        self._metrics.failed()
        if last is None or last.message != message:
            self._tell(job_object, "CannotSize", message, "Warning")
        if now_s - since_s >= self._settings.limit_s and not self._settings.dry_run:
            self._give_up(kind, job_object)

    def _give_up(self, kind: JobKind, job_object: dict[str, Any]) -> None:
        decision = Decision("left", "It could not be sized for too long, and its sizes were left as they are.")
        try:
            if not _is_sized(job_object):
                job_object = self._write(kind, job_object, job_object, decision)
                self._metrics.decided(decision.outcome)
                self._tell(job_object, "LeftAsItIs", decision.sentence, "Warning")
            self._resume(kind, job_object)
        except SizewrightError as error:
            _LOG.warning(f"{_name(job_object)} could not be resumed. {error}")

    def _has_moved_on(self, kind: JobKind, job_object: Mapping[str, Any]) -> bool:
        """Return whether somebody has changed, resumed or deleted a job since it was read."""
        meta, executor = job_object["metadata"], kind.executor
        try:
            current = self._api.get(executor.api_version, executor.kind, meta["namespace"], meta["name"])
        except SizewrightError:
            return False
        return current is None or current["metadata"].get("resourceVersion") != meta.get("resourceVersion")

    def _tell(self, job_object: Mapping[str, Any], reason: str, message: str, kind: str = "Normal") -> None:
        """Write an Event. One that cannot be written is logged, and changes nothing else."""
        self._told(_name(job_object), message)
        meta = job_object["metadata"]
        at = datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
        about = {"apiVersion": job_object["apiVersion"], "kind": job_object["kind"], "uid": _uid(job_object)}
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
            _LOG.warning(f"{_name(job_object)}: an Event could not be written. {error}")


def _check_label(job_object: Mapping[str, Any]) -> None:
    """Raise InputError for a label that asks for nothing known."""
    value = job_object["metadata"]["labels"][labels.SIZE]
    if value not in (labels.START, labels.HOLD):
        raise InputError(
            f"Its label {labels.SIZE} is '{value}'.",
            f"Write {labels.START} to have it resumed with its sizes, or {labels.HOLD} to keep it suspended.",
        )


def _annotations(job_object: Mapping[str, Any], decision: Decision) -> dict[str, str]:
    annotations = {labels.SIZED: _uid(job_object), labels.OUTCOME: decision.outcome}
    if decision.plan:
        annotations |= {labels.TARGET: decision.plan.target.describe(), **plan_annotations(decision.plan)}
    return annotations | ({labels.INTERVAL: decision.interval} if decision.interval else {})


def _is_sized(job_object: Mapping[str, Any]) -> bool:
    annotations = job_object["metadata"].get("annotations") or {}
    return bool(annotations.get(labels.SIZED) == _uid(job_object))


def _uid(job_object: Mapping[str, Any]) -> str:
    return str(job_object["metadata"]["uid"])


def _name(job_object: Mapping[str, Any]) -> str:
    return f"{job_object['kind']} {job_object['metadata']['namespace']}/{job_object['metadata']['name']}"
