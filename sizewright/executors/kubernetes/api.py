"""A client of a Kubernetes API server: server-side apply with our own field manager, pods, and their logs.

Requests that are safe to repeat (reads, applies and deletes, which are idempotent) are retried if the server is busy,
fails or does not answer. Any other error is raised at once, with the server's message about each field.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sizewright.errors import EngineError, ForbiddenError, InputError, MissingExtraError, SizewrightError
from sizewright.executors.kubernetes.objects import check_items, check_object, unusable_answer
from sizewright.spec._deadlines import within
from sizewright.spec._json import loads

_LOG = logging.getLogger(__name__)

MANAGER = "sizewright"
T = TypeVar("T")
_ATTEMPTS, _FIRST_WAIT_S = 4, 0.5
_TIMEOUTS_PER_ANSWER = 3
"""An answer may take so many time-outs, also if some of it arrives all the time."""
_RETRIED_STATUS = (429, 500, 502, 503, 504)
_INVALID_BODY = "failed to create typed patch object"
"""The words with which server-side apply refuses invalid fields; its status is 500 then."""
_OTHER_OBJECT = ("UID in", "uid mismatch")
"""The words with which the server refuses the uid of a request; its status is 409 then."""
_CLIENT_ERRORS = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""The errors that the client library raises for answers that it does not expect."""


class GoneError(InputError):
    """The object is gone, or another one has its name."""


class NotServedError(InputError):
    """The cluster does not serve a kind."""


