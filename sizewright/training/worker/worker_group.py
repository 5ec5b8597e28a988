"""Runs in the session's process. Lets workers join, leave and replace each other while training goes on."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sizewright.errors import TrialTimeoutError
from sizewright.spec import Job
from sizewright.training.leases.lease_server import LeaseServer
from sizewright.training.program import Program
from sizewright.training.ps.routing import Routing
from sizewright.training.ray.actor_pool import ActorPool, ReplicaHandle
from sizewright.training.replicas.membership import Membership
from sizewright.training.transport.links import Transport
from sizewright.training.worker.actor import WorkerSetup

_POLL_S = 0.005


class WorkerGroup:
    """Lets workers join and leave.

    Each time a worker joins, it gets a new number, under which servers and leases know it.
    """

    def __init__(
        self,
        program: Program,
        pool: ActorPool,
        membership: Membership,
        lease_server: LeaseServer,
        token: bytes,
        transport: Transport,
    ) -> None:
        self._program = program
        self._pool = pool
        self._membership = membership
        self._lease_server = lease_server
        self._token = token
        self._transport = transport
        self._joined = 0
        self._to_remove: list[int] = []

    def join(self, workers: Sequence[ReplicaHandle], job: Job, scale: float, routing: Routing) -> None:
        """Let loaded workers begin to train."""
        cores = self._membership.first_cores(workers)
        setups = []
        for worker in workers:
            self._joined += 1
            worker.joined = self._joined
            setups.append(
                WorkerSetup(
                    job=job,
                    program=self._program,
                    scale=scale,
                    number=worker.joined,
                    routing=routing,
                    transport=self._transport,
                    leases=self._lease_server.address,
                    token=self._token,
                    cpu=worker.resources.cpu,
                    first_core=cores[worker],
                )
            )
        self._pool.get([w.actor.start.remote(setup) for w, setup in zip(workers, setups, strict=True)])

    def let_go(self, workers: Sequence[ReplicaHandle]) -> None:
        """Let workers leave, and wait until they have.

        Raise SizewrightError if a server dies meanwhile, since the workers then wait for its successor.
        """
        self._pool.get([worker.actor.leave.remote() for worker in workers])
        deadline = time.monotonic() + self._pool.timeout_s
        while any(self._pool.get([worker.actor.training.remote() for worker in workers])):
            self._pool.get([server.actor.pid.remote() for server in self._membership.servers])
            if time.monotonic() > deadline:
                raise TrialTimeoutError(
                    f"A worker did not finish its step within {self._pool.timeout_s:g} s.", "Try again."
                )
            time.sleep(_POLL_S)
        self._pool.get([worker.actor.end.remote() for worker in workers])

    def remove(self, workers: Sequence[ReplicaHandle]) -> None:
        """Remove workers that have left or died from all servers, and lease their untrained samples again.

        A sample is trained if every part of the weights has settled it, which the servers report. Raise SizewrightError
        if a server has died; it must be replaced first, then `remove_pending` finishes the work.
        """
        self._to_remove += [worker.joined for worker in workers if worker.joined]
        self.remove_pending()

    def remove_pending(self) -> None:
        """Release workers that could not be released while a server was dead. Raise SizewrightError if one still is."""
        servers = self._membership.servers
        calls = [(worker, [s.actor.forget.remote(worker) for s in servers]) for worker in self._to_remove]
        for worker, refs in calls:
            accounts = [group.samples for groups in self._pool.get(refs) for group in groups]
            self._lease_server.release(worker, accounts)
            self._to_remove.remove(worker)
