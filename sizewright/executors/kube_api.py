"""The API server of a Kubernetes cluster: server-side apply with a field manager of our own, pods, and their logs.

What is safe to repeat (reads, applies and deletes, which are idempotent) is tried again where the server is busy, fails
or does not answer; all else is told at once, with what the server said of which field.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from sizewright.errors import EngineError, InputError, MissingExtraError
from sizewright.executors.kube_faults import busy, told
from sizewright.executors.kube_objects import as_items, as_object, foreign

MANAGER = "sizewright"
T = TypeVar("T")
_TRIES, _FIRST_WAIT_S = 4, 0.5
_ODD = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What the client library raises for answers that it does not expect."""


class KubeApi:
    """Of the cluster that the kubeconfig names (`context`, or its current one), or around this pod.

    Raises MissingExtraError without the `kubernetes` extra, InputError for a kubeconfig that cannot be used.
    """

    def __init__(
        self,
        *,
        kubeconfig: str | None = None,
        context: str | None = None,
        timeout_s: float = 20.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._timeout_s, self._sleep = timeout_s, sleep
        self._dynamic = _connect(kubeconfig, context)
        self._resources: dict[tuple[str, str], Any] = {}

    @property
    def host(self) -> str:
        """The server's address."""
        return str(self._dynamic.configuration.host)

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """The object; None where there is none."""
        resource = self._resource(api_version, kind)
        what = f"read {kind} {namespace}/{name}"
        found = self._ask(what, lambda: resource.get(name=name, namespace=namespace, **self._within))
        return None if found is None else as_object(kind, _plain(found), what)

    def apply(self, document: Mapping[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        """Server-side apply; fields that the kind does not have are refused. Raises InputError where others own a field
        of it (409), the server refuses it (422), or we may not (403); EngineError where the server does not answer."""
        kind, meta = str(document["kind"]), document["metadata"]
        resource = self._resource(str(document["apiVersion"]), kind)
        options: dict[str, Any] = {"dry_run": "All"} if dry_run else {}
        options |= {"field_manager": MANAGER, "query_params": [("fieldValidation", "Strict")]}
        what = f"apply {kind} {meta['namespace']}/{meta['name']}"
        found = self._ask(what, lambda: resource.server_side_apply(body=dict(document), **options, **self._within))
        if found is None:
            raise InputError(f"Cannot {what}: there is no namespace {meta['namespace']}.", "Make it, or name another.")
        return as_object(kind, _plain(found), what)

    def delete(self, api_version: str, kind: str, namespace: str, name: str) -> None:
        """With its pods; nothing, where it is gone."""
        resource = self._resource(api_version, kind)
        body = {"propagationPolicy": "Background"}
        self._ask(
            f"delete {kind} {namespace}/{name}",
            lambda: resource.delete(name=name, namespace=namespace, body=body, **self._within),
        )

    def list(self, api_version: str, kind: str, namespace: str, selector: str) -> list[dict[str, Any]]:
        """Objects with these labels; none where the cluster does not serve the kind."""
        try:
            resource = self._resource(api_version, kind)
        except InputError:
            return []
        what = f"list {kind}s in {namespace}"
        found = self._ask(what, lambda: resource.get(namespace=namespace, label_selector=selector, **self._within))
        return [] if found is None else as_items(kind, _plain(found), what)

    def watch(self, api_version: str, kind: str, namespace: str, name: str, for_s: float) -> Iterator[dict[str, Any]]:
        """The object whenever it changes, for so long or until it is deleted. Where the server ends a watch or falls
        silent, this ends."""
        from kubernetes.client.exceptions import ApiException
        from kubernetes.watch import Watch
        from urllib3.exceptions import HTTPError

        resource, watcher, whole_s = self._resource(api_version, kind), Watch(), max(1, round(for_s))
        which = {"namespace": namespace, "field_selector": f"metadata.name={name}", "serialize": False}
        until = {"timeout_seconds": whole_s, "_request_timeout": (self._timeout_s, whole_s + 1.0)}
        try:
            for event in watcher.stream(resource.get, **which, **until):
                if event["type"] == "DELETED":
                    return
                yield as_object(kind, event["raw_object"], f"watch {kind} {namespace}/{name}")
        except (ApiException, HTTPError, OSError, EngineError, *_ODD):
            return  # whoever watches looks again
        finally:
            watcher.stop()

    def log(self, namespace: str, pod: str, container: str, lines: int | None) -> str:
        """The last lines that a container wrote, or all; nothing before it has begun."""
        wanted = [("container", container), *([("tailLines", lines)] if lines else [])]
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        options = {"query_params": wanted, "serialize": False, **self._within}
        found = self._ask(f"read the log of {namespace}/{pod}", lambda: self._dynamic.request("GET", path, **options))
        return found.data.decode(errors="replace") if found else ""

    @property
    def _within(self) -> dict[str, float]:
        return {"_request_timeout": self._timeout_s}

    def _resource(self, api_version: str, kind: str) -> Any:
        """Where the server has objects of a kind."""
        if (api_version, kind) not in self._resources:
            self._resources[api_version, kind] = self._discovered(api_version, kind)
        return self._resources[api_version, kind]

    def _discovered(self, api_version: str, kind: str) -> Any:
        from kubernetes.dynamic.resource import Resource

        group, _, version = api_version.rpartition("/")
        prefix = "apis" if group else "api"
        client, path = self._dynamic, f"/{prefix}/{api_version}"
        what = f"see what is in {api_version}"
        served = self._ask(what, lambda: client.request("GET", path, **self._within))
        for each in [] if served is None else as_items(kind, _plain(served), what, "resources"):
            if each["kind"] == kind and "/" not in each["name"]:
                told = {"namespaced": each["namespaced"], "verbs": each["verbs"], "name": each["name"]}
                return Resource(prefix, group, version, kind, client=client, **told)
        raise InputError(
            f"The cluster knows no {kind} of {api_version}.", "Install its operator there, or use another executor."
        )

    def _ask(self, what: str, call: Callable[[], T]) -> T | None:
        """None for what is not there."""
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        for left in reversed(range(_TRIES)):
            try:
                return call()
            except ApiException as error:
                if error.status == 404:
                    return None
                if not busy(error) or not left:
                    raise told(what, error) from None
            except (HTTPError, OSError) as error:
                if not left:
                    message = f"The API server did not answer when asked to {what}: {error}"
                    remedy = "See that it can be reached; ask again before anything else, it may have been done."
                    raise EngineError(f"{message.rstrip('.')}.", remedy) from None
            except _ODD as error:  # the client library does not expect what came
                raise foreign(what, f"{type(error).__name__}: {error}") from None
            self._sleep(_FIRST_WAIT_S * 2 ** (_TRIES - 1 - left))
        return None


def _plain(found: Any) -> Any:
    """An answer as JSON has it; a text where it was none."""
    return found.to_dict() if hasattr(found, "to_dict") else found


def _connect(kubeconfig: str | None, context: str | None) -> Any:
    try:
        from kubernetes import client, config
        from kubernetes.dynamic import DynamicClient
    except ImportError:
        raise MissingExtraError("kubernetes", "kubernetes") from None
    configuration = client.Configuration()
    kubeconfig = kubeconfig or os.environ.get("KUBECONFIG")  # as it is now: the library reads it when it is imported
    try:
        try:
            config.load_kube_config(kubeconfig, context, configuration, persist_config=False)
        except config.ConfigException:
            if kubeconfig or context:
                raise
            config.load_incluster_config(configuration)
    except (config.ConfigException, OSError, ValueError) as error:
        told = str(error).rstrip(".")
        raise InputError(f"There is no cluster to talk to: {told}.", "Set KUBECONFIG, or pass a context.") from None
    configuration.retries = False  # what may be repeated is known here
    # Asked of each group alone: not every user may list them all, nor is a cache in a folder of all users one of ours.
    return DynamicClient(client.ApiClient(configuration), discoverer=lambda *_: None)
