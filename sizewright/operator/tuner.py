"""Resize the pods of running jobs that the operator has sized, by what they use."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sizewright.errors import InputError, SizewrightError
from sizewright.executors.kubernetes.api import KubeApi
from sizewright.executors.kubernetes.cluster_executor import ClusterExecutor
from sizewright.executors.plan_annotations import read_plan
from sizewright.executors.yaml_documents import to_yaml
from sizewright.operator.decide import ASKED_BY
from sizewright.operator.job_kinds import JobKind
from sizewright.operator.labels import name_of
from sizewright.recommender.control.resize import Resizer, Resizing
from sizewright.runtime.guardrails import check_rails
from sizewright.runtime.plan_files import adjust_plan
from sizewright.spec import Allocation, Handle, Job, Plan, Rails

_LOG = logging.getLogger(__name__)

_RETRY_S = 300.0
"""A job that could not be resized is left alone for so long."""
_RESIZE_TIMEOUT_S = 10.0
"""Other jobs wait while the nodes of one carry out a resize."""

RESIZED = "Resized"
"""The reason of the Event of a resize."""

Told = Callable[[Mapping[str, Any], str, str, str], None]
"""Gets the object of a job, a reason in one word, a message, and the kind of the Event."""


@dataclass(frozen=True, kw_only=True)
class TuningSettings:
    """Whether and how often running jobs are looked at."""

    every_s: float = 30.0
    resizing: Resizing = field(default_factory=Resizing)


@dataclass
class _Watched:
    """A running job: how to observe it, and what was seen of it."""

    job: Job
    executor: ClusterExecutor
    resizer: Resizer
    next_s: float
    told: str = ""
    """What an Event was written of last."""


class Tuner:
    """Watches running jobs. `told` writes an Event, `clock` measures pauses, and `now` is the time of day."""

    def __init__(
        self,
        api: KubeApi,
        settings: TuningSettings,
        rails: Rails,
        told: Told,
        clock: Callable[[], float],
        now: Callable[[], float],
        *,
        dry_run: bool,
    ) -> None:
        self._api = api
        self._settings = settings
        self._rails = rails
        self._told = told
        self._clock, self._now = clock, now
        self._dry_run = dry_run
        self._watched: dict[str, _Watched] = {}

    def forget_all_but(self, uids: set[str]) -> None:
        """Forget jobs that are gone."""
        self._watched = {uid: watched for uid, watched in self._watched.items() if uid in uids}

    def tune(self, kind: JobKind, job_object: dict[str, Any]) -> bool:
        """Look at a running job if it is due, and resize its pods if that pays; return whether it was due.

        Its pods are resized only in place, and within the guardrails.
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
                    _LOG.exception(f"{name_of(job_object)} could not be resized.")
                self._cannot(watched, job_object, str(error))
            return True
        return False

    def _watch(self, kind: JobKind, job_object: dict[str, Any]) -> _Watched:
        job = self._rails.narrow(read_plan(job_object).job)
        executor = kind.for_job(job_object, self._api, clock=self._now).executor
        return _Watched(job, executor, Resizer(job, self._settings.resizing), self._clock())

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
                f"Its pods of role {mixed[0]} have several sizes, as after one was replaced; they are left alone.",
            )
            return
        takes_s = self._settings.every_s + watched.executor.change_cost(_resize_plan(watched.job, current)).upper
        action = watched.resizer.act(self._clock(), metrics, current, takes_s)
        if action is None:
            return
        if action.target is None:
            self._cannot(watched, job_object, action.reasons[-1].kind, action.reason)
            return
        plan = adjust_plan(watched.job, current, action.target, action.reason)
        check_rails(plan, self._rails)
        sentence = f"Pods are resized to {action.target.describe()}. {action.reason}"
        if self._dry_run:
            if watched.told != (kinds := " ".join(sorted(each.kind for each in action.reasons))):  # numbers vary
                watched.told = kinds
                self._told(job_object, "WouldResize", f"Nothing is changed. {sentence}", "Normal")
            return
        self._adjust(kind, handle, plan.model_copy(update={"asked_by": ASKED_BY}))
        watched.resizer.changed(current, action.target)
        watched.told = ""
        self._told(job_object, RESIZED, sentence, "Normal")

    def _adjust(self, kind: JobKind, handle: Handle, plan: Plan) -> None:
        """Carry out a plan; the object itself is the base manifest, of which nothing but sizes changes."""
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
            executor.adjust(handle, plan)

    def _cannot(self, watched: _Watched, job_object: Mapping[str, Any], why: str, message: str = "") -> None:
        """Tell why pods are not resized, once for each reason."""
        if watched.told != why:
            watched.told = why
            self._told(job_object, "CannotResize", message or why, "Warning")


def _resize_plan(job: Job, current: Allocation) -> Plan:
    """Return a plan that changes limits only, to ask what such a change costs."""
    worker = tuple(group.model_copy(update={"cpu": 2 * group.cpu}) for group in current.worker)
    return adjust_plan(job, current, current.model_copy(update={"worker": worker}))
