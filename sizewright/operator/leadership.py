"""The lease by which one of several operators leads."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable
from typing import Any

from sizewright.errors import EngineError
from sizewright.executors.kubernetes.api import KubeApi

LEASE = "sizewright-operator"
_LEASE_S, _RENEW_S, _RETRY_S = 15, 10, 2


class Leadership:
    """Waits for the lease `namespace`/sizewright-operator, and renews it in a thread of its own.

    `waiting` is called with each attempt to lead. The seconds are those of Kubernetes' own controllers.
    """

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        waiting: Callable[[], None] = lambda: None,
        *,
        lease_s: int = _LEASE_S,
        renew_s: int = _RENEW_S,
        retry_s: int = _RETRY_S,
    ) -> None:
        from kubernetes.leaderelection.electionconfig import Config
        from kubernetes.leaderelection.leaderelection import LeaderElection
        from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

        self._leads, self._lost = threading.Event(), threading.Event()
        self._waiting = waiting
        lock = LeaseLock(LEASE, namespace, f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}")
        setattr(lock, "api_instance", _Leases(api.client, retry_s))  # noqa: B010 (the library declares its own class)
        config = Config(lock, lease_s, renew_s, retry_s, self._leads.set, self._lost.set)
        self._thread = threading.Thread(target=LeaderElection(config).run, daemon=True, name="leadership")
        self._thread.start()

    def await_lead(self) -> None:
        """Wait until this operator leads. Raises EngineError if it cannot any more."""
        while not self._leads.wait(1.0):
            self.check()
            self._waiting()

    def check(self) -> None:
        """Raise EngineError if another operator leads now, or the lease could not be renewed in time."""
        if self._lost.is_set() or not self._thread.is_alive():
            raise EngineError("The lease of the operator was lost.", "Start it again, and it waits for its turn.")


class _Leases:
    """The client library's leases with a time-out, and with one error for a server that does not answer.

    A leader that waits for an answer would not see that its lease is over.
    """

    def __init__(self, client: Any, timeout_s: float) -> None:
        from kubernetes.client import CoordinationV1Api

        self._leases = CoordinationV1Api(client)
        self._timeout_s = timeout_s

    def __getattr__(self, name: str) -> Callable[..., Any]:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        def request(*words: Any, **options: Any) -> Any:
            try:
                return getattr(self._leases, name)(*words, **options, _request_timeout=self._timeout_s)
            except (HTTPError, OSError) as error:
                raise ApiException(reason=str(error)) from None

        return request
