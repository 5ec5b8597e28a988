"""Resize the containers of running pods in place (KEP-1287, stable in Kubernetes 1.35).

A node answers in the pod's status: the resize is pending because it does not fit now (`Deferred`) or ever
(`Infeasible`), or in progress, or the container's status has the new resources.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any, NamedTuple

from sizewright.errors import EngineError, ForbiddenError, InputError, SizewrightError
from sizewright.executors.kubernetes.api import GoneError, KubeApi
from sizewright.executors.kubernetes.container_spec import YamlMap, is_same
from sizewright.executors.kubernetes.pods import has_ended, uid_of
from sizewright.spec.units import read_bytes, read_cores

_LOG = logging.getLogger(__name__)

_READ = {"cpu": read_cores, "memory": read_bytes}
_POLL_S = 0.5
Amounts = Mapping[str, Mapping[str, Any]]


class NotResizedError(EngineError):
    """Pods cannot be resized in place, so that only a restart gives them another size."""


class PodResize(NamedTuple):
    """The resize of one container: `requests` and `limits` of cores and memory, before and after."""

    pod: str
    uid: str
    container: str
    before: Amounts
    after: Amounts

    @classmethod
    def of(cls, pod: Mapping[str, Any], container: YamlMap, planned: Mapping[str, Any]) -> PodResize:
        """Return the resize of a pod's container to planned resources.

        Raises NotResizedError if the container has other kinds of amounts, or would be restarted.
        """
        name, uid = pod["metadata"]["name"], uid_of(pod)
        after = amounts_of(planned)
        before = {part: _only(amounts_of(container.get("resources")).get(part, {}), after[part]) for part in after}
        if {part: set(amounts) for part, amounts in before.items()} != {part: set(after[part]) for part in after}:
            raise NotResizedError(f"Pod {name} requests or limits other resources than the plan.", "Restart the job.")
        resize = cls(name, uid, container["name"], before, after)
        for policy in container.get("resizePolicy") or []:
            if policy.get("restartPolicy") != "NotRequired" and policy.get("resourceName") in resize.changed:
                why = f"a change of {policy.get('resourceName')} restarts its container"
                raise NotResizedError(f"Pod {name} cannot be resized while it runs: {why}.", "Restart the job.")
        return resize

    @property
    def changed(self) -> set[str]:
        """The amounts that change."""
        return {
            amount
            for part, amounts in self.after.items()
            for amount, value in amounts.items()
            if not is_same(amount, self.before[part][amount], value)
        }

    @property
    def grows(self) -> bool:
        """True if any amount grows."""
        return exceeds(self.after, self.before)


@contextmanager
def resized(
    api: KubeApi, namespace: str, selector: str, resizes: Sequence[PodResize], timeout_s: float
) -> Iterator[None]:
    """Resize containers, and yield once all have their new sizes, at most `timeout_s` later.

    `selector` selects the pods by their labels. Raises NotResizedError if the server or a node does not resize a pod.
    After this, and any other error or interrupt before the body, the pods are given their earlier sizes again, and so
    they are if the body raises an InputError; the error then names pods that may keep the new size. After another error
    or interrupt of the body all pods keep it, since the server may have carried out the body's request.
    """
    asked: list[PodResize] = []
    try:
        for resize in sorted(resizes, key=lambda each: each.grows):  # what shrinks leaves quota for what grows
            asked.append(resize)
            try:
                _ask(api, namespace, resize)
            except (NotResizedError, InputError):
                asked.pop()
                raise
        _await(api, namespace, selector, resizes, timeout_s)
    except BaseException as error:
        _undo(api, namespace, asked, error)
        raise
    try:
        yield
    except InputError as error:
        _undo(api, namespace, asked, error)
        raise


def exceeds(amounts: Amounts, limits: Amounts) -> bool:
    """Return whether any amount is above that of `limits`, which has the same ones."""
    return any(
        _READ[name](value, name) > _READ[name](limits[part][name], name)
        for part, of_part in amounts.items()
        for name, value in of_part.items()
    )


def check_resizes(api: KubeApi, namespace: str, resizes: Sequence[PodResize]) -> None:
    """Raise what the server would answer to the resizes, without any change."""
    for resize in resizes:
        _ask(api, namespace, resize, dry_run=True)


def amounts_of(resources: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return the requests and limits of cores and memory, which can be resized; requests are limits by default."""
    limits, requests = ((resources or {}).get(part) or {} for part in ("limits", "requests"))
    parts = {"requests": {**limits, **requests}, "limits": limits}
    return {part: _only(amounts, _READ) for part, amounts in parts.items() if _only(amounts, _READ)}