class KubeApi:
    """A client of one cluster.

    The cluster is that of `context` in the kubeconfig, or of its current context, or, without a kubeconfig, the one
    around this pod. Raises MissingExtraError without the `kubernetes` extra, and InputError if the kubeconfig cannot be
    used.
    """

    def __init__(
        self,
        *,
        kubeconfig: str | None = None,
        context: str | None = None,
        timeout_s: float = 20.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._timeout_s = timeout_s
        self._sleep = sleep
        self._is_silent = False
        self._dynamic = _connect(kubeconfig, context)
        self._resources: dict[tuple[str, str], Any] = {}

    @property
    def host(self) -> str:
        """The server's address."""
        return str(self._dynamic.configuration.host)

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Return the object, or None if it does not exist. Raises InputError for what cannot be a name."""
        _check_names(namespace, name)
        resource = self._resource(api_version, kind)
        request = f"read {kind} {namespace}/{name}"
        answer = self._retry(request, lambda: resource.get(name=name, namespace=namespace, **self._timeout))
        return None if answer is None else check_object(kind, _plain(answer), request)

    def apply(self, document: Mapping[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        """Apply the object on the server, and return the result. Fields that the kind does not have are refused.

        Raises InputError if others own one of its fields (409) or the server refuses it (422), ForbiddenError if the
        user may not apply it (401, 403), and EngineError if the server does not answer.
        """
        kind, meta = str(document["kind"]), document["metadata"]
        _check_names(meta["namespace"], meta["name"])
        resource = self._resource(str(document["apiVersion"]), kind)
        options: dict[str, Any] = {"dry_run": "All"} if dry_run else {}
        options |= {"field_manager": MANAGER, "query_params": [("fieldValidation", "Strict")]}
        request = f"apply {kind} {meta['namespace']}/{meta['name']}"
        answer = self._retry(
            request,
            lambda: resource.server_side_apply(body=dict(document), **options, **self._timeout),
            changes=not dry_run,
        )
        if answer is None:
            raise InputError(
                f"Cannot {request}: there is no namespace {meta['namespace']}.", "Create it, or use another one."
            )
        return check_object(kind, _plain(answer), request)

    def delete(self, api_version: str, kind: str, namespace: str, name: str, uid: str = "", version: str = "") -> None:
        """Delete the object with its pods. Do nothing if it does not exist.

        Raises InputError if the object of this name has another `uid`, or another resource `version`, if that is given.
        """
        _check_names(namespace, name)
        resource = self._resource(api_version, kind)
        body: dict[str, Any] = {"propagationPolicy": "Background"}
        if conditions := {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}:
            body["preconditions"] = conditions
        self._retry(
            f"delete {kind} {namespace}/{name}",
            lambda: resource.delete(name=name, namespace=namespace, body=body, **self._timeout),
            changes=True,
            conflicts_pass=not version,
        )

    def list(
        self, api_version: str, kind: str, namespace: str, selector: str, *, skip_odd: bool = False
    ) -> list[dict[str, Any]]:
        """Return the objects with these labels; empty if the cluster does not serve the kind.

        An empty namespace stands for all of them. With `skip_odd` an object that cannot be used is left out, with a
        warning, in place of an EngineError.
        """
        try:
            resource = self._resource(api_version, kind)
        except NotServedError:
            return []
        request = f"list {kind}s in {namespace or 'all namespaces'}"
        answer = self._retry(
            request, lambda: resource.get(namespace=namespace or None, label_selector=selector, **self._timeout)
        )
        return [] if answer is None else check_items(kind, _plain(answer), request, skip_odd=skip_odd)

    def watch(self, api_version: str, kind: str, namespace: str, name: str, for_s: float) -> Iterator[dict[str, Any]]:
        """Yield the object whenever it changes, for `for_s` seconds or until it is deleted.

        The iterator ends early if the server ends the watch or stops answering.
        """
        from kubernetes.client.exceptions import ApiException
        from kubernetes.watch import Watch
        from urllib3.exceptions import HTTPError

        resource = self._resource(api_version, kind)
        watcher = Watch()
        timeout_s = max(1, round(for_s))
        deadline_s = time.monotonic() + timeout_s + self._timeout_s
        target = {"namespace": namespace, "field_selector": f"metadata.name={name}", "serialize": False}
        timeouts = {"timeout_seconds": timeout_s, "_request_timeout": (self._timeout_s, timeout_s + 1.0)}
        try:
            events = watcher.stream(resource.get, **target, **timeouts)
            while event := within(max(0.0, deadline_s - time.monotonic()), lambda: next(events, None)):
                if event["type"] == "DELETED":
                    return
                yield check_object(kind, event["raw_object"], f"watch {kind} {namespace}/{name}")
        except (ApiException, HTTPError, OSError, EngineError, *_CLIENT_ERRORS):
            return  # the caller reads the object again
        finally:
            watcher.stop()

    def log(
        self, namespace: str, pod: str, container: str, lines: int | None = None, *, timestamps: bool = False
    ) -> str:
        """Return the last lines of a container's log, or all of it; empty if the container has not started.

        With `timestamps` each line begins with the time at which it was written.
        """
        params = [("container", container), *([("tailLines", lines)] if lines else [])]
        params += [("timestamps", "true")] if timestamps else []
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        options = {"query_params": params, "serialize": False, **self._timeout}
        answer = self._retry(
            f"read the log of {namespace}/{pod}", lambda: self._dynamic.request("GET", path, **options)
        )
        return answer.data.decode(errors="replace") if answer else ""

    def serves_resize(self) -> bool:
        """Return whether the server changes the sizes of running pods (stable in Kubernetes 1.35)."""
        return any(each["name"] == "pods/resize" for each in self._served("v1"))

    def resize_pod(
        self, namespace: str, pod: str, uid: str, container: str, resources: Mapping[str, Any], *, dry_run: bool = False
    ) -> None:
        """Ask for other resources of a running container; its node carries it out later.

        Raises InputError if the server refuses them, GoneError if it has no pod of this name and uid, ForbiddenError if
        a quota does not allow them or the user may not resize pods.
        """
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/resize"
        containers = [{"name": container, "resources": dict(resources)}]
        body = {"metadata": {"uid": uid}, "spec": {"containers": containers}}
        request = f"resize Pod {namespace}/{pod}"
        if self._patch(request, path, body, "application/strategic-merge-patch+json", dry_run=dry_run) is None:
            raise GoneError(f"Cannot {request}: the pod is gone.", "Look at the job's state, and try again.")

    def annotate(self, job_object: Mapping[str, Any], annotations: Mapping[str, str | None]) -> None:
        """Write annotations of this very object, and remove those that are None.

        Raises GoneError if the object is gone, or another one has its name, and the server's other errors.
        """
        meta = {"uid": job_object["metadata"]["uid"], "annotations": dict(annotations)}
        self._merge("annotate", job_object, {"metadata": meta})

    def change(self, job_object: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        """Merge changes into this very object (RFC 7396), in the state in which it was read; return it as it is then.

        Raises GoneError if the object is gone, InputError if somebody has changed it meanwhile or the server refuses
        the changes, and the server's other errors.
        """
        read = {key: job_object["metadata"][key] for key in ("uid", "resourceVersion")}
        metadata = {**changes.get("metadata", {}), **read}
        return self._merge("change", job_object, {**changes, "metadata": metadata})

    def create(self, document: Mapping[str, Any]) -> None:
        """Create an object. Raises InputError if there is one of its name, and the server's other errors."""
        kind, meta = str(document["kind"]), document["metadata"]
        resource = self._resource(str(document["apiVersion"]), kind)
        self._retry(
            f"create {kind} {meta['namespace']}/{meta['name']}",
            lambda: resource.create(body=dict(document), namespace=meta["namespace"], **self._timeout),
            changes=True,
            conflicts_pass=False,
        )

    @property
    def client(self) -> Any:
        """The connection, as an `ApiClient` of the client library."""
        return self._dynamic.client

    def _merge(self, verb: str, job_object: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        meta, kind = job_object["metadata"], str(job_object["kind"])
        resource = self._resource(str(job_object["apiVersion"]), kind)
        path = resource.path(name=meta["name"], namespace=meta["namespace"])
        request = f"{verb} {kind} {meta['namespace']}/{meta['name']}"
        answer = self._patch(request, path, body, "application/merge-patch+json")
        if answer is None:
            raise GoneError(f"Cannot {request}: it is gone.", "Launch it with a new plan.")
        return check_object(kind, _plain(answer), request)

    def _patch(self, request: str, path: str, body: Any, content_type: str, *, dry_run: bool = False) -> Any:
        query = [("fieldManager", MANAGER), *([("dryRun", "All")] if dry_run else [])]
        return self._retry(
            request,
            lambda: self._dynamic.request(
                "PATCH", path, body=body, query_params=list(query), content_type=content_type, **self._timeout
            ),
            changes=not dry_run,
            conflicts_pass="resourceVersion" not in body["metadata"],
        )

    @property
    def _timeout(self) -> dict[str, float]:
        return {"_request_timeout": self._timeout_s}

    def _resource(self, api_version: str, kind: str) -> Any:
        """Return the client's handle of a kind. Raises InputError if the server does not serve it."""
        if (api_version, kind) not in self._resources:
            self._resources[api_version, kind] = self._discover(api_version, kind)
        return self._resources[api_version, kind]

    def _discover(self, api_version: str, kind: str) -> Any:
        from kubernetes.dynamic.resource import Resource

        group, _, version = api_version.rpartition("/")
        for each in self._served(api_version):
            if each["kind"] == kind and "/" not in each["name"]:
                fields = {"namespaced": each["namespaced"], "verbs": each["verbs"], "name": each["name"]}
                return Resource(_prefix(api_version), group, version, kind, client=self._dynamic, **fields)
        raise NotServedError(
            f"The cluster does not serve {kind} of {api_version}.", "Install its operator, or use another executor."
        )

    def _served(self, api_version: str) -> Sequence[dict[str, Any]]:
        """Return what the server serves of an API version: kinds, and parts of their objects (`pods/log`)."""
        path, request = f"/{_prefix(api_version)}/{api_version}", f"list the kinds of {api_version}"
        served = self._retry(request, lambda: self._dynamic.request("GET", path, **self._timeout))
        return [] if served is None else check_items("", _plain(served), request, "resources")

    def _retry(
        self, request: str, call: Callable[[], T], *, changes: bool = False, conflicts_pass: bool = True
    ) -> T | None:
        """Return the server's answer, or None if it answers that the object does not exist (404).

        A request that `changes` something may have been carried out although its answer was lost. Where conflicts do
        not pass, a conflict (409) is final.
        """
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        for attempt in range(_ATTEMPTS):
            is_last = attempt == _ATTEMPTS - 1
            try:
                answer = within(_TIMEOUTS_PER_ANSWER * self._timeout_s, call)
                self._is_silent = False
                return answer
            except ApiException as error:
                self._is_silent = False
                if error.status == 404:
                    return None
                if is_last or not _may_retry(error) or (error.status == 409 and not conflicts_pass):
                    raise _translate(request, error) from None
            except (HTTPError, OSError) as error:
                if is_last:
                    raise _no_answer(request, error, changes=changes) from None
                if not self._is_silent:
                    self._is_silent = True
                    _LOG.warning("The API server does not answer; trying again.")
            except _CLIENT_ERRORS as error:
                raise unusable_answer(request, f"{type(error).__name__}: {error}") from error
            self._sleep(_FIRST_WAIT_S * 2**attempt)
        return None


def _check_names(*names: str) -> None:
    """Raise InputError for a name that would lead a request elsewhere."""
    for name in names:
        if not name or set(name) & set("/?#%\\") or name in (".", ".."):
            raise InputError(f"'{name}' is no name of an object or a namespace.", "Correct it.")


def _prefix(api_version: str) -> str:
    return "apis" if "/" in api_version else "api"


def _no_answer(request: str, error: Exception, *, changes: bool) -> EngineError:
    message = f"The API server did not answer the request to {request}: {error}"
    remedy = "Check that it is reachable."
    if changes:
        remedy += " The request may have been carried out. Running the command again is safe: a plan is applied once."
    return EngineError(f"{message.rstrip('.')}.", remedy)


def _may_retry(error: Any) -> bool:
    """Return whether a request may succeed if it is repeated after an ApiException."""
    if error.status == 409:  # others own a field, or the object was replaced; or it has just been changed
        return not _owned_fields(error) and not any(words in str(error.body) for words in _OTHER_OBJECT)
    return error.status in _RETRIED_STATUS and _INVALID_BODY not in str(error.body)


def _owned_fields(error: Any) -> bool:
    """Return whether others own fields that a request would change."""
    return any(each.get("reason") == "FieldManagerConflict" for each in _details(error)[1])


def _details(error: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the status in the body of an ApiException, and its causes; both empty if the body has none."""
    try:
        status = loads(error.body)
        causes = (status.get("details") or {}).get("causes") or []
        return status, [each for each in causes if isinstance(each, dict)]
    except (TypeError, ValueError, AttributeError):
        return {}, []


def _plain(answer: Any) -> Any:
    """Return an answer as plain JSON data; an answer that is not JSON stays a text."""
    return answer.to_dict() if hasattr(answer, "to_dict") else answer


def _translate(request: str, error: Any) -> SizewrightError:
    """Return the error for an ApiException of a request, with the fields that the server names."""
    status, causes = _details(error)
    fields = "; ".join(f"{each.get('field')}: {each.get('message')}" for each in causes)
    message = str(status.get("message") or error.reason or error.status).rstrip(".")
    if any(each.get("field") == "metadata.uid" for each in causes):
        return GoneError(f"Cannot {request}: another object has its name now.", "Make a new plan from what runs.")
    if error.status == 409:
        remedy = "Somebody else changes it at the same time. Look at its state, and try again."
        if _owned_fields(error):
            remedy = "Have the other owner give those fields up, or remove them from the manifest."
        return InputError(f"Cannot {request}: {message}.", remedy)
    if error.status in (401, 403):
        remedies = {
            401: "Log in again, or use another context.",
            403: "Ask for the permission or the quota that the message names.",
        }
        return ForbiddenError(f"Not allowed to {request}: {message}.", remedies[error.status])
    if _INVALID_BODY in message:
        fields = message.partition("): ")[2]
    if error.status in (400, 413, 415, 422) or _INVALID_BODY in message:
        return InputError(f"The cluster refuses to {request}: {fields or message}.", "Correct this, and try again.")
    return EngineError(
        f"The API server failed to {request}: {message} ({error.status}).", "Check its state, and try again."
    )


def _connect(kubeconfig: str | None, context: str | None) -> Any:
    try:
        from kubernetes import client, config
        from kubernetes.dynamic import DynamicClient
    except ImportError:
        raise MissingExtraError("kubernetes", "kubernetes") from None
    configuration = client.Configuration()
    kubeconfig = kubeconfig or os.environ.get("KUBECONFIG")  # the library reads it only once, when it is imported
    try:
        try:
            config.load_kube_config(kubeconfig, context, configuration, persist_config=False)
        except config.ConfigException:
            if kubeconfig or context:
                raise
            config.load_incluster_config(configuration)
    except (config.ConfigException, OSError, ValueError) as error:
        reason = str(error).rstrip(".")
        raise InputError(f"Cannot find a cluster: {reason}.", "Set KUBECONFIG, or pass a context.") from None
    configuration.retries = False  # `_retry` knows which requests may be repeated
    # Each API group is discovered on its own: not every user may list all of them, and the client library would cache
    # the list in a folder that all users of this host share.
    return DynamicClient(client.ApiClient(configuration), discoverer=lambda *_: None)
