"""Trial jobs: copies of a suspended job at a few small sizes, which run for minutes and are measured from outside.

What was measured is recorded at once. Where a job's trials stand is an annotation of the job, and each copy says which
trial it is and at which sizes: another operator goes on from there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, NamedTuple

from sizewright.datasets.trials.trial import Trial
from sizewright.errors import InputError, JobError, SizewrightError
from sizewright.executors.kubernetes.api import KubeApi
from sizewright.executors.kubernetes.objects import seconds_of
from sizewright.executors.plan_annotations import read_plan
from sizewright.formatting import format_number
from sizewright.models.memory.memory_model import MemoryModel
from sizewright.operator import labels
from sizewright.operator.job_kinds import JobKind
from sizewright.operator.labels import annotations_of, name_of
from sizewright.operator.trial_copy import is_copy, number_of, trial_copy
from sizewright.profiler.measure.measure import Timing
from sizewright.profiler.measure.measure_logs import measure_logs
from sizewright.profiler.series._base import TrialPoint
from sizewright.profiler.series.series import failed_trial
from sizewright.profiler.series.space_filling import (
    has_cores_within_bounds,
    space_filling_allocations,
    with_memory,
)
from sizewright.runtime.guardrails import check_rails
from sizewright.runtime.plan_files import launch_plan
from sizewright.spec import Allocation, Group, Handle, Job, Plan, Rails


@dataclass(frozen=True, kw_only=True)
class TrialSettings:
    """How many trial jobs may run, how large, and for how long."""

    count: int = 4
    """Trial jobs for one description, at most."""
    cores: float = 8.0
    """Cores of all replicas of a trial job, at most."""
    trial_s: float = 300.0
    """A trial job that has reported for so long without being steady counts as void."""
    at_once: int = 4
    """Trial jobs that run at a time, at most."""
    timing: Timing = field(default_factory=lambda: Timing(min_s=20.0, max_s=60.0))
    """For how long a steady trial is measured."""


class _State(NamedTuple):
    """Where the trials of a job stand."""

    ended: int = 0
    """Trials that have ended."""
    started: int = 0
    """The number of the last trial job that was started."""
    since_s: float | None = None
    """When the job began to wait for its trials."""


class TrialJobs:
    """Runs the trial jobs of suspended jobs, one of a job at a time, within the guardrails.

    A job does not wait longer than `limit_s` for them. `record` keeps what was measured, `told` gets the object of a
    job and a sentence for it, and `now` is the time of day.
    """

    def __init__(
        self,
        api: KubeApi,
        record: Callable[[Trial], None],
        settings: TrialSettings,
        rails: Rails,
        limit_s: float,
        told: Callable[[Mapping[str, Any], str], None],
        now: Callable[[], float],
    ) -> None:
        self._api = api
        self._record = record
        self._settings = settings
        self._rails = rails
        self._limit_s = limit_s
        self._told = told
        self._now = now
        self._copies: dict[str, list[dict[str, Any]]] = {}
        """The copies that exist, by the uid of their job."""
        self._unread: set[tuple[str, str]] = set()
        """Kinds and namespaces whose copies could not be listed."""
        self._exhausted: dict[str, float] = {}
        """When the trials of a description had all ended, by its text."""

    def look(self, kinds: Iterable[JobKind], namespaces: Sequence[str]) -> Iterator[SizewrightError]:
        """Look at the copies that exist, at the begin of a turn; yield why some could not be listed."""
        self._copies, self._unread = {}, set()
        for executor in (kind.executor for kind in kinds):
            for namespace in namespaces:
                try:
                    found = self._api.list(
                        executor.api_version, executor.kind, namespace, labels.TRIAL_OF, skip_odd=True
                    )
                except SizewrightError as error:
                    self._unread.add((executor.kind, namespace))
                    yield error
                    continue
                for copy in filter(is_copy, found):
                    self._copies.setdefault(copy["metadata"]["labels"][labels.TRIAL_OF], []).append(copy)

    def end_all_but(self, measured_uids: set[str], unread: set[tuple[str, str]]) -> Iterator[SizewrightError]:
        """Delete the copies of jobs that are not to be measured; yield what went wrong.

        Jobs of the kinds and namespaces in `unread` are not known in this turn.
        """
        for uid in self._copies.keys() - measured_uids:
            if _is_in(unread, self._copies[uid][0]):
                continue
            try:
                self._end(uid)
            except SizewrightError as error:
                yield error

    def advance(self, kind: JobKind, job_object: dict[str, Any], job: Job) -> bool:
        """Start a job's next trial, or look at it; return False when the job is not to wait any longer.

        Raises InputError for a job of which no trial can be made, and errors of the cluster.
        """
        state = _read_state(job_object)
        if state.since_s is None:  # first, so that the limit holds whatever fails
            self._note(job_object, state._replace(since_s=self._now()))
            return True
        if self._now() - state.since_s > self._limit_s:
            self._end(job_object["metadata"]["uid"])
            return False
        meta, number = job_object["metadata"], state.ended + 1
        if _is_in(self._unread, job_object):
            return True
        copies = self._copies.get(meta["uid"], [])
        if any(number_of(copy) != number for copy in copies):  # an earlier one that could not be deleted
            self._end(meta["uid"])
            return True
        if copies:
            if not copies[0]["metadata"].get("deletionTimestamp"):
                self._look_at(kind, job_object, copies[0], state)
            return True
        return self._go_on(kind, job_object, job, state)

    def _go_on(self, kind: JobKind, job_object: dict[str, Any], job: Job, state: _State) -> bool:
        """Start the next trial of a job that has none; return False if there is none to start."""
        points, number = self._points(job), state.ended + 1
        if not points:
            cores = f"{self._settings.cores:g}"
            self._told(job_object, f"No trial: no sizes within its bounds have at most {cores} cores (--trial-cores).")
        if number > len(points):
            return False
        point = points[state.ended]
        if state.started >= number:
            gone = failed_trial(job, point, "failed", "Somebody deleted its trial job")
            self._ended(job_object, gone, point.allocation, state)
            return True
        if self._is_exhausted(job):
            return False
        if self._others_measure(job) or sum(map(len, self._copies.values())) >= self._settings.at_once:
            return True
        plan = launch_plan(job, point.allocation, f"Trial {number} of {len(points)}.")
        check_rails(plan, self._rails)
        copy = trial_copy(kind, job_object, plan, number, self._limit_s)
        self._api.create(copy)
        self._copies[job_object["metadata"]["uid"]] = [copy]
        self._note(job_object, state._replace(started=number))
        self._told(job_object, f"{plan.reason[:-1]} runs as {name_of(copy)}: {point.allocation.describe()}.")
        if number == len(points):
            self._exhausted.setdefault(job.model_dump_json(), self._now())
        return True

    def _look_at(self, kind: JobKind, job_object: dict[str, Any], copy: dict[str, Any], state: _State) -> None:
        """Record the trial of a copy if it has ended. Raises InputError if somebody has changed its plan."""
        plan = read_plan(copy)
        if trial := self._measured(kind, copy, plan):
            self._ended(job_object, trial, plan.target, state)
            self._end(job_object["metadata"]["uid"])

    def _ended(self, job_object: dict[str, Any], trial: Trial, allocation: Allocation, state: _State) -> None:
        """Record a trial, and note and tell that it has ended."""
        series = f"{trial.job_hash}-trial-jobs-{job_object['metadata']['uid']}"
        self._record(trial.model_copy(update={"series": series}))
        number = state.ended + 1
        self._note(job_object, state._replace(ended=number, started=number))
        result = f"{format_number(trial.throughput)} samples/s" if trial.throughput else f"{trial.message}"
        self._told(job_object, f"Trial {number}, {allocation.describe()}: {result}.")

    def _measured(self, kind: JobKind, copy: dict[str, Any], plan: Plan) -> Trial | None:
        """Return the trial of a copy that is steady, or has ended, or has run for too long; None before."""
        meta, point = copy["metadata"], TrialPoint(plan.target)
        handle = Handle(executor=kind.executor.name, id=f"{meta['namespace']}/{meta['name']}", job=plan.job.name)
        logs = kind.executor.replica_logs(handle)
        if trial := measure_logs(plan.job, point, logs, self._settings.timing):
            return trial
        status = kind.executor.end_status(copy)
        if oom := next(kind.executor.out_of_memory(handle), None):
            trial = failed_trial(plan.job, point, "oom", f"{oom} ran out of memory")
            return trial.model_copy(update={"oom_memory": "host"})
        if status == "failed":
            return failed_trial(plan.job, point, "failed", f"{name_of(copy)} failed")
        began_s = min((log.lines[0][0] for log in logs if log.lines), default=self._now())
        if status is None and self._now() - began_s < self._settings.trial_s:
            return None
        when = "ended" if status else f"ran for {self._now() - began_s:.0f} s"
        return failed_trial(plan.job, point, "void", f"It {when} before its throughput was steady")

    def _is_exhausted(self, job: Job) -> bool:
        """Return whether another job has had all trials of this description a short time ago, without an answer."""
        ended_s = self._exhausted.get(job.model_dump_json(), -math.inf)
        return self._now() - ended_s < self._limit_s and not self._others_measure(job)

    def _others_measure(self, job: Job) -> bool:
        """Return whether a job of the same description has a trial job."""
        return any(_hash_of(copy) == job.hash for copies in self._copies.values() for copy in copies)

    def _points(self, job: Job) -> list[TrialPoint]:
        """Return what to measure: allocations within the job's bounds, far apart; empty if all are too large."""
        try:
            allocations = space_filling_allocations(job, self._settings.cores, self._settings.count)
        except JobError:
            return []
        allocations = [allocation for allocation in allocations if has_cores_within_bounds(job, allocation)]
        if job.command is None:
            memory = MemoryModel(job)
            return [TrialPoint(with_memory(allocation, memory)) for allocation in allocations]
        return [TrialPoint(job.with_sides(_with_most_memory(job, allocation))) for allocation in allocations]

    def _note(self, job_object: dict[str, Any], state: _State) -> None:
        since = datetime.fromtimestamp(state.since_s or self._now(), timezone.utc).isoformat(timespec="seconds")
        uid = job_object["metadata"]["uid"]
        noted = {"uid": uid, "ended": state.ended, "started": state.started, "since": since}
        self._api.annotate(job_object, {labels.TRIALS_DONE: json.dumps(noted)})

    def _end(self, uid: str) -> None:
        """Delete the copies of a job."""
        for copy in self._copies.pop(uid, []):
            meta = copy["metadata"]
            if not meta.get("deletionTimestamp"):
                self._api.delete(copy["apiVersion"], copy["kind"], meta["namespace"], meta["name"], meta.get("uid", ""))


