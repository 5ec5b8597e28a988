"""The processes of a session: started, placed, asked, kept in reserve, ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sizewright.errors import EngineDiedError, ReplicaDiedError, SizewrightError, TrialTimeoutError
from sizewright.spec import Resources, Role
from sizewright.training.engine import AGAIN, NAMESPACE, Engine, engine_died
from sizewright.training.machine import Machine, Offer
from sizewright.training.machines import Machines
from sizewright.training.placement import Placement, Seat
from sizewright.training.ps_actor import PsActor
from sizewright.training.routing import Address, Server
from sizewright.training.worker_actor import WorkerActor

_PATIENCE_S = 1.0
_ACTORS: dict[Role, type[Any]] = {"ps": PsActor, "worker": WorkerActor}
# Training, control, snapshots and moves run side by side; through Ray each worker's exchange takes one of a server's.
_CONCURRENCY: dict[Role, int] = {"ps": 64, "worker": 16}


@dataclass(eq=False)
class Member:
    """One replica: a process that is never given another's name."""

    role: Role
    index: int
    actor: Any
    resources: Resources
    seat: Seat | None = None
    node: str = ""
    address: Address | None = None
    pid: int = 0
    """Its process, once it is loaded."""
    joined: int = 0
    """The number under which a worker joined last."""

    @property
    def name(self) -> str:
        """Such as `ps-1`."""
        return f"{self.role}-{self.index}"

    def resize(self, size: Resources) -> None:
        """Note what it has from now on, also where it sits."""
        self.resources = size
        if self.seat:
            self.seat.size = size

    @property
    def server(self) -> Server:
        """A parameter server as the routing knows it; 0 is the number of the store of snapshots."""
        assert self.address is not None
        return Server(self.index + 1, self.address)


@dataclass(eq=False)
class StoreProcess:
    """The process that keeps snapshots, as one that is watched beside the replicas."""

    actor: Any
    node: str
    pid: int
    name: str = "store"


