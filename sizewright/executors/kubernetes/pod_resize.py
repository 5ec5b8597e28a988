"""Resize the containers of running pods in place (KEP-1287, stable in Kubernetes 1.35).

A node answers in the pod's status: the resize is pending because it does not fit now (`Deferred`) or ever
(`Infeasible`), or in progress, or the container's status has the new resources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from time import monotonic, sleep
from typing import Any, NamedTuple

from sizewright.errors import EngineError, ForbiddenError, InputError, SizewrightError
from sizewright.executors.kubernetes.api import KubeApi
from sizewright.executors.kubernetes.container_spec import YamlMap, is_same

_RESIZED = ("cpu", "memory")
_POLL_S = 0.5


class NotResizedError(EngineError):
    """A pod cannot be resized in place; all pods have their earlier sizes."""


class PodResize(NamedTuple):
    """The resize of one container: `requests` and `limits` of cores and memory, before and after."""

    pod: str
    container: str
    before: Mapping[str, Mapping[str, Any]]
    after: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, pod: Mapping[str, Any], container: YamlMap, planned: Mapping[str, Any]) -> PodResize:
        """Return the resize of a pod's container to the resources that are planned for it."""
        return cls(
            pod["metadata"]["name"], container["name"], _resizable(container.get("resources")), _resizable(planned)
        )


def resize_pods(api: KubeApi, namespace: str, selector: str, resizes: Sequence[PodResize], timeout_s: float) -> None:
    """Resize containers, and wait until all have their new sizes, at most `timeout_s`.

    `selector` selects the pods by their labels. Raises NotResizedError if a pod cannot be resized. After any error or
    interrupt the pods are given their earlier sizes again.
    """
    asked: list[PodResize] = []
    try:
        for resize in resizes:
            asked.append(resize)
            _ask(api, namespace, resize)
        _await(api, namespace, selector, resizes, timeout_s)
    except BaseException:
        for resize in reversed(asked):
            with suppress(SizewrightError):  # a pod may be gone, and the first error says what went wrong
                api.resize_pod(namespace, resize.pod, resize.container, resize.before)
        raise


def _ask(api: KubeApi, namespace: str, resize: PodResize) -> None:
    try:
        api.resize_pod(namespace, resize.pod, resize.container, resize.after)
    except (InputError, ForbiddenError) as error:
        raise NotResizedError(error.message, error.remedy) from None


def _await(api: KubeApi, namespace: str, selector: str, resizes: Sequence[PodResize], timeout_s: float) -> None:
    deadline_s = monotonic() + timeout_s
    while True:
        pods = {pod["metadata"]["name"]: pod for pod in api.list("v1", "Pod", namespace, selector)}
        missing = list(_missing(pods, resizes))
        if not missing:
            return
        if monotonic() >= deadline_s:
            raise NotResizedError(f"After {timeout_s:.0f} s {missing[0]}.", "Free room on its node.")
        sleep(_POLL_S)


def _missing(pods: Mapping[str, Mapping[str, Any]], resizes: Sequence[PodResize]) -> Iterator[str]:
    """Yield why a container does not have its new size yet. Raises NotResizedError if it will never have it."""
    for resize in resizes:
        pod = pods.get(resize.pod)
        if pod is None:
            raise NotResizedError(f"Pod {resize.pod} is gone.", "Look at the job's state.")
        status = pod.get("status") or {}
        waiting = {each["type"]: each for each in status.get("conditions") or [] if each.get("status") == "True"}
        pending = waiting.get("PodResizePending")
        message = f": {pending['message']}" if pending and pending.get("message") else ""
        if pending and pending.get("reason") == "Infeasible":
            raise NotResizedError(
                f"The node of pod {resize.pod} can never give it this size{message}.", "Ask for less."
            )
        if pending:
            yield f"the node of pod {resize.pod} still has no room for its new size{message}"
        elif "PodResizeInProgress" in waiting or not _has(status, resize):
            yield f"the node of pod {resize.pod} has not resized it"


def _has(status: Mapping[str, Any], resize: PodResize) -> bool:
    """Return whether a container runs with its new resources."""
    of_container = {each["name"]: each.get("resources") or {} for each in status.get("containerStatuses") or []}
    running = of_container.get(resize.container, {})
    return all(
        is_same(amount, (running.get(part) or {}).get(amount), value)
        for part, amounts in resize.after.items()
        for amount, value in amounts.items()
    )


def _resizable(resources: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    parts = {part: (resources or {}).get(part) or {} for part in ("requests", "limits")}
    return {
        part: {amount: amounts[amount] for amount in _RESIZED if amount in amounts}
        for part, amounts in parts.items()
        if any(amount in amounts for amount in _RESIZED)
    }
