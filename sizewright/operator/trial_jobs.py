"""Trial jobs: copies of a suspended job at a few small sizes, which run for minutes and are measured from outside.

A copy belongs to its job, so that the cluster deletes both together. What was measured is recorded at once, and the
number of finished trials is an annotation of the job: another operator goes on from there.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from sizewright.datasets.trials.trial import Trial
from sizewright.errors import InputError
from sizewright.executors.kubernetes.api import KubeApi
from sizewright.executors.kubernetes.cluster_executor import QUEUE_LABEL
from sizewright.executors.kubernetes.objects import seconds_of
from sizewright.executors.plan_annotations import plan_annotations, read_plan
from sizewright.formatting import format_number
from sizewright.models.memory.memory_model import MemoryModel
from sizewright.operator import labels
from sizewright.operator.job_kinds import JobKind
from sizewright.operator.labels import annotations_of, name_of
from sizewright.operator.merge_patch import merged
from sizewright.profiler.measure.measure import Timing
from sizewright.profiler.measure.measure_logs import measure_logs
from sizewright.profiler.series._base import TrialPoint
from sizewright.profiler.series.series import failed_trial
from sizewright.profiler.series.space_filling import space_filling_allocations, with_memory
from sizewright.progress import STDOUT, TRIAL_VARIABLE, VARIABLE
from sizewright.runtime.plan_files import launch_plan
from sizewright.spec import Allocation, Group, Handle, Job, Plan

_MAX_STEM = 36
"""Characters of a job's name in that of its copies, to which a platform adds the numbers of pods."""


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


