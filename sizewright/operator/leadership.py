"""The lease by which one of several operators leads."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable

from sizewright.errors import EngineError
from sizewright.executors.kubernetes.api import KubeApi

LEASE = "sizewright-operator"
_LEASE_S, _RENEW_S, _RETRY_S = 15.0, 10.0, 2.0


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
        lease_s: float = _LEASE_S,
        renew_s: float = _RENEW_S,
        retry_s: float = _RETRY_S,
    ) -> None:
        from kubernetes.client import CoordinationV1Api
        from kubernetes.leaderelection.electionconfig import Config
        from kubernetes.leaderelection.leaderelection import LeaderElection
        from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

        self._leads, self._lost = threading.Event(), threading.Event()
        self._waiting = waiting
        lock = LeaseLock(LEASE, namespace, f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}")
        lock.api_instance = CoordinationV1Api(api.client)
        config = Config(lock, lease_s, renew_s, retry_s, self._leads.set, self._lost.set)
        threading.Thread(target=LeaderElection(config).run, daemon=True, name="leadership").start()

    def await_lead(self) -> None:
        """Wait until this operator leads."""
        while not self._leads.wait(1.0):
            self._waiting()

    def check(self) -> None:
        """Raise EngineError if another operator leads now, or the lease could not be renewed in time."""
        if self._lost.is_set():
            raise EngineError("The lease of the operator was lost.", "Start it again, and it waits for its turn.")
