"""The base of executors whose platform is an operator on Kubernetes: manifests are applied there, pods observed."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar

from sizewright.errors import EngineError, InputError, SizewrightError
from sizewright.executors.applied import Applied, seconds_of
from sizewright.executors.difference import difference
from sizewright.executors.first_steps import FirstSteps
from sizewright.executors.kube_api import KubeApi
from sizewright.executors.manifest import from_yaml, to_yaml
from sizewright.executors.manifest_executor import ManifestExecutor
from sizewright.executors.plan_notes import APPLIED_AT, BASED, notes, read_notes
from sizewright.executors.pods import PodLabels, Pods
from sizewright.executors.registry import unsupported
from sizewright.executors.slots import Node
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
        roles: Mapping[str, str] | None = None,
        kubeconfig: str | None = None,
        context: str | None = None,
        api: KubeApi | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(base=base, roles=roles)
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
        if self.ended(there):
            raise InputError(f"{self.kind} {handle.id} has ended: there is nothing to change.", "Launch it anew.")
        now.check_current(plan)
        if now.has(plan, plan.target):
            return
        now.check_cool_down(plan, self._clock())
        self._check_base(there)
        in_place = now.changes_in_place(plan, self.scales, self.resizes)
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
            self._usages(namespace, selector),
            lambda pod, container, lines: self._log(namespace, pod, container, lines),
        )
        self._steps.look(handle.id, metrics)
        return metrics

    def _usages(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        """None where the cluster's metrics cannot be had, or we may not: containers tell of themselves, too."""
        try:
            return self.api.list(_METRICS, "PodMetrics", namespace, selector)
        except SizewrightError:
            return []

    def _log(self, namespace: str, pod: str, container: str, lines: int | None) -> str:
        """Nothing of a container that has not begun, or whose node does not answer; the next look sees it again."""
        try:
            return self.api.log(namespace, pod, container, lines)
        except (InputError, EngineError) as error:
            if "Not allowed" in error.message:
                raise
            return ""

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Whether the job has ended, well or not; waits at most about `timeout_s` seconds for it."""
        if handle.id in self._outcomes or self.ended(self._known(handle)):
            return True
        until_s, name = time.monotonic() + timeout_s, handle.id.partition("/")[2]
        while handle.id not in self._outcomes and (left_s := until_s - time.monotonic()) > 0:
            if left_s >= 1:  # what watches are counted in
                events = self.api.watch(self.api_version, self.kind, _namespace(handle), name, left_s)
                if any(self.ended(event) for event in events):
                    return True
            time.sleep(min(1.0, max(0.0, until_s - time.monotonic())))  # the server may end a watch at once
        return handle.id in self._outcomes

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
            self._outcomes[handle.id] = Outcome(status=status or "stopped", samples=samples or 0, duration_s=took_s)
        return self._outcomes[handle.id]

    def find(self, plan: Plan) -> Handle | None:
        """The job that a plan is for, where the cluster has it."""
        handle = self._handle(self._document(plan, whole=True), plan)
        return handle if self._get(handle) else None

    def difference(self, plan: Plan) -> str:
        """What a plan changes on the cluster, as lines of a diff; nothing is changed. Raises as applying it would."""
        whole = self._document(plan, whole=True)
        job = self._get(self._handle(whole, plan))
        if job:
            self._check_base(job)
        now = Applied(self.latest(job), self, job) if job else None
        if now is None or now.changes_in_place(plan, self.scales, self.resizes):
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
    def where(self) -> str:
        """Which cluster it is, for the ledger."""
        return self.api.host

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
        document = self.mine(made, "The manifest", plan.job.name)
        meta = document.setdefault("metadata", {})
        meta.pop("generateName", None)  # it is applied by its name
        meta.setdefault("name", plan.job.name)
        meta.setdefault("namespace", plan.job.deploy.namespace)
        at = datetime.fromtimestamp(self._clock(), timezone.utc).isoformat()
        based = {BASED: "yes"} if self._base else {}
        meta["annotations"] = {**(meta.get("annotations") or {}), **notes(plan), APPLIED_AT: at, **based}
        return dict(document)

    def _check_base(self, there: Mapping[str, Any]) -> None:
        """Raises InputError where the job has more than a manifest of ours would leave it."""
        if not self._base and (there["metadata"].get("annotations") or {}).get(BASED):
            raise InputError(
                f"{self.kind} {there['metadata']['name']} was made of a base manifest, which its change needs, too.",
                "Pass the same base manifest.",
            )

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
        job of before comes back, or, where the cluster takes neither, is kept in a file that the error names."""
        self._checked(document)
        kept = ("name", "namespace", "labels", "annotations")
        meta = {key: value for key, value in there["metadata"].items() if key in kept}
        before = {**{k: there[k] for k in ("apiVersion", "kind", "spec")}, "metadata": meta}
        try:
            self._delete(handle)
            self._await_pods(handle, there)
            self.api.apply(document)
        except SizewrightError as error:
            self._back(handle, before, error)
            raise

    def _back(self, handle: Handle, before: dict[str, Any], why: SizewrightError) -> None:
        """The job of before. Raises EngineError that tells where its object is kept, if it cannot be brought back."""
        try:
            there = self._get(handle)
            if there is None:
                self.api.apply(before)
            if there is None or not _is_ending(there):
                return
            state = "is being deleted"
        except SizewrightError:
            state = "may be gone"
        path = Path(tempfile.mkdtemp(prefix="sizewright-")) / f"{handle.id.replace('/', '-')}.yaml"
        path.write_text(to_yaml([f"{handle.id} as it was before its change failed"], before), encoding="utf-8")
        raise EngineError(
            f"{self.kind} {handle.id} {state}, and could not be brought back after its change failed: {why.message}",
            f"Its object is in {path}: once the cluster answers, kubectl apply --server-side "
            f"--field-manager=sizewright -f it, or launch the job anew.",
        ) from why

    def _await_pods(self, handle: Handle, there: Mapping[str, Any]) -> None:
        """Until none of the job's pods is left: they still write its checkpoints."""
        selector, until_s = f"{self.labels.job}={self.labelled(there)}", time.monotonic() + _GONE_S
        while self.api.list("v1", "Pod", _namespace(handle), selector):
            if time.monotonic() > until_s:
                raise EngineError(f"Pods of {handle.id} are not gone after {_GONE_S:.0f} s.", "See their finalizers.")
            time.sleep(0.5)

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

    def _await(self, handle: Handle, plan: Plan, since_s: float, samples: int | None) -> None:
        if samples is None:  # whether it trains again could not be told
            return
        target = Allocation(**self.asks_for(plan), batch_size=plan.target.batch_size)
        self._steps.await_step(handle.id, plan, target, since_s, samples)

    def _trained(self, handle: Handle) -> int | None:
        try:
            return self.observe(handle).samples_trained
        except SizewrightError:  # not being told how far it is ends no change
            return None

    def _new_pods(self, there: Mapping[str, Any], handle: Handle) -> Pods:
        try:
            job = read_notes(there).job
        except InputError:
            job = Job(name=handle.job)
        words = {**self.roles, **self.words_of(dict(there))}
        return Pods(job, self.labels, words, self._training_containers(dict(there)), self._clock)

    def _training_containers(self, document: Node) -> list[str]:
        """Names of the containers that its manifest's sizes are of: pods may have others, which come first."""
        try:
            named = [str(slot.container.get("name")) for role in self.roles for slot in self.slots(document, role)]
        except InputError:  # somebody changed it meanwhile
            named = []
        return [*dict.fromkeys(named), *self.containers]


def _namespace(handle: Handle) -> str:
    return handle.id.partition("/")[0]


def _is_ending(there: Mapping[str, Any]) -> bool:
    """Whether it was deleted, and is there until its operator has cleaned up."""
    return bool(there["metadata"].get("deletionTimestamp"))
