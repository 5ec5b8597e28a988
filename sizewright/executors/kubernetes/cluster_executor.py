"""The base of executors whose platform is an operator on Kubernetes: they apply manifests and observe pods."""

from __future__ import annotations

import copy
import logging
import shlex
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from sizewright.errors import EngineError, ForbiddenError, InputError, SizewrightError
from sizewright.executors.change_costs import ChangeKind
from sizewright.executors.difference import difference
from sizewright.executors.kubernetes.api import MANAGER, KubeApi
from sizewright.executors.kubernetes.container_spec import YamlMap, main_container, one_of
from sizewright.executors.kubernetes.live_object import (
    RESIZED,
    LiveObject,
    PlannedObject,
    as_annotation,
    same_replicas_and_gpus,
)
from sizewright.executors.kubernetes.manifest_executor import ManifestExecutor
from sizewright.executors.kubernetes.merge_patch import merge_patch
from sizewright.executors.kubernetes.object_copy import ObjectCopy
from sizewright.executors.kubernetes.objects import seconds_of
from sizewright.executors.kubernetes.pod_resize import (
    NotResizedError,
    PodResize,
    amounts_of,
    check_resizes,
    exceeds,
    report_beside,
    resized,
)
from sizewright.executors.kubernetes.pods import Pods, has_ended, is_running
from sizewright.executors.plan_annotations import APPLIED_AT, BASE_MARK, OF_A_PLAN, plan_annotations, read_plan
from sizewright.executors.plan_checks import (
    check_adjusts,
    check_capable,
    check_launches,
    check_may_restart,
    check_no_job,
    check_not_ended,
)
from sizewright.executors.time_to_first_step import TimeToFirstStep, same_replicas
from sizewright.spec import (
    ROLES,
    Allocation,
    Capabilities,
    ChangeCost,
    Handle,
    Job,
    Metrics,
    Outcome,
    Plan,
    ReplicaLog,
    Role,
)
from sizewright.spec.outcome import Status

_LOG = logging.getLogger(__name__)

