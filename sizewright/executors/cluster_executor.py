"""The base of executors whose platform is an operator on Kubernetes: manifests are applied there, pods observed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar

from sizewright.errors import EngineError, InputError, SizewrightError
from sizewright.executors.applied import Applied, seconds_of, sized
from sizewright.executors.difference import difference
from sizewright.executors.first_steps import FirstSteps
from sizewright.executors.kube_api import KubeApi
from sizewright.executors.manifest import from_yaml
from sizewright.executors.manifest_executor import ManifestExecutor
from sizewright.executors.plan_notes import APPLIED_AT, notes, read_notes
from sizewright.executors.pods import PodLabels, Pods
from sizewright.executors.registry import unsupported
from sizewright.spec import Allocation, Capabilities, Handle, Job, Metrics, Outcome, Plan, Role
from sizewright.spec.outcome import Status

_GONE_S = 120.0
_METRICS = "metrics.k8s.io/v1beta1"


class ClusterExecutor(ManifestExecutor):
    """Talks to the cluster of the current kubeconfig, or `context`'s, or `api`, once it is asked for more than text.

    A launch or change returns once the cluster has taken it; pods may wait in a queue. Numbers of the roles that the
    platform `scales` change while the job runs; for any other change it is ended and started anew, and goes on from
    its own checkpoints.
    """

    capabilities = Capabilities(launch=True, adjust=True, observe=True, stop=True, render=True)
    labels: ClassVar[PodLabels]
    scales: ClassVar[frozenset[Role]] = frozenset()
    resizes: ClassVar[bool] = False
    """Whether the operator replaces pods whose size changed."""

    def __init__(
        self,
        *,
        base: str | Path | None = None,
        kubeconfig: str | None = None,
        context: str | None = None,
        api: KubeApi | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(base=base)
        self._connect: Callable[[], KubeApi] = lambda: KubeApi(kubeconfig=kubeconfig, context=context)
        self._given, self._clock = api, clock
        self._steps = FirstSteps(self.change_costs, clock)
        self._pods: dict[str, Pods] = {}
        self._outcomes: dict[str, Outcome] = {}

    def ended(self, document: Mapping[str, Any]) -> Status | None:
        """What became of a job, by its object's status; none while it goes on."""
        raise NotImplementedError

    def launch(self, plan: Plan) -> Handle:
        """Apply its manifest; the same handle, where the cluster has the job of this very plan already.

        Raises InputError where another job has its name, and what the API server says otherwise.
        """
        if plan.kind != "launch":
            raise InputError(
                f"Plan {plan.id} is of kind '{plan.kind}' and cannot launch a job.",
                "Make a launch plan of its target, or pass it to adjust with the handle of the running job.",
            )
        document, since_s = self._document(plan), self._clock()
        handle = self._handle(document, plan)
        there = self._get(handle)
        if there and _is_ending(there):
            self._delete(handle)
            there = None
        if there and not Applied(there, self).by(plan):
            raise InputError(
                f"There is a {self.kind} {handle.id} already.",
                "Make a plan that adjusts it, or name the job otherwise.",
            )
        if not there:
            self.api.apply(document)
            self._await(handle, plan, since_s, 0)
        self._outcomes.pop(handle.id, None)
        return handle

    def adjust(self, handle: Handle, plan: Plan) -> None:
        """Bring the job to the plan's target; nothing, where the cluster has carried out this very plan.

        Raises InputError for a plan that is not for this job as it is now, or comes within the cool-down.
        """
        if plan.migrate or plan.rebalance:
            raise unsupported(self.name, "migrate" if plan.migrate else "rebalance")
        there = self._known(handle)
        now = Applied(self.latest(there), self, there)
        if plan.kind == "launch" or plan.job.name != handle.job:
            raise InputError(
                f"Plan {plan.id} is of kind '{plan.kind}' for {plan.job.name}, and {handle.id} runs.",
                "Make a plan that adjusts it.",
            )
        if _is_ending(there):
            raise InputError(f"{self.kind} {handle.id} is being deleted.", "Launch it again.")
        if plan.kind == "keep" or now.by(plan):
            return
        now.check_current(plan)
        if now.has(plan.target):
            return
        now.check_cool_down(plan, self._clock())
        in_place = now.changes_in_place(plan.target, self.scales, self.resizes)
        document, since_s, samples = self._document(plan, whole=not in_place), self._clock(), self._trained(handle)
        if in_place:
            self.api.apply(document)
        else:
            self._start_anew(handle, there, document)
        self._await(handle, plan, since_s, samples)

    def observe(self, handle: Handle) -> Metrics:
        """Of the pods that run; a job in a queue has none."""
        there = self._known(handle)
        pods = self._pods.setdefault(handle.id, self._new_pods(there, handle))
        namespace = there["metadata"]["namespace"]
        selector = f"{self.labels.job}={self.labelled(there)}"
        metrics = pods.look(
            self.api.list("v1", "Pod", namespace, selector),
            self.api.list(_METRICS, "PodMetrics", namespace, selector),
            lambda pod, container, lines: self.api.log(namespace, pod, container, lines),
        )
        self._steps.look(handle.id, metrics)
        return metrics

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Whether the job has ended, well or not; waits at most about `timeout_s` seconds for it."""
        if handle.id in self._outcomes or self.ended(self._known(handle)):
            return True
        if timeout_s < 1:  # what watches are counted in
            time.sleep(timeout_s)
            return False
        name = handle.id.partition("/")[2]
        events = self.api.watch(self.api_version, self.kind, _namespace(handle), name, timeout_s)
        return any(self.ended(event) for event in events)

    def stop(self, handle: Handle) -> Outcome:
        """Delete the job, if it still runs; a second stop returns the same outcome."""
        if handle.id not in self._outcomes:
            there = self._known(handle)
            status, samples = self.ended(there), self._trained(handle)
            if status is None:
                self._delete(handle)
            self._steps.forget(handle.id)
            began = seconds_of(there["metadata"].get("creationTimestamp"))
            took_s = max(0.0, self._clock() - began) if began else 0.0
            self._outcomes[handle.id] = Outcome(status=status or "stopped", samples=samples, duration_s=took_s)
        return self._outcomes[handle.id]

    def find(self, plan: Plan) -> Handle | None:
        """The job that a plan is for, where the cluster has it."""
        handle = self._handle(self._document(plan, whole=True), plan)
        return handle if self._get(handle) else None

    def difference(self, plan: Plan) -> str:
        """What a plan changes on the cluster, as lines of a diff; nothing is changed. Raises as applying it would."""
        whole = self._document(plan, whole=True)
        job = self._get(self._handle(whole, plan))
        now = Applied(self.latest(job), self, job) if job else None
        if now is None or now.changes_in_place(plan.target, self.scales, self.resizes):
            document = self._document(plan)
            return difference(job if document["kind"] == self.kind else None, self.api.apply(document, dry_run=True))
        return difference(job, self._checked(whole)) + "The job is ended and started anew.\n"

    def latest(self, there: dict[str, Any]) -> dict[str, Any]:
        """The object that has the sizes of a job."""
        return there

    def labelled(self, document: Mapping[str, Any]) -> str:
        """The value of the label that its pods have."""
        return str(document["metadata"]["name"])

    @property
    def api(self) -> KubeApi:
        """The cluster, connected to when it is first needed."""
        if self._given is None:
            self._given = self._connect()
        return self._given

    def _document(self, plan: Plan, *, whole: bool = False) -> dict[str, Any]:
        """What is applied: the manifest, with the notes of its plan; of the `whole` job also where a change would be an
        object of its own."""
        made = from_yaml(self.render(plan.model_copy(update={"kind": "launch"}) if whole else plan))
        document = next(each for each in made if isinstance(each, dict) and each.get("apiVersion") == self.api_version)
        meta = document.setdefault("metadata", {})
        meta.setdefault("name", plan.job.name)
        meta.setdefault("namespace", plan.job.deploy.namespace)
        at = datetime.fromtimestamp(self._clock(), timezone.utc).isoformat()
        meta["annotations"] = {**(meta.get("annotations") or {}), **notes(plan), APPLIED_AT: at}
        return dict(document)

    def _handle(self, document: Mapping[str, Any], plan: Plan) -> Handle:
        meta = document["metadata"]
        name = document["spec"].get("ownerJob", meta["name"])  # where a change is an object of its own
        return Handle(executor=self.name, id=f"{meta['namespace']}/{name}", job=plan.job.name)

    def _get(self, handle: Handle) -> dict[str, Any] | None:
        return self.api.get(self.api_version, self.kind, _namespace(handle), handle.id.partition("/")[2])

    def _known(self, handle: Handle) -> dict[str, Any]:
        there = None
        if handle.executor == self.name and "/" in handle.id and handle.id not in self._outcomes:
            there = self._get(handle)
        if there is None:
            raise InputError(f"The cluster has no {self.kind} {handle.id}.", "Launch it, or pass another handle.")
        return there

    def _start_anew(self, handle: Handle, there: dict[str, Any], document: dict[str, Any]) -> None:
        """Whatever the cluster would refuse is refused before the job is ended; should it be refused after all, the
        job of before comes back."""
        self._checked(document)
        self._delete(handle)
        try:
            self.api.apply(document)
        except SizewrightError:
            kept = ("name", "namespace", "labels", "annotations")
            meta = {key: value for key, value in there["metadata"].items() if key in kept}
            self.api.apply({**{k: there[k] for k in ("apiVersion", "kind", "spec")}, "metadata": meta})
            raise

    def _checked(self, document: dict[str, Any]) -> dict[str, Any]:
        """As the cluster would take it if it were new."""
        name = document["metadata"]["name"]
        other = {**document, "metadata": {**document["metadata"], "name": f"{name[:50]}-check"}}
        taken = self.api.apply(other, dry_run=True)
        return {**taken, "metadata": {**taken["metadata"], "name": name}}

    def _delete(self, handle: Handle) -> None:
        name, until_s = handle.id.partition("/")[2], time.monotonic() + _GONE_S
        self.api.delete(self.api_version, self.kind, _namespace(handle), name)
        while self._get(handle):
            if time.monotonic() > until_s:
                raise EngineError(f"{self.kind} {handle.id} is not gone after {_GONE_S:.0f} s.", "See its finalizers.")
            time.sleep(0.1)

    def _await(self, handle: Handle, plan: Plan, since_s: float, samples: int) -> None:
        target = Allocation(**sized(plan.target, self), batch_size=plan.target.batch_size)
        self._steps.await_step(handle.id, plan, target, since_s, samples)

    def _trained(self, handle: Handle) -> int:
        try:
            return self.observe(handle).samples_trained
        except SizewrightError:  # not being told how far it is ends no change
            return 0

    def _new_pods(self, there: Mapping[str, Any], handle: Handle) -> Pods:
        try:
            job = read_notes(there).job
        except InputError:
            job = Job(name=handle.job)
        return Pods(job, self.labels, self.roles, self.containers, self._clock)


def _namespace(handle: Handle) -> str:
    return handle.id.partition("/")[0]


def _is_ending(there: Mapping[str, Any]) -> bool:
    """Whether it was deleted, and is there until its operator has cleaned up."""
    return bool(there["metadata"].get("deletionTimestamp"))