class TrialJobs:
    """Runs the trial jobs of suspended jobs, one of a job at a time.

    A job does not wait longer than `limit_s` for them. `record` keeps what was measured, `told` gets the object of a
    job and a sentence for it, and `now` is the time of day.
    """

    def __init__(
        self,
        api: KubeApi,
        record: Callable[[Trial], None],
        settings: TrialSettings,
        limit_s: float,
        told: Callable[[Mapping[str, Any], str], None],
        now: Callable[[], float],
    ) -> None:
        self._api = api
        self._record = record
        self._settings = settings
        self._limit_s = limit_s
        self._told = told
        self._now = now
        self._copies: dict[str, list[dict[str, Any]]] = {}
        """The copies that exist, by the uid of their job."""
        self._has_looked = False
        self._exhausted: dict[str, float] = {}
        """When the trials of a description had all ended, by the hash of its job."""

    def look(self, kinds: Iterable[JobKind], namespaces: Sequence[str]) -> None:
        """Look at the copies that exist, at the begin of a turn."""
        self._copies, self._has_looked = {}, False
        for kind in kinds:
            for namespace in namespaces:
                executor = kind.executor
                found = self._api.list(executor.api_version, executor.kind, namespace, labels.TRIAL_OF, skip_odd=True)
                for copy in found:
                    self._copies.setdefault(copy["metadata"]["labels"][labels.TRIAL_OF], []).append(copy)
        self._has_looked = True

    def end(self, job_object: Mapping[str, Any]) -> None:
        """Delete the copies of a job that needs no trials any more."""
        for copy in self._copies.pop(job_object["metadata"]["uid"], []):
            self._delete(copy)

    def advance(self, kind: JobKind, job_object: dict[str, Any], job: Job) -> bool:
        """Start a job's next trial, or look at it; return False when no trial is left.

        Raises InputError for a job of which no trial can be made, and errors of the cluster.
        """
        if not self._has_looked:
            return True
        uid, done = job_object["metadata"]["uid"], _read_done(job_object)
        since_s = seconds_of(done.get("since")) or self._now()
        points = self._points(job)
        if done["count"] >= len(points) or self._now() - since_s > self._limit_s or self._is_exhausted(job):
            self._exhausted[job.hash] = self._now()
            self.end(job_object)
            return False
        point = points[done["count"]]
        copies = self._copies.get(uid, [])
        if not copies:
            if self._others_measure(job) or sum(map(len, self._copies.values())) >= self._settings.at_once:
                return True
            plan = launch_plan(job, point.allocation, f"Trial {done['count'] + 1} of {len(points)}.")
            copy = self._copy(kind, job_object, plan, done["count"] + 1)
            self._api.create(copy)
            self._copies[uid] = [copy]
            self._note(job_object, done["count"], since_s)
            self._told(job_object, f"{plan.reason[:-1]} runs as {name_of(copy)}: {point.allocation.describe()}.")
            return True
        trial = self._measured(kind, copies[0], job, point)
        if trial is None:
            return True
        self._record(trial.model_copy(update={"series": f"{job.hash}-trial-jobs-{uid}"}))
        self._note(job_object, done["count"] + 1, since_s)
        self.end(job_object)
        result = f"{format_number(trial.throughput)} samples/s" if trial.throughput else f"{trial.message}"
        self._told(job_object, f"Trial {done['count'] + 1} of {len(points)}, {point.allocation.describe()}: {result}.")
        return True

    def _is_exhausted(self, job: Job) -> bool:
        """Return whether the trials of this description have ended a short time ago."""
        return self._now() - self._exhausted.get(job.hash, -math.inf) < self._limit_s

    def _others_measure(self, job: Job) -> bool:
        """Return whether another job of the same description has a trial job."""
        return any(_hash_of(copy) == job.hash for copies in self._copies.values() for copy in copies)

    def _points(self, job: Job) -> list[TrialPoint]:
        """Return what to measure: allocations within the job's bounds, far apart. Raises JobError if none is small."""
        allocations = space_filling_allocations(job, self._settings.cores, self._settings.count)
        if job.command is None:
            memory = MemoryModel(job)
            return [TrialPoint(with_memory(allocation, memory)) for allocation in allocations]
        return [TrialPoint(job.with_sides(_with_most_memory(job, allocation))) for allocation in allocations]

    def _copy(self, kind: JobKind, job_object: dict[str, Any], plan: Plan, number: int) -> dict[str, Any]:
        """Return the trial job: the job at other sizes under a name of its own, which reports on its output."""
        meta, executor = job_object["metadata"], kind.executor
        name = f"{meta['name'][:_MAX_STEM].rstrip('-.')}-trial-{number}"
        sized = merged(executor.with_sizes(job_object, plan, name=name), kind.resumed())
        for role in executor.sizes_of(sized):
            for spec in executor.places(sized, role):
                _set_variables(spec.container, {TRIAL_VARIABLE: "1", VARIABLE: STDOUT})
        _check_hosts(sized["spec"], str(meta["name"]), name)
        copy = executor.as_created(sized)
        ours = {key: value for key, value in copy["metadata"].get("labels", {}).items() if key != labels.SIZE}
        if queue := annotations_of(job_object).get(labels.QUEUE):
            ours[QUEUE_LABEL] = queue
        owner = {"apiVersion": job_object["apiVersion"], "kind": job_object["kind"]}
        copy["metadata"] |= {
            "name": name,
            "namespace": meta["namespace"],
            "labels": ours | {labels.TRIAL_OF: meta["uid"]},
            "annotations": plan_annotations(plan),
            "ownerReferences": [{**owner, "name": meta["name"], "uid": meta["uid"]}],
        }
        return copy

    def _measured(self, kind: JobKind, copy: dict[str, Any], job: Job, point: TrialPoint) -> Trial | None:
        """Return the trial of a copy that is steady, or has ended, or has run for too long; None before."""
        meta = copy["metadata"]
        handle = Handle(executor=kind.executor.name, id=f"{meta['namespace']}/{meta['name']}", job=job.name)
        logs = kind.executor.replica_logs(handle)
        if trial := measure_logs(job, point, logs, self._settings.timing):
            return trial
        status = kind.executor.end_status(copy)
        if oom := next(kind.executor.out_of_memory(handle), None):
            return failed_trial(job, point, "oom", f"{oom} ran out of memory")
        if status == "failed":
            return failed_trial(job, point, "failed", f"{name_of(copy)} failed")
        began_s = min((log.lines[0][0] for log in logs if log.lines), default=self._now())
        if status is None and self._now() - began_s < self._settings.trial_s:
            return None
        when = "ended" if status else f"ran for {self._now() - began_s:.0f} s"
        return failed_trial(job, point, "void", f"It {when} before its throughput was steady")

    def _note(self, job_object: dict[str, Any], count: int, since_s: float) -> None:
        since = datetime.fromtimestamp(since_s, timezone.utc).isoformat(timespec="seconds")
        noted = json.dumps({"uid": job_object["metadata"]["uid"], "count": count, "since": since})
        self._api.annotate(job_object, {labels.TRIALS_DONE: noted})

    def _delete(self, copy: Mapping[str, Any]) -> None:
        meta = copy["metadata"]
        self._api.delete(copy["apiVersion"], copy["kind"], meta["namespace"], meta["name"], meta.get("uid", ""))


def _hash_of(copy: Mapping[str, Any]) -> str | None:
    """Return the hash of the job that a copy runs; None if somebody has changed its annotations."""
    try:
        return read_plan(copy).job.hash
    except InputError:
        return None


def _read_done(job_object: Mapping[str, Any]) -> dict[str, Any]:
    """Return how many trials a job has had, and since when; a copy of a job has had none.

    Raises InputError for an annotation of another form.
    """
    if not (text := annotations_of(job_object).get(labels.TRIALS_DONE)):
        return {"count": 0}
    try:
        done = json.loads(text)
        return {**done, "count": int(done["count"])} if done["uid"] == job_object["metadata"]["uid"] else {"count": 0}
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


def _set_variables(container: Any, variables: Mapping[str, str]) -> None:
    others = [each for each in container.get("env") or [] if each.get("name") not in variables]
    container["env"] = [*others, *({"name": name, "value": value} for name, value in variables.items())]


def _check_hosts(spec: Mapping[str, Any], job_name: str, own_name: str) -> None:
    """Raise InputError if a copy would talk to the replicas of the job itself."""
    host = re.compile(rf"(?<![\w./-])(?!{re.escape(own_name)}\b){re.escape(job_name)}-[\w-]*\d\b")
    for text in _texts(spec):
        if found := host.search(text):
            raise InputError(
                f"A trial job cannot be made of it: its replicas find each other by {found[0]}, a host of the job.",
                "Have Sizewright render its variables, or leave the sizes: --without-data leave.",
            )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
