"""Change running jobs that the operator has sized: the sizes of their pods by what they use, and their workers."""

from __future__ import annotations

import logging
import math
import re
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from sizewright.errors import InputError, SizewrightError
from sizewright.executors.kubernetes.api import KubeApi
from sizewright.executors.kubernetes.cluster_executor import ClusterExecutor
from sizewright.executors.kubernetes.objects import seconds_of
from sizewright.executors.plan_annotations import APPLIED_AT, plan_annotations, read_plan
from sizewright.executors.yaml_documents import to_yaml
from sizewright.operator.decide import ASKED_BY
from sizewright.operator.job_kinds import JobKind
from sizewright.operator.labels import INTERVAL, RESIZE, SCALE, SCALINGS, TARGET, annotations_of, name_of, uid_of
from sizewright.operator.scaling import WorkerScaler, scalable_job, scaling_patch, scaling_plan, with_workers
from sizewright.operator.sharing import RunningOffer, Sharing
from sizewright.recommender.control.action import Action
from sizewright.recommender.control.auto_scale import Scaling
from sizewright.recommender.control.resize import Resizer, Resizing
from sizewright.recommender.control.scaler import AutoScaler
from sizewright.runtime.guardrails import check_rails
from sizewright.runtime.plan_files import adjust_plan
from sizewright.spec import Allocation, Handle, Job, Metrics, Plan, Rails
from sizewright.spec.reason import Reason

_LOG = logging.getLogger(__name__)

_RETRY_S = 300.0
"""A job that could not be observed is left alone for so long."""
_RESIZE_TIMEOUT_S = 10.0
"""Other jobs wait while the nodes of one carry out a resize."""
_PENDING_S = 180.0
"""Workers that were added and do not run after this time are given up."""
_PLAN_ID = re.compile(r"-[0-9a-f]{8}\b")

OPERATOR_SCALING = Scaling(warm_up_s=120.0, cooldown_s=600.0, trial_s=300.0)
"""New pods may wait for a node, so that a change must pay for longer than one of replicas on one host."""

_IGNORED = "AnnotationIgnored"
RESIZED, SCALED = "Resized", "Scaled"
"""The reasons of the Events of changes."""

Told = Callable[[Mapping[str, Any], str, str, str], None]
"""Gets the object of a job, a reason in one word, a message, and the kind of the Event."""


@dataclass(frozen=True, kw_only=True)
class TuningSettings:
    """How often running jobs are looked at, and what of them may change."""

    every_s: float = 30.0
    resizing: Resizing | None = None
    """When pods are resized; None to leave their sizes."""
    scaling: Scaling | None = None
    """When the number of workers changes; None to leave it."""


@dataclass
class _Watched:
    """A running job: how to observe it, and what was seen of it."""

    described: Job
    executor: ClusterExecutor
    handle: Handle
    next_s: float
    resizer: Resizer | None = None
    scaler: WorkerScaler | None = None
    change_s: float = 0.0
    """Seconds until a job trains with another number of workers, once that was estimated."""
    is_rewritten: bool = False
    """True if somebody else writes another number of workers."""
    told: dict[str, str] = field(default_factory=dict)
    """What an Event of each reason was written of last."""


@dataclass(frozen=True)
class _Look:
    """What a look at a running job has shown: its object, its metrics, and its allocation."""

    kind: JobKind
    job_object: dict[str, Any]
    metrics: Metrics
    current: Allocation