_DELETE_TIMEOUT_S = 120.0
_RESTORE_TIMEOUT_S = 100.0
"""Shorter than the time after which the command line kills an interrupted process."""
_RESIZE_TIMEOUT_S = 60.0
MAX_WORKERS = 10_000
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Label of a job that Kueue suspends and resumes."""
_POLL_S = 0.2
_METRICS_API = "metrics.k8s.io/v1beta1"
T = TypeVar("T")


class StillExistsError(EngineError):
    """Something that is being deleted still exists after the time in which it should be gone."""


class _Change(NamedTuple):
    """The change of a running job: its object, the document to apply, and whether the job runs on meanwhile."""

    job_object: dict[str, Any]
    document: dict[str, Any]
    in_place: bool
    resizes: tuple[PodResize, ...] | None = None
    """Containers to resize before the document is applied; None for a change of another kind."""
    annotations: Mapping[str, str | None] | None = None
    """Annotations to write in place of the document, if nothing else of the object may change."""


class ClusterExecutor(ManifestExecutor):
    """Launch, change, observe and stop jobs on a Kubernetes cluster.

    The cluster is that of the current kubeconfig, of `context`, or of `api`. Rendering plans needs no connection to it.
    A launch or change returns once the cluster has accepted it, though its pods may wait in a queue. The numbers of the
    roles that the platform `scales` change while the job runs, and so do cores and memory where it `resizes_pods`. For
    any other change the job is deleted and restarted, and resumes from its own checkpoints.
    """

    capabilities = Capabilities(launch=True, adjust=True, observe=True, stop=True, render=True)
    scales: ClassVar[frozenset[Role]] = frozenset()
    """The roles whose number of replicas the operator changes while the job runs."""
    resizes: ClassVar[bool] = False
    """True if the operator replaces pods whose size changed."""
    resizes_pods: ClassVar[bool] = False
    """True if the sizes of running pods can be changed behind the operator's back."""
    first_worker: ClassVar[str] = ""
    """The role in the labels of a worker that has an entry of its own; empty if the platform has none."""
    scales_in_queues: ClassVar[bool] = False
    """True if Kueue can let the number of workers of a running job change."""
    keeps_start_sizes: ClassVar[bool] = True
    """True if nobody can change the sizes that the operator gives new pods of a running job."""

    def __init__(
        self,
        *,
        base: str | Path | None = None,
        roles: Mapping[str, str] | None = None,
        kubeconfig: str | None = None,
        context: str | None = None,
        api: KubeApi | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(base=base, roles=roles)
        self._connect: Callable[[], KubeApi] = lambda: KubeApi(kubeconfig=kubeconfig, context=context)
        self._api = api
        self._kubectl = f"kubectl --context {shlex.quote(context)}" if context else "kubectl"
        self._clock = clock
        self._steps = TimeToFirstStep(self.change_costs, clock)
        self._pods: dict[str, Pods] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._serves_resize: bool | None = None
        self.may_restart = True
        self.changes_only: dict[str, Any] | None = None
        """The object that a change was decided on, which others have written: the change is merged into it."""
        self.resize_timeout_s = _RESIZE_TIMEOUT_S

    def end_status(self, document: Mapping[str, Any]) -> Status | None:
        """Return how a job ended, by the status of its object; None while it runs."""
        raise NotImplementedError

    def launch(self, plan: Plan) -> Handle:
        """Apply the plan's manifest. If the cluster has the job of this very plan already, return its handle.

        Raises InputError if another job has its name, and the API server's errors.
        """
        check_launches(plan)
        planned_object = PlannedObject(plan, self)
        document = self._to_apply(planned_object.document, plan)
        since_s = self._clock()
        handle = self._handle(document, plan)
        job_object = self._get(handle)
        if job_object and _is_being_deleted(job_object):
            self._await_deleted(handle, job_object, _DELETE_TIMEOUT_S)
            self._await_pods(handle, job_object, _DELETE_TIMEOUT_S)
            job_object = self._get(handle)
        if job_object:
            self._check_launched(handle, job_object, planned_object)
        else:
            self._apply(document)
            self._time_first_step(handle, planned_object, since_s, 0)
        self._outcomes.pop(handle.id, None)
        return handle

    def adjust(self, handle: Handle, plan: Plan) -> None:
        """Bring the job to the plan's target. Do nothing if this very plan was carried out already.

        Raises InputError if the plan was made for another job or for other sizes, or during the cool-down.
        """
        check_capable(self, plan)
        planned_object = PlannedObject(plan, self)
        change = self._change_of(handle, planned_object)
        if change is None:
            return
        since_s = self._clock()
        samples = self._samples_trained(handle)
        in_place = change.in_place and self._apply_in_place(handle, change)
        if not in_place:
            self._restart(handle, change.job_object, self._to_apply(planned_object.document, plan))
        kind: ChangeKind | None = "resize_pods" if in_place and change.resizes is not None else None
        self._time_first_step(handle, planned_object, since_s, samples, kind)

    def change_cost(self, plan: Plan) -> ChangeCost:
        """Return the seconds until the platform's replicas train; pods that are resized in place train on."""
        return self.change_costs.estimate(plan, self._change_kind(plan))

    def observe(self, handle: Handle) -> Metrics:
        """Return the metrics of the pods that run; a job in a queue has none."""
        job_object = self._existing_object(handle)
        pods = self._pods_of(handle, job_object)
        pod_objects, usages = self._pod_objects(handle, job_object), self._usages(handle, job_object)

        def read_log(pod: str, container: str, lines: int | None) -> str:
            return self._log(handle, pod, container, lines)

        metrics = pods.read(pod_objects, usages, read_log, self.reported_samples(job_object, pods.job))
        self._steps.on_metrics(handle.id, metrics)
        return metrics

    def await_change(self, handle: Handle, plan: Plan, since_s: float, samples: int, kind: ChangeKind) -> None:
        """Measure the time until a job trains at a plan's target, to which somebody has changed it while it ran on."""
        self._steps.await_step(handle.id, plan, plan.target, since_s, samples, kind)

    def replica_logs(self, handle: Handle) -> list[ReplicaLog]:
        """Return the complete logs of the pods that have started, with the time of each line."""
        job_object = self._existing_object(handle)
        pods = self._pods_of(handle, job_object)
        pod_objects, usages = self._pod_objects(handle, job_object), self._usages(handle, job_object)
        return pods.logs(pod_objects, usages, lambda pod, name: self._log(handle, pod, name, timestamps=True))

    def out_of_memory(self, handle: Handle) -> Iterator[str]:
        """Yield the pods of a job in which memory ended the container that trains."""
        job_object = self._existing_object(handle)
        pods = self._pods_of(handle, job_object)
        for pod in self._pod_objects(handle, job_object):
            if pods.ran_out_of_memory(pod):
                yield str(pod["metadata"]["name"])

    def _usages(self, handle: Handle, job_object: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the PodMetrics of the job's pods; none where they are missing or forbidden.

        Containers that call `log_samples` report their usage anyway.
        """
        selector = f"{self.labels.job}={self.job_label(job_object)}"
        try:
            return self.api.list(_METRICS_API, "PodMetrics", _namespace(handle), selector)
        except SizewrightError:
            return []

    def _log(
        self, handle: Handle, pod: str, container: str, lines: int | None = None, *, timestamps: bool = False
    ) -> str:
        """Return a container's log; empty if it has not started, or its node does not answer."""
        try:
            return self.api.log(_namespace(handle), pod, container, lines, timestamps=timestamps)
        except ForbiddenError:
            raise
        except (InputError, EngineError):
            return ""

    def recreate(self, job_object: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
        """Delete a suspended job in the state in which it was read, create it from a document, and return it.

        The job is created as it was if the cluster refuses the document. Raises InputError if it has changed meanwhile.
        """
        namespace, name = (job_object["metadata"][key] for key in ("namespace", "name"))
        handle = Handle(executor=self.name, id=f"{namespace}/{name}", job=name)
        self._restart(handle, job_object, document, version=job_object["metadata"]["resourceVersion"])
        return self._existing_object(handle)

    def as_created(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return an object of the cluster as it can be created again."""
        return _as_applied(document)

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Wait up to about `timeout_s` seconds for the job to end, and return whether it has ended."""
        if handle.id in self._outcomes or self.end_status(self._existing_object(handle)):
            return True
        name = handle.id.partition("/")[2]
        deadline_s = time.monotonic() + timeout_s
        while handle.id not in self._outcomes and (remaining_s := deadline_s - time.monotonic()) > 0:
            if remaining_s >= 1:  # the shortest time-out of a watch
                events = self.api.watch(self.api_version, self.kind, _namespace(handle), name, remaining_s)
                if any(self.end_status(event) for event in events):
                    return True
            time.sleep(min(1.0, max(0.0, deadline_s - time.monotonic())))  # the server may end a watch at once
        return handle.id in self._outcomes

    def stop(self, handle: Handle) -> Outcome:
        """Delete the job if it still runs. A second call returns the same outcome."""
        if handle.id not in self._outcomes:
            job_object = self._existing_object(handle)
            status = self.end_status(job_object)
            samples = self._samples_trained(handle)
            if status is None:
                self._delete(handle, job_object)
            self._steps.forget(handle.id)
            created_s = seconds_of(job_object["metadata"].get("creationTimestamp"))
            duration_s = max(0.0, self._clock() - created_s) if created_s else 0.0
            self._outcomes[handle.id] = Outcome(status=status or "stopped", samples=samples or 0, duration_s=duration_s)
        return self._outcomes[handle.id]

    def find(self, plan: Plan) -> Handle | None:
        """Return the handle of the plan's job, or None if the cluster does not have it."""
        handle = self._handle(self._to_apply(self.document(plan), plan), plan)
        return handle if self._get(handle) else None

    def difference(self, plan: Plan) -> str:
        """Return what the plan would change on the cluster, as the lines of a diff; empty if it would change nothing.

        Nothing is changed. Raises the errors that applying the plan would raise.
        """
        check_capable(self, plan)
        self.groups(plan)  # raises for a plan that keeps the job
        planned_object = PlannedObject(plan, self)
        document = self._to_apply(planned_object.document, plan)
        handle = self._handle(document, plan)
        if plan.kind == "launch":
            return self._launch_difference(handle, planned_object, document)
        change = self._change_of(handle, planned_object)
        if change is None:
            return ""
        if not change.in_place:
            self._pod_objects(handle, change.job_object)  # raises if pods may not be listed, which a restart needs
            return (
                self._lines(change.job_object, self._dry_run(change.document)) + "The job is deleted and restarted.\n"
            )
        if change.annotations is not None:
            return _resize_lines(change.resizes or ())
        before = change.job_object if change.document["kind"] == self.kind else None
        return self._lines(before, self._apply(change.document, dry_run=True)) + _resize_lines(change.resizes or ())

    def _change_of(self, handle: Handle, planned_object: PlannedObject) -> _Change | None:
        """Return how a plan changes a running job; None if it changes nothing. Raises InputError if it cannot now."""
        plan, job_object = planned_object.plan, self._existing_object(handle)
        live_object = LiveObject(self.sized_object(job_object), self, job_object)
        if self.changes_only and self.as_created(job_object) != self.as_created(self.changes_only):
            raise InputError(f"{self.kind} {handle.id} has changed meanwhile.", "Look at it again.")
        if not self._check_can_adjust(handle, job_object, live_object, planned_object):
            return None
        # New pods of a job that was resized would have the sizes of its start.
        scales = self.scaled_roles(job_object, plan.target)
        if not live_object.is_resized and live_object.changes_in_place(planned_object, scales, self.resizes):
            document = self.change_object(plan, planned_object.document)
            return _Change(job_object, self._to_apply(document, plan), in_place=True)
        document = self._to_apply(planned_object.document, plan)
        if self.resizes_pods and live_object.changes_cores_or_memory_only(planned_object) and self._can_resize():
            try:
                resizes = self._resizes(handle, job_object, planned_object)
                check_resizes(self.api, _namespace(handle), resizes)
            except NotResizedError as error:
                self._report_restart(handle, error)
            else:
                return self._resizing_change(job_object, document, planned_object, resizes)
        check_may_restart(f"{self.kind} {handle.id}", self.may_restart)
        return _Change(job_object, document, in_place=False)

    def _resizing_change(
        self,
        job_object: dict[str, Any],
        document: dict[str, Any],
        planned_object: PlannedObject,
        resizes: tuple[PodResize, ...],
    ) -> _Change:
        """Return the change of a job whose pods are resized; Kueue would stop a job whose template changes."""
        if not (self.keeps_start_sizes or is_queued(job_object)):
            document["metadata"]["uid"] = _uid(job_object)  # never a new object
            return _Change(job_object, document, in_place=True, resizes=resizes)
        written = self._to_apply({"metadata": {}}, planned_object.plan)["metadata"]["annotations"]
        sizes = planned_object.sizes
        is_as_at_start = sizes == self.sizes_of(self.sized_object(job_object))
        annotations = {**dict.fromkeys(OF_A_PLAN), **written, RESIZED: None if is_as_at_start else as_annotation(sizes)}
        return _Change(job_object, document, in_place=True, resizes=resizes, annotations=annotations)

    def _change_kind(self, plan: Plan) -> ChangeKind | None:
        """Return `resize_pods` for a change of cores and memory alone where pods can be resized, else None."""
        if not self.resizes_pods or plan.changes_nothing or plan.current is None or plan.migrate or plan.rebalance:
            return None
        before, after = plan.current, plan.target
        same = before.batch_size == after.batch_size and same_replicas_and_gpus(before.groups, after.groups)
        return "resize_pods" if same and before != after and self._api is not None and self._can_resize() else None

    def _can_resize(self) -> bool:
        """Return whether the server resizes pods; it is asked once."""
        if self._serves_resize is None:
            try:
                self._serves_resize = self.api.serves_resize()
            except SizewrightError:  # whatever follows says why
                return False
        return self._serves_resize

    def _resizes(
        self, handle: Handle, job_object: dict[str, Any], planned_object: PlannedObject
    ) -> tuple[PodResize, ...]:
        """Return the resizes that bring the pods of a job to a plan's target.

        Raises NotResizedError if they do not all run, or the plan asks for other amounts, or for more than Kueue has
        reserved, which is what the job asked for at its start.
        """
        specs = {role: self.places(planned_object.document, role) for role in planned_object.sizes}
        for role, of_role in specs.items():
            sized, sized_at_start = (
                [spec for spec in each if spec.asks_for_cores] for each in (of_role, self.places(job_object, role))
            )
            for spec, at_start in zip(sized, sized_at_start, strict=True):
                planned, start = (amounts_of(each.container.get(each.resources)) for each in (spec, at_start))
                if {part: {*planned[part]} for part in planned} != {part: {*start[part]} for part in start}:
                    raise NotResizedError(f"The plan requests or limits other resources of {role}.", "Restart the job.")
                if is_queued(job_object) and exceeds(planned, start):
                    raise NotResizedError(
                        f"The plan asks for more than Kueue has reserved for {role} of {handle.id}.",
                        "Let the job wait in its queue again.",
                    )
        pods = self._pods_of(handle, job_object)
        resizes: list[PodResize] = []
        for pod in self._pod_objects(handle, job_object):
            place = pods.group_of(pod)
            if place and (pod.get("status") or {}).get("phase") == "Succeeded":  # the job may be about to end
                name = pod["metadata"]["name"]
                raise InputError(f"Pod {name} of {handle.id} has ended.", "Make a new plan from what runs.")
            if place is None or has_ended(pod):
                continue
            of_role, group = specs.get(place[0], []), place[1]
            if self.is_first_worker(pod):
                group = len(of_role) - 1
            if group >= len(of_role) or not of_role[group].asks_for_cores:
                continue
            if not is_running(pod):
                raise NotResizedError(f"Pod {pod['metadata']['name']} does not run.", "Wait until it does.")
            spec = of_role[group]
            names = [str(spec.container.get("name")), *self.containers]
            container = main_container({"spec": pod["spec"]}, names, handle.id)
            resizes.append(PodResize.of(pod, container, spec.container[spec.resources]))
        expected = sum(group.replicas for groups in planned_object.sizes.values() for group in groups)
        if len(resizes) != expected:
            raise NotResizedError(f"{handle.id} has {len(resizes)} of its {expected} pods.", "Wait until all run.")
        return tuple(resize for resize in resizes if resize.changed)

    def _apply_in_place(self, handle: Handle, change: _Change) -> bool:
        """Carry out a change while the job runs, and return whether that was possible.

        Raises NotResizedError if pods cannot be resized and the job may not be restarted.
        """
        if change.resizes is None:
            self._write(change)
            return True
        selector = f"{self.labels.job}={self.job_label(change.job_object)}"
        try:
            with resized(self.api, _namespace(handle), selector, change.resizes, self.resize_timeout_s):
                if change.annotations is None:
                    self._write(change)
                else:
                    self.api.annotate(change.job_object, change.annotations)
        except NotResizedError as error:
            self._check_still_runs(handle, change.job_object)
            self._report_restart(handle, error)
            return False
        if change.annotations is not None and change.annotations[RESIZED]:
            _LOG.warning(
                f"The pods of {self.kind} {handle.id} were resized. A pod that replaces one of them gets the earlier "
                "size, since the object stays as it was at the start."
            )
        return True

    def _write(self, change: _Change) -> None:
        """Write the changed document of a job that runs on."""
        if self.changes_only:
            self.api.change(change.job_object, merge_patch(self.as_created(change.job_object), change.document))
        else:
            self._apply(change.document)

    def _check_still_runs(self, handle: Handle, job_object: Mapping[str, Any]) -> None:
        """Raise InputError if the job was deleted or ended while its pods were resized."""
        current = self._get(handle)
        if current is None or _uid(current) != _uid(job_object) or _is_being_deleted(current):
            raise InputError(f"{self.kind} {handle.id} was deleted meanwhile.", "Launch it with a new plan.")
        check_not_ended(f"{self.kind} {handle.id}", self.end_status(current) is not None)

    def _report_restart(self, handle: Handle, error: NotResizedError) -> None:
        """Warn that the job is restarted because of the error. Raises it if restarts are not allowed."""
        if not self.may_restart:
            raise error
        _LOG.warning(f"{error.message} {self.kind} {handle.id} is restarted instead.")

    def _launch_difference(self, handle: Handle, planned_object: PlannedObject, document: dict[str, Any]) -> str:
        job_object = self._get(handle)
        if job_object is None:
            return self._lines(None, self._apply(document, dry_run=True))
        if _is_being_deleted(job_object):
            return self._lines(None, self._dry_run(document))
        self._check_launched(handle, job_object, planned_object)
        return ""

    def apply_command(self, plan: Plan) -> str:
        """Return the sentence that says how to apply a manifest; kubectl cannot restart a job for a change."""
        keeps_batch = plan.current is not None and plan.current.batch_size == plan.target.batch_size
        if plan.kind == "adjust" and not (self.resizes and keeps_batch):
            return "Apply it with: sizewright apply, which restarts the job if the change needs it."
        return super().apply_command(plan)

    def worker_limits(self, job_object: Mapping[str, Any]) -> tuple[int, int]:
        """Return how few and how many workers this job can have while it runs on.

        Raises InputError with the reason if their number is fixed.
        """
        if "worker" in self.scales:
            return 1, MAX_WORKERS
        raise InputError(
            f"The number of workers of a {self.kind} cannot change while it runs.",
            "Use an indexed Job with as many completions as pods, or a PyTorchJob with an elasticPolicy.",
        )

    def scaled_roles(self, job_object: Mapping[str, Any], target: Allocation) -> frozenset[Role]:
        """Return the roles whose number of replicas changes to that of a target while this job runs on."""
        try:
            low, high = self.worker_limits(job_object)
        except InputError:
            return self.scales - {"worker"}
        can_scale = low <= target.replicas("worker") <= high
        return self.scales | {"worker"} if can_scale else self.scales - {"worker"}

    def sized_object(self, job_object: dict[str, Any]) -> dict[str, Any]:
        """Return the object that has the sizes of a job."""
        return job_object

    def change_object(self, plan: Plan, planned_job: YamlMap) -> YamlMap:
        """Return the object that changes a running job: its own, unless the platform has another kind for changes."""
        return planned_job

    def reported_samples(self, job_object: Mapping[str, Any], job: Job) -> int | None:
        """Return the samples of a job by the status of its object; None where the platform has no such status."""
        return None

    def is_first_worker(self, pod: Mapping[str, Any]) -> bool:
        """Return whether a pod is of the worker that has an entry of its own."""
        role = str((pod["metadata"].get("labels") or {}).get(self.labels.role, ""))
        return bool(self.first_worker) and role.lower() == self.first_worker.lower()

    def job_label(self, document: Mapping[str, Any]) -> str:
        """Return the value of the label by which the job's pods are selected."""
        return str(document["metadata"]["name"])

    @property
    def where(self) -> str:
        """The cluster's address, for the audit log."""
        return self.api.host

    @property
    def api(self) -> KubeApi:
        """The client of the cluster, which connects on first use."""
        if self._api is None:
            self._api = self._connect()
        return self._api

    def _to_apply(self, document: YamlMap, plan: Plan) -> dict[str, Any]:
        """Return the object to apply: that of the manifest, with the annotations of its plan."""
        meta = {**document["metadata"]}
        meta.pop("generateName", None)  # server-side apply needs the name
        meta.setdefault("name", plan.job.name)
        meta.setdefault("namespace", plan.job.deploy.namespace)
        annotations = {**(meta.get("annotations") or {}), **plan_annotations(plan)}
        annotations.pop(RESIZED, None)  # of another object, if a base has it
        annotations[APPLIED_AT] = datetime.fromtimestamp(self._clock(), timezone.utc).isoformat()
        if self._base:
            annotations[BASE_MARK] = "yes"
        meta["annotations"] = annotations
        return {**document, "metadata": meta}

    def _check_launched(self, handle: Handle, job_object: Mapping[str, Any], planned_object: PlannedObject) -> None:
        """Raise InputError if the job was not launched by this very plan."""
        check_no_job(f"{self.kind} {handle.id}", not LiveObject(job_object, self).was_applied_by(planned_object))

    def _check_can_adjust(
        self, handle: Handle, job_object: Mapping[str, Any], live_object: LiveObject, planned_object: PlannedObject
    ) -> bool:
        """Return whether the plan changes the job. Raises InputError if the job cannot be changed by it now."""
        plan = planned_object.plan
        check_adjusts(plan, handle)
        if _is_being_deleted(job_object):
            raise InputError(f"{self.kind} {handle.id} is being deleted.", "Launch it with a new plan when it is gone.")
        if plan.kind == "keep" or live_object.was_applied_by(planned_object):
            return False
        check_not_ended(f"{self.kind} {handle.id}", self.end_status(job_object) is not None)
        running = self._allocation_of_resized(handle, job_object, live_object)
        if not (running and plan.current and same_replicas(running, plan.current)):
            live_object.check_current(plan)
        # Pods that replace resized ones have the sizes of the start.
        if live_object.has(planned_object) and (running is None or same_replicas(running, planned_object.allocation)):
            return False
        live_object.check_cool_down(plan, self._clock())
        self._check_base(job_object)
        return True

    def _allocation_of_resized(
        self, handle: Handle, job_object: Mapping[str, Any], live_object: LiveObject
    ) -> Allocation | None:
        """Return the allocation of a job's pods that were resized; None if none were, or not all pods run."""
        if not live_object.is_resized:
            return None
        pods = self._pods_of(handle, job_object)
        running = pods.allocation(self._pod_objects(handle, job_object))
        expected = Allocation(**live_object.sizes, batch_size=1)
        all_run = running and all(running.replicas(role) == expected.replicas(role) for role in ROLES)
        return running if all_run else None

    def _check_base(self, job_object: Mapping[str, Any]) -> None:
        """Raise InputError if the job was made from a base manifest and this executor has none."""
        if not self._base and (job_object["metadata"].get("annotations") or {}).get(BASE_MARK):
            raise InputError(
                f"{self.kind} {job_object['metadata']['name']} was made from a base manifest, which its changes need, "
                "too.",
                "Pass the same base manifest.",
            )

    def _handle(self, document: Mapping[str, Any], plan: Plan) -> Handle:
        meta = document["metadata"]
        name = document["spec"].get("ownerJob", meta["name"])  # of an object that only changes a job
        return Handle(executor=self.name, id=f"{meta['namespace']}/{name}", job=plan.job.name)

    def _apply(self, document: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        """Apply the objects of a job's document, and return it as the cluster has it then."""
        return self.api.apply(document, dry_run=dry_run)

    def _lines(self, before: dict[str, Any] | None, after: dict[str, Any]) -> str:
        """Return the diff between the objects of two documents."""
        objects = {each["kind"]: each for each in self.objects_of(before)} if before else {}
        return "".join(difference(objects.get(each["kind"]), each) for each in self.objects_of(after))

    def _get(self, handle: Handle) -> dict[str, Any] | None:
        return self.api.get(self.api_version, self.kind, _namespace(handle), handle.id.partition("/")[2])

    def _existing_object(self, handle: Handle) -> dict[str, Any]:
        """Return the job's object. Raises InputError if there is none, or the handle is not of this executor."""
        if handle.executor != self.name or "/" not in handle.id:
            raise InputError(
                f"{handle.id} of executor '{handle.executor}' is not a handle of {self.name}.",
                f"Pass the handle of a job that {self.name} launched.",
            )
        if handle.id in self._outcomes:
            raise InputError(f"{self.kind} {handle.id} was stopped.", "Launch it with a new plan.")
        job_object = self._get(handle)
        if job_object is None:
            raise InputError(f"The cluster has no {self.kind} {handle.id}.", "Launch it, or pass another handle.")
        return job_object

    def _restart(self, handle: Handle, job_object: dict[str, Any], document: dict[str, Any], version: str = "") -> None:
        """Delete the job and apply its new manifest.

        A dry run first raises whatever the cluster refuses. If the cluster refuses the manifest after all, or the user
        interrupts the change, the previous job is started again. Its object is in a file until a job runs again; the
        error names the file if none does.
        """
        self._dry_run(document)
        self._pod_objects(handle, job_object)  # raises before the deletion if pods may not be listed
        as_it_runs = self._as_it_runs(job_object)
        kept = ObjectCopy(handle.id, as_it_runs, self.objects_of(as_it_runs))
        try:
            self._delete(handle, job_object, version)
            self._await_pods(handle, job_object, _DELETE_TIMEOUT_S)
            self._apply(document)
        except BaseException as error:  # an interrupt must not leave the job deleted either
            if isinstance(error, KeyboardInterrupt):
                _LOG.warning(f"Restoring {self.kind} {handle.id}; its object is in {kept.path}.")
            self._restore_after(error, handle, job_object, kept)
            raise
        kept.remove()

    def _restore_after(
        self, cause: BaseException, handle: Handle, job_object: dict[str, Any], kept: ObjectCopy
    ) -> None:
        """Start the job again after its change failed. Raises an error that names the copy if that fails.

        An interrupt stays one; its message is then a warning, too.
        """
        try:
            restored = self._restore(handle, job_object, kept, cause)
        except BaseException as error:
            failure = self._not_restored(handle, kept, cause, error)
            interrupts = [each for each in (cause, error) if not isinstance(each, Exception)]
            if not interrupts:
                raise failure from cause
            _LOG.warning(str(failure))
            if isinstance(interrupts[0], KeyboardInterrupt):
                interrupts[0].args = (failure.message,)  # for the audit log
            raise interrupts[0] from error
        kept.remove()
        if restored:
            sentence = f"{self.kind} {handle.id} was deleted for this change, and was started again as it was before."
            report_beside(cause, sentence)

    def _restore(self, handle: Handle, job_object: dict[str, Any], kept: ObjectCopy, cause: BaseException) -> bool:
        """Start the job again if it was deleted, and return whether it was. Repeat failed requests for a while."""
        deadline_s = time.monotonic() + _RESTORE_TIMEOUT_S
        current = _repeat(lambda: self._get(handle), deadline_s)
        if current and not (_uid(current) == _uid(job_object) and _is_being_deleted(current)):
            return False
        if isinstance(cause, StillExistsError):
            if current:
                raise cause
        else:
            self._await_deleted(handle, job_object, deadline_s - time.monotonic())
            with suppress(SizewrightError):  # pods of a lost node may never go, and a job that stays deleted is worse
                self._await_pods(handle, job_object, deadline_s - time.monotonic())
        _repeat(lambda: self._apply(kept.document), deadline_s)
        return True

    def _not_restored(
        self, handle: Handle, kept: ObjectCopy, cause: BaseException, restore_error: BaseException
    ) -> EngineError:
        """Return the error that names the file with the only copy of a job."""
        state = "is being deleted" if isinstance(restore_error, StillExistsError) else "may be gone"
        why = f"its change {_reason(cause)}"
        if restore_error is not cause:
            why += f", and starting it again {_reason(restore_error)}"
        namespace, _, name = handle.id.partition("/")
        resource = f"{self.kind.lower()}.{self.api_version.partition('/')[0]}"
        return EngineError(
            f"{self.kind} {handle.id} {state}: {why}. Its object is in {kept.path}.",
            f"Wait until `{self._kubectl} get {resource} {name} -n {namespace}` finds nothing, then run: "
            f"{self._kubectl} apply --server-side --field-manager={MANAGER} -f {shlex.quote(str(kept.path))}",
        )

    def _pod_objects(self, handle: Handle, job_object: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the pods of the job."""
        return self.api.list("v1", "Pod", _namespace(handle), f"{self.labels.job}={self.job_label(job_object)}")

    def _await_pods(self, handle: Handle, job_object: Mapping[str, Any], timeout_s: float) -> None:
        """Wait until all pods of the job are gone, since they write its checkpoints as they end."""
        _await_none(lambda: self._pod_objects(handle, job_object), f"Pods of {handle.id} still exist", timeout_s)

    def _dry_run(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the object as the cluster would create it. Raises the API server's errors.

        While the job exists, a dry run under its own name would be checked as a change of it, and fields that cannot be
        changed would be refused. Therefore the creation is checked under a name that is not in use.
        """
        name = document["metadata"]["name"]
        suffix = f"-{uuid.uuid4().hex[:8]}"
        check_name = name[: self.max_name_length - len(suffix)].rstrip("-.") + suffix
        renamed = {**document, "metadata": {**document["metadata"], "name": check_name}}
        try:
            created = self._apply(renamed, dry_run=True)
        except SizewrightError as error:
            error.message = error.message.replace(check_name, name)  # the user has no object of the other name
            raise
        return {**created, "metadata": {**created["metadata"], "name": name}}

    def _delete(self, handle: Handle, job_object: Mapping[str, Any], version: str = "") -> None:
        """Delete this very object, in the state of a `version` if one is given, and wait until it is gone."""
        name = handle.id.partition("/")[2]
        self.api.delete(self.api_version, self.kind, _namespace(handle), name, _uid(job_object), version)
        self._await_deleted(handle, job_object, _DELETE_TIMEOUT_S)

    def _await_deleted(self, handle: Handle, job_object: Mapping[str, Any], timeout_s: float) -> None:
        """Wait until the object is gone. Somebody may have created another one of its name."""

        def exists() -> bool:
            current = self._get(handle)
            return current is not None and _uid(current) == _uid(job_object)

        _await_none(exists, f"{self.kind} {handle.id} still exists", timeout_s)

    def _as_it_runs(self, job_object: Mapping[str, Any]) -> dict[str, Any]:
        """Return the object to apply again, with the sizes that its pods were resized to."""
        document = self.as_created(job_object)
        live_object = LiveObject(document, self)
        for role, groups in live_object.sizes.items() if live_object.is_resized else ():
            specs = [spec for spec in self.places(document, role) if spec.asks_for_cores]
            for spec, group in zip(specs, [*groups, *(one_of(groups[0]) for _ in specs[len(groups) :])], strict=True):
                spec.write(group, self.cpu_step_m)
        document["metadata"]["annotations"].pop(RESIZED, None)
        return document

    def _time_first_step(
        self,
        handle: Handle,
        planned_object: PlannedObject,
        since_s: float,
        samples: int | None,
        kind: ChangeKind | None = None,
    ) -> None:
        """Measure the time until the first step after a change, if the `samples` before it are known."""
        if samples is None:
            return
        plan = planned_object.plan
        self._steps.await_step(handle.id, plan, planned_object.allocation, since_s, samples, kind)

    def _samples_trained(self, handle: Handle) -> int | None:
        try:
            return self.observe(handle).samples_trained
        except SizewrightError:  # a change or stop goes on without this number
            return None

    def _pods_of(self, handle: Handle, job_object: Mapping[str, Any]) -> Pods:
        if handle.id not in self._pods:
            self._pods[handle.id] = self._new_pods(job_object, handle)
        return self._pods[handle.id]

    def _new_pods(self, job_object: Mapping[str, Any], handle: Handle) -> Pods:
        document = dict(job_object)
        try:
            job = read_plan(job_object).job
        except InputError:
            job = Job(name=handle.job)
        # Pods may have other containers, which may come first.
        try:
            specs = [spec for role in self.roles for spec in self.places(document, role)]
            names = [str(spec.container.get("name")) for spec in specs]
        except InputError:  # somebody has changed the object meanwhile
            names = []
        role_names = {**self.roles, **self.role_names(document)}
        roles: dict[str, Role] = {name: role for role, name in role_names.items()}
        if self.first_worker:
            roles[self.first_worker] = "worker"
        return Pods(job, self.labels, roles, [*dict.fromkeys(names), *self.containers], self._clock)


def is_queued(job_object: Mapping[str, Any]) -> bool:
    """Return whether a job waits in a queue of Kueue before it starts."""
    return QUEUE_LABEL in (job_object["metadata"].get("labels") or {})


def _resize_lines(resizes: Sequence[PodResize]) -> str:
    """Return a line for each size that pods get while they run."""
    changes = Counter(
        ", ".join(
            f"{part} {name} {resize.before[part][name]} → {resize.after[part][name]}"
            for part in resize.after
            for name in resize.after[part]
            if name in resize.changed
        )
        for resize in resizes
    )
    return "".join(f"{count} running pods are resized: {change}.\n" for change, count in changes.items())


def _namespace(handle: Handle) -> str:
    return handle.id.partition("/")[0]


def _uid(job_object: Mapping[str, Any]) -> str:
    return str(job_object["metadata"].get("uid") or "")


def _is_being_deleted(job_object: Mapping[str, Any]) -> bool:
    return bool(job_object["metadata"].get("deletionTimestamp"))


def _as_applied(job_object: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object without its status and the server's metadata, so that it can be applied again.

    Values that the server or a webhook filled in stay in its spec.
    """
    metadata = job_object["metadata"]
    kept = {key: metadata[key] for key in ("name", "namespace", "labels", "ownerReferences") if key in metadata}
    kept["annotations"] = metadata.get("annotations") or {}
    return copy.deepcopy({key: job_object[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": kept})


def _repeat(request: Callable[[], T], deadline_s: float) -> T:
    """Return the answer to a request, which is repeated after an EngineError until the deadline."""
    while True:
        try:
            return request()
        except EngineError:
            if time.monotonic() >= deadline_s:
                raise
        time.sleep(_POLL_S)


def _await_none(read: Callable[[], Any], sentence: str, timeout_s: float) -> None:
    """Wait until `read` returns nothing.

    Raises StillExistsError with the sentence after `timeout_s`, or the server's error if it does not answer until then.
    """
    deadline_s = time.monotonic() + timeout_s
    while _repeat(read, deadline_s):
        if time.monotonic() >= deadline_s:
            raise StillExistsError(f"{sentence} after {timeout_s:.0f} s.", "Check the finalizers.")
        time.sleep(_POLL_S)


def _reason(error: BaseException) -> str:
    """Return how an error ended an action, as the end of a clause."""
    if isinstance(error, KeyboardInterrupt):
        return "was interrupted"
    message = error.message if isinstance(error, SizewrightError) else f"{type(error).__name__}: {error}"
    return f"failed ({message.rstrip('.')})"
