"""The workers of a session: how they join, leave, and take the places of others."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sizewright.errors import TrialTimeoutError
from sizewright.spec import Job
from sizewright.training.fleet import Fleet, Member
from sizewright.training.leases.lease_server import LeaseServer
from sizewright.training.program import Program
from sizewright.training.roster import Roster
from sizewright.training.routing import Routing
from sizewright.training.transport.links import Transport
from sizewright.training.worker_actor import WorkerSetup

_POLL_S = 0.005


class WorkerTeam:
    """Each joining has a number of its own, under which servers and leases know the worker."""

    def __init__(
        self, program: Program, fleet: Fleet, roster: Roster, leases: LeaseServer, token: bytes, transport: Transport
    ) -> None:
        self._program, self._fleet, self._roster, self._leases = program, fleet, roster, leases
        self._token, self._transport = token, transport
        self._joined = 0
        self._gone: list[int] = []

    def join(self, workers: Sequence[Member], job: Job, scale: float, routing: Routing) -> None:
        """Let loaded workers train."""
        cores = self._roster.first_cores(workers)
        setups = []
        for worker in workers:
            self._joined += 1
            worker.joined = self._joined
            setups.append(
                WorkerSetup(
                    job, self._program, scale, worker.joined, routing, self._transport,
                    self._leases.address, self._token, worker.resources.cpu, cores[worker],
                )
            )  # fmt: skip
        self._fleet.get([w.actor.start.remote(setup) for w, setup in zip(workers, setups, strict=True)])

    def let_go(self, workers: Sequence[Member]) -> None:
        """Wait until workers have left. Raises when a server dies on the way: they wait for its successor then."""
        self._fleet.get([worker.actor.leave.remote() for worker in workers])
        deadline = time.monotonic() + self._fleet.timeout_s
        while any(self._fleet.get([worker.actor.training.remote() for worker in workers])):
            self._fleet.get([server.actor.pid.remote() for server in self._roster.servers])
            if time.monotonic() > deadline:
                raise TrialTimeoutError(f"A worker did not end its step in {self._fleet.timeout_s:g} s.", "Try again.")
            time.sleep(_POLL_S)
        self._fleet.get([worker.actor.end.remote() for worker in workers])

    def release(self, workers: Sequence[Member]) -> None:
        """Workers that have left or died: no server takes anything from them or waits for them any more.

        What they had not trained is leased again, by what the servers say that they have of it. Raises when a server
        has died, which must be replaced first; `release_gone` then does what is left.
        """
        self._gone += [worker.joined for worker in workers if worker.joined]
        self.release_gone()

    def release_gone(self) -> None:
        """Release the workers that have gone while a server was dead, too. Raises while one is."""
        asked = [(worker, [s.actor.forget.remote(worker) for s in self._roster.servers]) for worker in self._gone]
        for worker, refs in asked:
            accounts = [group.samples for groups in self._fleet.get(refs) for group in groups]
            self._leases.release(worker, accounts)
            self._gone.remove(worker)