class Tuner:
    """Watches running jobs.

    `scaler` knows how many samples/s a job trains with other numbers of workers. `told` writes an Event, `clock`
    measures pauses, and `now` is the time of day. Jobs that are `sharing` a cluster have the workers of their shares.
    """

    def __init__(
        self,
        api: KubeApi,
        settings: TuningSettings,
        rails: Rails,
        scaler: Callable[[Job, Scaling], AutoScaler],
        told: Told,
        clock: Callable[[], float],
        now: Callable[[], float],
        *,
        dry_run: bool,
        sharing: Sharing | None = None,
    ) -> None:
        self._api = api
        self._settings = settings
        self._rails = rails
        self._scaler = scaler
        self._told = told
        self._clock, self._now = clock, now
        self._dry_run = dry_run
        self._sharing = sharing
        self._watched: dict[str, _Watched] = {}

    def forget_all_but(self, uids: set[str]) -> None:
        """Forget jobs that are gone."""
        self._watched = {uid: watched for uid, watched in self._watched.items() if uid in uids}

    def may_change(self, job_object: Mapping[str, Any]) -> tuple[bool, bool]:
        """Return whether the pods of a job may be resized, and whether the number of its workers may change."""
        annotations = annotations_of(job_object)
        resizes = self._settings.resizing is not None and annotations.get(RESIZE, "yes") == "yes"
        return resizes, self._settings.scaling is not None and annotations.get(SCALE) == "yes"

    def offered(self, job_object: Mapping[str, Any]) -> RunningOffer | None:
        """Return what a running job could have of a shared cluster; None while that is unknown, or it must not change.

        It must not in its cool-down.
        """
        watched = self._watched.get(uid_of(job_object))
        if watched is None or watched.scaler is None or watched.is_rewritten or not self.may_change(job_object)[1]:
            return None
        if self._since_change_s(job_object) < watched.scaler.scaling.cooldown_s:
            return None
        candidates = watched.scaler.candidates()
        return RunningOffer(candidates, watched.scaler.samples_left, watched.change_s) if candidates else None

    def late_s(self, job_object: Mapping[str, Any]) -> float:
        """Return the seconds since a job was to be looked at; negative if that is not yet."""
        watched = self._watched.get(uid_of(job_object))
        return math.inf if watched is None else self._clock() - watched.next_s

    def tune(self, kind: JobKind, listed: Mapping[str, Any], still_runs: Callable[[dict[str, Any]], bool]) -> None:
        """Look at a running job that was listed, and change it if that pays and it `still_runs`.

        It is changed only while it runs on, and within the guardrails.
        """
        uid = uid_of(listed)
        try:
            watched = self._watched.get(uid) or self._watch(kind, listed)
        except SizewrightError as error:  # somebody has changed the annotations: what it may do is not known
            watched = self._watched[uid] = _Watched(
                Job(), kind.executor, Handle(executor=kind.executor.name, id="", job=""), self._clock() + _RETRY_S
            )
            self._cannot(watched, listed, "CannotTune", str(error))
            return
        if not watched.handle.id:  # its description could not be read, and may have been mended
            told = watched.told
            with suppress(SizewrightError):
                watched = self._watch(kind, listed)
                watched.told = told
        self._watched[uid] = watched
        watched.next_s = self._clock() + self._settings.every_s
        if not watched.handle.id:
            return
        try:
            look = self._look(watched, kind, uid, still_runs)
        except Exception as error:  # one job must not stop the others
            watched.next_s = self._clock() + _RETRY_S
            self._failed(watched, listed, "CannotTune", error)
            return
        if look:
            self._act(watched, look)

    def _act(self, watched: _Watched, look: _Look) -> None:
        """Take each step; one that fails does not keep the others from being taken."""
        steps = {"CannotResize": self._resize, "CannotScale": self._scale}
        for (reason, step), may in zip(steps.items(), self.may_change(look.job_object), strict=True):
            if not may:
                continue
            try:
                if step(watched, look):
                    return
            except Exception as error:
                self._failed(watched, look.job_object, reason, error)

    def _watch(self, kind: JobKind, job_object: Mapping[str, Any]) -> _Watched:
        described, meta = read_plan(job_object).job, job_object["metadata"]
        executor = kind.for_job(job_object, self._api, clock=self._now).executor
        handle = Handle(executor=kind.executor.name, id=f"{meta['namespace']}/{meta['name']}", job=described.name)
        return _Watched(described, executor, handle, self._clock())

    def _look(
        self, watched: _Watched, kind: JobKind, uid: str, still_runs: Callable[[dict[str, Any]], bool]
    ) -> _Look | None:
        """Read the job and its metrics; None unless it is the one that was listed, and runs at one size a role."""
        job_object = self._read(kind, watched.handle)
        if job_object is None or uid_of(job_object) != uid or not still_runs(job_object):
            return None
        self._check_annotations(watched, job_object)
        metrics = watched.executor.observe(watched.handle)
        current = metrics.allocation
        if current is None:
            return None
        if mixed := [role for role in ("worker", "ps") if len(getattr(current, role)) > 1]:
            sentence = (
                f"Its pods of role {mixed[0]} have several sizes, as after one was replaced; they are left alone."
            )
            self._cannot(watched, job_object, "CannotResize", sentence)
            return None
        return _Look(kind, job_object, metrics, current)

    def _read(self, kind: JobKind, handle: Handle) -> dict[str, Any] | None:
        namespace, _, name = handle.id.partition("/")
        return self._api.get(kind.executor.api_version, kind.executor.kind, namespace, name)

    def _check_annotations(self, watched: _Watched, job_object: Mapping[str, Any]) -> None:
        """Tell of annotations with values that mean nothing."""
        for name, values in ((RESIZE, ("yes", "no")), (SCALE, ("yes", "no"))):
            value = annotations_of(job_object).get(name)
            if value is not None and value not in values:
                sentence = f"Its annotation {name} is '{value}'. Write {' or '.join(values)}."
                self._cannot(watched, job_object, _IGNORED, sentence, name)

    def _resize(self, watched: _Watched, look: _Look) -> bool:
        """Resize the pods if that pays, and return whether they were."""
        job, settings = self._rails.narrow(watched.described), self._settings.resizing
        assert settings is not None
        if watched.resizer is None:
            watched.resizer = Resizer(job, settings)
        resizes_cores = not self.may_change(look.job_object)[1] or self._is_fixed(watched, look)
        takes_s = self._settings.every_s + watched.executor.change_cost(_resize_plan(job, look.current)).upper
        action = watched.resizer.act(self._clock(), look.metrics, look.current, takes_s, fits_cores=resizes_cores)
        if action is None:
            return False
        if action.target is None:
            self._cannot(watched, look.job_object, "CannotResize", action.reason, action.reasons[-1].kind)
            return False
        plan = adjust_plan(watched.described, look.current, action.target, action.reason)
        check_rails(plan, self._rails)
        sentence = f"Pods are resized to {action.target.describe()}. {action.reason}"
        if self._dry_run:
            kinds = " ".join(sorted(each.kind for each in action.reasons))  # numbers vary
            self._would(watched, look.job_object, "WouldResize", kinds, sentence)
            return False
        began_s = self._now()
        self._adjust(look, watched.handle, plan)
        watched.executor.await_change(watched.handle, plan, began_s, look.metrics.samples_trained, "resize_pods")
        watched.resizer.changed(look.current, action.target)
        self._changed(watched, look.job_object, RESIZED, sentence)
        return True

    def _is_fixed(self, watched: _Watched, look: _Look) -> bool:
        """Return whether the number of workers is fixed, so that their cores may change instead."""
        try:
            watched.executor.worker_limits(look.job_object)
        except InputError:
            return True
        return False

    def _adjust(self, look: _Look, handle: Handle, plan: Plan) -> None:
        """Carry out a plan; the object itself is the base manifest, of which nothing but sizes changes."""
        with tempfile.TemporaryDirectory(prefix="sizewright-") as folder:
            base = Path(folder) / "base.yaml"
            base.write_text(to_yaml([], look.kind.executor.as_created(look.job_object)), encoding="utf-8")
            executor = look.kind.for_job(look.job_object, self._api, base, self._now).executor
            executor.may_restart = False
            executor.changes_only = look.job_object
            executor.resize_timeout_s = _RESIZE_TIMEOUT_S
            executor.adjust(handle, plan.model_copy(update={"asked_by": ASKED_BY}))

    def _scale(self, watched: _Watched, look: _Look) -> bool:
        """Change the number of workers if that pays, and return whether it was changed."""
        scaling, current, job_object = self._settings.scaling, look.current, look.job_object
        assert scaling is not None
        if watched.is_rewritten or self._gives_up_pending(watched, look):
            return False
        if (step := self._rails.worker.step) and step < scaling.max_added_workers:
            scaling = scaling.model_copy(update={"max_added_workers": step})
        described = self._rails.narrow(watched.described)
        job = scalable_job(described, watched.executor, job_object, current, self._rails)
        scaler = watched.scaler
        if scaler is None or scaler.job != job:
            scaler = watched.scaler = WorkerScaler(job, watched.handle.id, current, self._scaler(job, scaling))
        scaler.observe(self._clock(), look.metrics, current)
        if self._since_change_s(job_object) < scaling.cooldown_s:
            return False
        changes = _count(annotations_of(job_object).get(SCALINGS))
        one_more = scaling_plan(job, current, current.replicas("worker") + 1)
        watched.change_s = watched.executor.change_costs.estimate(one_more, "scale").seconds
        if self._sharing:
            return self._follow_share(self._sharing, watched, look, changes)
        action = scaler.act(watched.change_s, changes)
        if action is None or action.target is None:
            return False
        workers = action.target.replicas("worker")
        return workers != current.replicas("worker") and self._scale_to(watched, look, workers, action.reason, changes)

    def _follow_share(self, sharing: Sharing, watched: _Watched, look: _Look, changes: int) -> bool:
        """Give a job the workers of its share of the cluster as far as these are free; return whether they changed."""
        current = look.current.replicas("worker")
        workers = sharing.granted(uid_of(look.job_object), current)
        if workers == current:
            return False
        target = with_workers(look.current, workers)
        reason = Action((Reason.of("share", target=target.describe()),)).reason
        return self._scale_to(watched, look, workers, reason, changes)

    def _since_change_s(self, job_object: Mapping[str, Any]) -> float:
        """Return the seconds since the last change of a running job."""
        return self._now() - (seconds_of(annotations_of(job_object).get(APPLIED_AT)) or 0.0)

    def _gives_up_pending(self, watched: _Watched, look: _Look) -> bool:
        """Return whether workers are missing; those that do not come are given up."""
        (asked,), running = watched.executor.sizes_of(look.job_object)["worker"], look.current.replicas("worker")
        if asked.replicas == running:
            watched.told.pop("WorkersMissing", None)
            return False
        if watched.scaler:
            watched.scaler.skip()
        sentence = f"{running} of {asked.replicas} workers run."
        self._cannot(watched, look.job_object, "WorkersMissing", sentence)
        annotations = annotations_of(look.job_object)
        waited_s = self._since_change_s(look.job_object)
        if running < asked.replicas and _count(annotations.get(SCALINGS)) and waited_s > _PENDING_S:
            reason = f"The others did not start within {waited_s:.0f} s."
            self._scale_to(watched, look, running, reason, _count(annotations.get(SCALINGS)))
        return True

    def _scale_to(self, watched: _Watched, look: _Look, workers: int, reason: str, changes: int) -> bool:
        """Write a number of workers into the object that was read, and return whether it is there now."""
        executor, job_object = watched.executor, look.job_object
        plan = scaling_plan(watched.described, look.current, workers, reason)
        plan = plan.model_copy(update={"asked_by": ASKED_BY})
        if plan.target.replicas("worker") > look.current.replicas("worker"):
            check_rails(plan, self._rails)
        patch = scaling_patch(executor, job_object, plan)
        sentence = f"Scaled to {workers} workers. {reason}"
        if self._dry_run:
            self._would(watched, job_object, "WouldScale", f"{workers} workers", sentence)
            return False
        at = datetime.fromtimestamp(self._now(), timezone.utc).isoformat()
        own = {TARGET: plan.target.describe(), INTERVAL: None, APPLIED_AT: at, SCALINGS: str(changes + 1)}
        metadata = {"annotations": {**plan_annotations(plan), **own}}
        written = self._api.change(job_object, {**patch, "metadata": metadata})
        if executor.sizes_of(written) != {**executor.sizes_of(job_object), "worker": plan.target.worker}:
            watched.is_rewritten = True
            sentence = "The cluster has written another number of workers, so it is left alone."
            self._cannot(watched, job_object, "SizesRewritten", sentence)
            return False
        if self._sharing:
            self._sharing.has_changed(uid_of(job_object), workers)
        executor.await_change(watched.handle, plan, self._now(), look.metrics.samples_trained, "scale")
        self._changed(watched, job_object, SCALED, sentence)
        return True

    def _changed(self, watched: _Watched, job_object: Mapping[str, Any], reason: str, sentence: str) -> None:
        watched.told = {each: what for each, what in watched.told.items() if each == _IGNORED}
        self._told(job_object, reason, sentence, "Normal")

    def _would(self, watched: _Watched, job_object: Mapping[str, Any], reason: str, what: str, sentence: str) -> None:
        """Tell what a dry run does not do, once as long as `what` stays the same."""
        if watched.told.get(reason) != what:
            watched.told[reason] = what
            self._told(job_object, reason, f"Nothing is changed. {sentence}", "Normal")

    def _failed(self, watched: _Watched, job_object: Mapping[str, Any], reason: str, error: Exception) -> None:
        if not isinstance(error, SizewrightError):
            _LOG.exception(f"{name_of(job_object)}: {reason}.", exc_info=error)
        self._cannot(watched, job_object, reason, str(error))

    def _cannot(
        self, watched: _Watched, job_object: Mapping[str, Any], reason: str, message: str, kind: str = ""
    ) -> None:
        """Tell why a job is not changed, once for each message, or for each `kind` of message with varying numbers."""
        what = kind or _PLAN_ID.sub("", message)
        if watched.told.get(reason) != what:
            watched.told[reason] = what
            self._told(job_object, reason, message, "Warning")


def _count(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def _resize_plan(job: Job, current: Allocation) -> Plan:
    """Return a plan that changes limits only, to ask what such a change costs."""
    worker = tuple(group.model_copy(update={"cpu": 2 * group.cpu}) for group in current.worker)
    return adjust_plan(job, current, current.model_copy(update={"worker": worker}))
