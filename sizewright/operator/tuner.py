"""Change running jobs that the operator has sized: the sizes of their pods by what they use, and their workers."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from sizewright.errors import InputError, SizewrightError
from sizewright.executors.kubernetes.api import KubeApi
from sizewright.executors.kubernetes.cluster_executor import ClusterExecutor
from sizewright.executors.plan_annotations import read_plan
from sizewright.executors.yaml_documents import to_yaml
from sizewright.operator.decide import ASKED_BY
from sizewright.operator.job_kinds import JobKind
from sizewright.operator.labels import RESIZE, SCALE, annotations_of, name_of
from sizewright.operator.scaling import WorkerChanges, scalable_job
from sizewright.recommender.control.auto_scale import Scaling
from sizewright.recommender.control.controller import Controller
from sizewright.recommender.control.resize import Resizer, Resizing
from sizewright.recommender.control.scaler import AutoScaler
from sizewright.runtime.guardrails import check_rails
from sizewright.runtime.plan_files import adjust_plan
from sizewright.spec import Allocation, Handle, Job, Metrics, Plan, Rails

_LOG = logging.getLogger(__name__)

_RETRY_S = 300.0
"""A job that could not be resized is left alone for so long."""
_RESIZE_TIMEOUT_S = 10.0
"""Other jobs wait while the nodes of one carry out a resize."""

OPERATOR_SCALING = Scaling(warm_up_s=120.0, cooldown_s=600.0, trial_s=300.0)
"""New pods may wait for a node, so that a change must pay for longer than one of replicas on one host."""

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

    job: Job
    executor: ClusterExecutor
    resizer: Resizer | None
    scales: bool
    next_s: float
    controller: Controller | None = None
    """The control loop of the number of workers, from the first look on."""
    told: str = ""
    """What an Event was written of last."""


class Tuner:
    """Watches running jobs.

    `scaler` knows how many samples/s a job trains at other sizes. `told` writes an Event, `clock` measures pauses, and
    `now` is the time of day.
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
    ) -> None:
        self._api = api
        self._settings = settings
        self._rails = rails
        self._scaler = scaler
        self._told = told
        self._clock, self._now = clock, now
        self._dry_run = dry_run
        self._watched: dict[str, _Watched] = {}

    def forget_all_but(self, uids: set[str]) -> None:
        """Forget jobs that are gone."""
        self._watched = {uid: watched for uid, watched in self._watched.items() if uid in uids}

    def tune(self, kind: JobKind, job_object: dict[str, Any]) -> bool:
        """Look at a running job if it is due, and change it if that pays; return whether it was due.

        It is changed only while it runs on, and within the guardrails.
        """
        uid = job_object["metadata"]["uid"]
        with suppress(SizewrightError):  # somebody has changed the annotations: what it may do is not known
            watched = self._watched.get(uid) or self._watch(kind, job_object)
            if self._clock() < watched.next_s:
                return False
            self._watched[uid] = watched
            watched.next_s = self._clock() + self._settings.every_s
            try:
                self._look_at(watched, kind, job_object)
            except Exception as error:  # one job must not stop the others
                watched.next_s = self._clock() + _RETRY_S
                if not isinstance(error, SizewrightError):
                    _LOG.exception(f"{name_of(job_object)} could not be looked at.")
                self._cannot(watched, job_object, "CannotResize", str(error))
            return True
        return False

    def _watch(self, kind: JobKind, job_object: dict[str, Any]) -> _Watched:
        job = self._rails.narrow(read_plan(job_object).job)
        executor = kind.for_job(job_object, self._api, clock=self._now).executor
        scales, resizes = may_change(self._settings, job_object)
        resizer = None
        if resizes and self._settings.resizing:
            resizer = Resizer(job, self._settings.resizing, fits_cores=not scales)
        return _Watched(job, executor, resizer, scales, self._clock())

    def _look_at(self, watched: _Watched, kind: JobKind, job_object: dict[str, Any]) -> None:
        meta = job_object["metadata"]
        handle = Handle(executor=kind.executor.name, id=f"{meta['namespace']}/{meta['name']}", job=watched.job.name)
        metrics = watched.executor.observe(handle)
        current = metrics.allocation
        if current is None:
            return
        if mixed := [role for role in ("worker", "ps") if len(getattr(current, role)) > 1]:
            self._cannot(
                watched,
                job_object,
                "CannotResize",
                f"Its pods of role {mixed[0]} have several sizes, as after one was replaced; they are left alone.",
            )
            return
        if watched.scales and self._scale(watched, kind, job_object, handle, metrics, current):
            return
        if watched.resizer:
            self._resize(watched, watched.resizer, kind, job_object, handle, metrics, current)

    def _scale(
        self,
        watched: _Watched,
        kind: JobKind,
        job_object: Mapping[str, Any],
        handle: Handle,
        metrics: Metrics,
        current: Allocation,
    ) -> bool:
        """Change the number of workers if that pays, and return whether it was changed."""
        assert self._settings.scaling
        try:
            job = scalable_job(watched.job, watched.executor, job_object, current)
        except InputError as error:
            self._cannot(watched, job_object, "CannotScale", str(error))
            return False
        controller = watched.controller
        if controller is None or controller.job != job:
            changes = WorkerChanges(watched.executor, lambda handle, plan: self._adjust(kind, handle, plan))
            scaler = self._scaler(job, self._settings.scaling)
            watched.controller = controller = Controller(
                job,
                changes,
                handle,
                current,
                scaler,
                clock=self._clock,
                now=lambda: datetime.fromtimestamp(self._now(), timezone.utc),
                turn_s=self._settings.every_s,
                dry_run=self._dry_run,
            )
        decision = controller.reconcile(metrics)
        if decision.target is None or decision.kind != "adjust":
            return False
        sentence = f"Scaled to {decision.target.replicas('worker')} workers. {decision.reason}"
        if self._dry_run:
            self._would(watched, job_object, "WouldScale", f"scale {decision.target.describe()}", sentence)
        elif decision.applied:
            watched.told = ""
            self._told(job_object, SCALED, sentence, "Normal")
        else:
            self._cannot(watched, job_object, "CannotScale", decision.error)
        return bool(decision.applied)

    def _resize(
        self,
        watched: _Watched,
        resizer: Resizer,
        kind: JobKind,
        job_object: Mapping[str, Any],
        handle: Handle,
        metrics: Metrics,
        current: Allocation,
    ) -> None:
        """Resize the pods if that pays."""
        takes_s = self._settings.every_s + watched.executor.change_cost(_resize_plan(watched.job, current)).upper
        action = resizer.act(self._clock(), metrics, current, takes_s)
        if action is None:
            return
        if action.target is None:
            self._cannot(watched, job_object, "CannotResize", action.reason, action.reasons[-1].kind)
            return
        plan = adjust_plan(watched.job, current, action.target, action.reason)
        sentence = f"Pods are resized to {action.target.describe()}. {action.reason}"
        if self._dry_run:
            check_rails(plan, self._rails)
            kinds = " ".join(sorted(each.kind for each in action.reasons))  # numbers vary
            self._would(watched, job_object, "WouldResize", kinds, sentence)
            return
        self._adjust(kind, handle, plan)
        resizer.changed(current, action.target)
        watched.told = ""
        self._told(job_object, RESIZED, sentence, "Normal")

    def _adjust(self, kind: JobKind, handle: Handle, plan: Plan) -> None:
        """Carry out a plan; the object itself is the base manifest, of which nothing but sizes changes.

        Raises GuardrailError for a plan beyond the guardrails, and the errors of the executor.
        """
        check_rails(plan, self._rails)
        namespace, _, name = handle.id.partition("/")
        job_object = self._api.get(kind.executor.api_version, kind.executor.kind, namespace, name)
        if job_object is None:
            raise InputError(f"{kind.executor.kind} {handle.id} is gone.", "Nothing is to be done.")
        with tempfile.TemporaryDirectory(prefix="sizewright-") as folder:
            base = Path(folder) / "base.yaml"
            base.write_text(to_yaml([], kind.executor.as_created(job_object)), encoding="utf-8")
            executor = kind.for_job(job_object, self._api, base, self._now).executor
            executor.may_restart = False
            executor.merges_changes = True
            executor.resize_timeout_s = _RESIZE_TIMEOUT_S
            executor.adjust(handle, plan.model_copy(update={"asked_by": ASKED_BY}))

    def _would(self, watched: _Watched, job_object: Mapping[str, Any], reason: str, what: str, sentence: str) -> None:
        """Tell what a dry run does not do, once as long as `what` stays the same."""
        if watched.told != what:
            watched.told = what
            self._told(job_object, reason, f"Nothing is changed. {sentence}", "Normal")

    def _cannot(
        self, watched: _Watched, job_object: Mapping[str, Any], reason: str, message: str, kind: str = ""
    ) -> None:
        """Tell why a job is not changed, once for each message, or for each `kind` of message with varying numbers."""
        if watched.told != (what := kind or message):
            watched.told = what
            self._told(job_object, reason, message, "Warning")


def may_change(settings: TuningSettings, job_object: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether the number of a job's workers may change, and whether its pods may be resized."""
    annotations = annotations_of(job_object)
    scales = settings.scaling is not None and annotations.get(SCALE) == "yes"
    return scales, settings.resizing is not None and annotations.get(RESIZE) != "no"


def _resize_plan(job: Job, current: Allocation) -> Plan:
    """Return a plan that changes limits only, to ask what such a change costs."""
    worker = tuple(group.model_copy(update={"cpu": 2 * group.cpu}) for group in current.worker)
    return adjust_plan(job, current, current.model_copy(update={"worker": worker}))