def _is_in(places: set[tuple[str, str]], job_object: Mapping[str, Any]) -> bool:
    """Return whether an object is of these kinds and namespaces; an empty namespace stands for all."""
    kind = job_object["kind"]
    return bool({(kind, job_object["metadata"]["namespace"]), (kind, "")} & places)


def _hash_of(copy: Mapping[str, Any]) -> str | None:
    """Return the hash of the job that a copy runs; None if somebody has changed its annotations."""
    try:
        return read_plan(copy).job.hash
    except InputError:
        return None


def _read_state(job_object: Mapping[str, Any]) -> _State:
    """Return where the trials of a job stand; a copy of a job has had none.

    Raises InputError for an annotation of another form.
    """
    if not (text := annotations_of(job_object).get(labels.TRIALS_DONE)):
        return _State()
    try:
        noted = json.loads(text)
        if noted["uid"] != job_object["metadata"]["uid"]:
            return _State()
        since_s = seconds_of(noted["since"])
        if since_s is None:
            raise ValueError
        return _State(int(noted["ended"]), int(noted["started"]), since_s)
    except (ValueError, TypeError, KeyError):
        raise InputError(f"Its annotation {labels.TRIALS_DONE} is '{text}'.", "Remove it.") from None


def _with_most_memory(job: Job, allocation: Allocation) -> Allocation:
    """Return the allocation with the most memory of the job's bounds, since the need of a command is not known."""
    limited: dict[str, tuple[Group, ...]] = {}
    for role, bounds in (("worker", job.bounds.worker), ("ps", job.bounds.ps)):
        if "memory_bytes" in bounds.model_fields_set:
            most = {"memory_bytes": bounds.memory_bytes[1]}
            limited[role] = tuple(group.model_copy(update=most) for group in getattr(allocation, role))
    return allocation.model_copy(update=limited)