def _only(amounts: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: amounts[name] for name in names if name in amounts}


def _ask(api: KubeApi, namespace: str, resize: PodResize, *, dry_run: bool = False) -> None:
    try:
        api.resize_pod(namespace, resize.pod, resize.uid, resize.container, resize.after, dry_run=dry_run)
    except ForbiddenError as error:
        if "pods/resize" in error.message:  # the permission is missing; anything else forbids the size itself
            raise NotResizedError(error.message, error.remedy) from None
        raise
    except InputError as error:
        raise NotResizedError(error.message, error.remedy) from None


def _undo(api: KubeApi, namespace: str, asked: Sequence[PodResize], cause: BaseException) -> None:
    """Give pods their earlier sizes again; tell beside the cause which ones may keep the new size."""
    kept: list[str] = []
    answers = True
    for resize in reversed(asked):
        try:
            if answers:
                api.resize_pod(namespace, resize.pod, resize.uid, resize.container, resize.before)
                continue
        except GoneError:
            continue
        except SizewrightError as error:
            answers = isinstance(error, InputError)  # the others would wait for a silent server, one after the other
        kept.append(resize.pod)
    if kept:
        report_beside(cause, f"Pods that may keep the new size: {', '.join(kept)}.")


def report_beside(error: BaseException, sentence: str) -> None:
    """Tell the user a sentence beside an error: in its message, or by a warning if it is an interrupt."""
    if isinstance(error, SizewrightError):
        error.message = f"{error.message} {sentence}"
    else:
        _LOG.warning(sentence)


def _await(api: KubeApi, namespace: str, selector: str, resizes: Sequence[PodResize], timeout_s: float) -> None:
    deadline_s = monotonic() + timeout_s
    while True:
        pods = {pod["metadata"]["name"]: pod for pod in api.list("v1", "Pod", namespace, selector)}
        missing = next(_missing(pods, resizes), "")
        if not missing:
            return
        if monotonic() >= deadline_s:
            raise NotResizedError(f"After {timeout_s:.0f} s {missing}.", "Free room on its node.")
        sleep(_POLL_S)


def _missing(pods: Mapping[str, Mapping[str, Any]], resizes: Sequence[PodResize]) -> Iterator[str]:
    """Yield why a container does not have its new size yet.

    Raises NotResizedError if it will never have it, InputError if its pod has ended.
    """
    for resize in resizes:
        pod = pods.get(resize.pod)
        status: Mapping[str, Any] = (pod or {}).get("status") or {}
        if pod is None or uid_of(pod) != resize.uid or has_ended(pod):
            # No reason for a restart: the job may be about to end.
            raise InputError(f"Pod {resize.pod} has ended or was deleted meanwhile.", "Make a new plan from what runs.")
        observed = status.get("observedGeneration")
        if observed is not None and observed < (pod["metadata"].get("generation") or 0):
            yield f"the node of pod {resize.pod} has not looked at its new size"
            continue
        waiting = {each["type"]: each for each in status.get("conditions") or [] if each.get("status") == "True"}
        pending, started = waiting.get("PodResizePending", {}), waiting.get("PodResizeInProgress", {})
        message = (pending or started).get("message")
        why = f": {message.rstrip('.')}" if message else ""
        if pending.get("reason") == "Infeasible":
            raise NotResizedError(f"The node of pod {resize.pod} can never give it this size{why}.", "Ask for less.")
        if pending:
            yield f"the node of pod {resize.pod} still has no room for its new size{why}"
        elif started or not _has(status, resize):
            yield f"the node of pod {resize.pod} has not resized it{why}"


def _has(status: Mapping[str, Any], resize: PodResize) -> bool:
    """Return whether a container runs with its new resources."""
    of_container = {each["name"]: each.get("resources") or {} for each in status.get("containerStatuses") or []}
    running = of_container.get(resize.container, {})
    return all(
        is_same(amount, (running.get(part) or {}).get(amount), value)
        for part, amounts in resize.after.items()
        for amount, value in amounts.items()
    )