class Fleet:
    """Replicas of one session on one machine or on all of a Ray cluster."""

    def __init__(self, engine: Engine, name: str, here: Machine, *, timeout_s: float) -> None:
        self.engine, self.ray = engine, engine.ray
        self.name = name
        self.timeout_s = timeout_s
        self.reserve: dict[Role, list[Member]] = {"ps": [], "worker": []}
        self.wanted_reserve: Mapping[str, int] = {}
        """How many idle, loaded replicas of each role are to be at hand."""
        self.wanted_in_all: Mapping[Role, int] = {}
        """How many loaded replicas of each role there are to be, idle ones counted."""
        self._machines = Machines(engine, name, here)
        self._placement = Placement(engine, timeout_s=timeout_s)
        self._next: dict[Role, int] = {"ps": 0, "worker": 0}
        self._members: list[Member] = []
        self._hung: set[Member | StoreProcess] = set()
        try:
            self.find_machines()
        except BaseException:
            self.close()
            raise

    def find_machines(self) -> None:
        """Look which machines the cluster has now."""
        for gone in self._machines.find():
            for role, idle in self.reserve.items():
                self.release([member for member in idle if member.node == gone])
                self.reserve[role] = [member for member in idle if member.node != gone]

    @property
    def loaded(self) -> list[Member]:
        """All replicas that have been loaded and not been ended: those that train, leave, or are kept at hand."""
        return [member for member in self._members if member.pid]

    @property
    def offers(self) -> list[Offer]:
        """What the machines have."""
        return list(self._machines.offers.values())

    def start(
        self, role: Role, sizes: Sequence[Resources], *, fresh: bool = False, leaving: Iterable[Member] = ()
    ) -> list[Member]:
        """Replicas for these sizes, from the reserve first; cold ones load libraries while others go on.

        On a cluster they go where they would with `leaving` gone.
        """
        self.find_machines()
        found: list[Member] = []
        while not fresh and self.reserve[role] and len(found) < len(sizes):
            found.append(self.reserve[role].pop(0))
        missing = sizes[len(found) :]
        if missing:
            try:
                found += self._spawn(role, missing, [member.seat for member in leaving if member.seat])
            except BaseException:
                self.reserve[role] = found + self.reserve[role]
                raise
        return found

    def keep(self, members: Iterable[Member]) -> None:
        """Put idle replicas into the reserve."""
        for member in members:
            self.reserve[member.role].append(member)

    def kill(self, members: Sequence[Member]) -> None:
        """End replicas and remove their control groups."""
        self._machines.ask("lift", _by_node(members))
        self._end(members)
        self.release(members)
        self._machines.ask("remove", _by_node(members))
        self._members = [member for member in self._members if member not in members]

    def release(self, members: Iterable[Member]) -> None:
        """Give back what replicas that end or have ended hold of the cluster."""
        self._placement.give_back([member.seat for member in members if member.seat])

    def close(self) -> None:
        """End the reserve and what watches over other machines."""
        self.kill([*self.reserve["ps"], *self.reserve["worker"]])
        self.reserve = {"ps": [], "worker": []}
        self._machines.close()

    def get(self, refs: Sequence[Any]) -> list[Any]:
        """The results of calls, in order; whatever went wrong is one of our errors."""
        try:
            return self._wait_for(list(refs))
        except self.ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, SizewrightError):
                raise cause from None
            raise ReplicaDiedError(f"A replica failed: {type(cause).__name__}: {cause}.".replace("..", ".")) from None
        except self.ray.exceptions.GetTimeoutError:
            raise TrialTimeoutError(
                f"A replica did not answer within {self.timeout_s:g} s.", "Give it more cores, or try again."
            ) from None
        except self.ray.exceptions.RayActorError as error:
            last = str(error).strip().splitlines()[-1]
            raise self.died(last if "creation task" in str(error) else "its process ended") from None
        except self.ray.exceptions.RayError as error:
            told = str(error).strip().splitlines() or [type(error).__name__]
            raise EngineDiedError(f"Ray failed: {told[0]}", AGAIN) from None

    def end_silent(self, member: Member | StoreProcess) -> None:
        """End the process of a replica that does not answer; what waits for it then sees that it has died."""
        self._hung.add(member)
        self._end([member])

    def answered(self, refs: Sequence[Any], timeout_s: float) -> list[Any]:
        """Those calls that have ended, however they did, after so many seconds at most, or once Ray has gone."""
        deadline = time.monotonic() + timeout_s
        while refs:
            left_s = deadline - time.monotonic()
            done, waiting = self.ray.wait(list(refs), num_returns=len(refs), timeout=max(0.0, min(left_s, _PATIENCE_S)))
            if not waiting or left_s <= _PATIENCE_S or not self.engine.alive():
                return list(done)
        return []

    def get_all(self, refs: Sequence[Any], copied: Callable[[], Sequence[Any]] = tuple) -> list[Any]:
        """As `get`, once every call has ended, however it did: none is at work when a change is called off.

        However long that takes, as long as the bytes go up that the calls of `copied` tell.
        """
        last, since = 0, time.monotonic()
        while len(self.ray.wait(list(refs), num_returns=len(refs), timeout=min(_PATIENCE_S, self.timeout_s))[0]) < len(
            refs
        ):
            told = 0
            with contextlib.suppress(SizewrightError):  # one has died: the others see that soon
                told = sum(self.get(copied()))
            if told > last:
                last, since = told, time.monotonic()
            elif time.monotonic() - since > self.timeout_s or not self.engine.alive():
                break
        return self.get(refs)

    def died(self, why: str) -> SizewrightError:
        """The error for a replica that has ended, which names memory where that was the cause."""
        for name in self._ended_for_memory(self._members):
            return ReplicaDiedError(
                f"{name} was ended for using more memory than it was given.", "Raise its memory.", oom=True
            )
        if not self.engine.alive():
            return engine_died()
        return ReplicaDiedError(f"A replica failed: {why.rstrip('.')}.", "What else there is goes on.")

    def cause(self, member: Member) -> str:
        """Why a replica ended, as far as can be told."""
        if self._ended_for_memory([member]):
            return "oom"
        if member in self._hung:
            return "hung"
        return "killed" if member.node in self._machines.alive() else "node lost"

    def _end(self, members: Iterable[Member | StoreProcess]) -> None:
        pids: dict[str, list[int]] = {}
        for member in members:
            self.engine.kill(member.actor)
            if member.pid:  # one that is stopped does not hear Ray
                pids.setdefault(member.node, []).append(member.pid)
        self._machines.ask("end", pids)

    def _ended_for_memory(self, members: Iterable[Member]) -> list[str]:
        return [name for names in self._machines.ask("ended_for_memory", _by_node(members)) for name in names]

    def _spawn(self, role: Role, sizes: Sequence[Resources], leaving: Sequence[Seat]) -> list[Member]:
        seats: list[Seat | None] = [None] * len(sizes)
        if not self.engine.local:
            seats = [*self._placement.take(role, sizes, leaving)]
        trees = {node: offer.tree for node, offer in self._machines.offers.items()}
        members = []
        for size, seat in zip(sizes, seats, strict=True):
            index = self._next[role]
            self._next[role] += 1
            # On one host cores are held by the control group, so Ray's own count of them must not stand in the way.
            options = self._placement.options(seat) if seat else {"num_cpus": 0}
            actor = self.ray.remote(max_restarts=0, max_concurrency=_CONCURRENCY[role], **options)(_ACTORS[role])
            made = actor.options(name=f"{self.name}-{role}-{index}", namespace=NAMESPACE).remote(trees, index)
            members.append(Member(role, index, made, size, seat, seat.node if seat else ""))
        self._members += members
        return members

    def _wait_for(self, refs: list[Any]) -> list[Any]:
        """`ray.get` in short waits, since it may wait for ever on a Ray that has died."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                found: list[Any] = self.ray.get(refs, timeout=min(_PATIENCE_S, self.timeout_s))
                return found
            except self.ray.exceptions.GetTimeoutError:
                if not self.engine.alive():
                    raise engine_died() from None
                if time.monotonic() > deadline:
                    raise


def _by_node(members: Iterable[Member]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for member in members:
        names.setdefault(member.node, []).append(member.name)
    return names
