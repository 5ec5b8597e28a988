"""The pool of a session's replica processes, which starts, places, calls, reserves and ends them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sizewright.errors import EngineDiedError, ReplicaDiedError, SizewrightError, TrialTimeoutError
from sizewright.spec import Resources, Role
from sizewright.training.ps.actor import PsActor
from sizewright.training.ps.routing import Address, Server
from sizewright.training.ray.engine import AGAIN, NAMESPACE, Engine, engine_died
from sizewright.training.ray.node_agent import NodeAgent, NodeResources
from sizewright.training.ray.nodes import Nodes
from sizewright.training.ray.placement import ReplicaPlacement, Slot
from sizewright.training.worker.actor import WorkerActor

_PATIENCE_S = 1.0
_ACTORS: dict[Role, type[Any]] = {"ps": PsActor, "worker": WorkerActor}
# Training, control, snapshots and moves run side by side; through Ray each worker's exchange takes one of a server's.
_CONCURRENCY: dict[Role, int] = {"ps": 64, "worker": 16}


@dataclass(eq=False)
class ReplicaHandle:
    """One replica process. Its name is never reused."""

    role: Role
    index: int
    actor: Any
    resources: Resources
    slot: Slot | None = None
    node: str = ""
    address: Address | None = None
    pid: int = 0
    """The process id, once the replica is loaded."""
    joined: int = 0
    """The number of a worker's last joining."""

    @property
    def name(self) -> str:
        """Such as `ps-1`."""
        return f"{self.role}-{self.index}"

    def resize(self, size: Resources) -> None:
        """Record the replica's new size, also in its slot."""
        self.resources = size
        if self.slot:
            self.slot.size = size

    @property
    def server(self) -> Server:
        """The server's entry in the routing; number 0 is the snapshot store."""
        assert self.address is not None
        return Server(self.index + 1, self.address)


@dataclass(eq=False)
class StoreProcess:
    """The process of the snapshot store, which is watched like replicas."""

    actor: Any
    node: str
    pid: int
    name: str = "store"


class ActorPool:
    """The replicas of one session, on this machine or on all machines of a Ray cluster."""

    def __init__(self, engine: Engine, name: str, own_agent: NodeAgent, *, timeout_s: float) -> None:
        self.engine, self.ray = engine, engine.ray
        self.name = name
        self.timeout_s = timeout_s
        self.reserve: dict[Role, list[ReplicaHandle]] = {"ps": [], "worker": []}
        self.requested_reserve: Mapping[str, int] = {}
        """The target number of idle, loaded replicas of each role."""
        self.requested_replicas: Mapping[Role, int] = {}
        """The target number of loaded replicas of each role, including idle ones."""
        self._nodes = Nodes(engine, name, own_agent)
        self._placement = ReplicaPlacement(engine, timeout_s=timeout_s)
        self._next: dict[Role, int] = {"ps": 0, "worker": 0}
        self._members: list[ReplicaHandle] = []
        self._hung: set[ReplicaHandle | StoreProcess] = set()
        try:
            self.find_machines()
        except BaseException:
            self.close()
            raise

    def find_machines(self) -> None:
        """Update the list of the cluster's machines."""
        for gone in self._nodes.find():
            for role, idle in self.reserve.items():
                self.free_slots([member for member in idle if member.node == gone])
                self.reserve[role] = [member for member in idle if member.node != gone]

    @property
    def loaded(self) -> list[ReplicaHandle]:
        """All replicas that are loaded and not ended, including leaving and idle ones."""
        return [member for member in self._members if member.pid]

    @property
    def node_resources(self) -> list[NodeResources]:
        """The resources of each machine."""
        return list(self._nodes.node_resources.values())

    def start(
        self, role: Role, sizes: Sequence[Resources], *, fresh: bool = False, leaving: Iterable[ReplicaHandle] = ()
    ) -> list[ReplicaHandle]:
        """Return replicas for these sizes, from the reserve first unless `fresh`; new ones must still be loaded.

        On a cluster they are placed as if the replicas in `leaving` had ended.
        """
        self.find_machines()
        members: list[ReplicaHandle] = []
        while not fresh and self.reserve[role] and len(members) < len(sizes):
            members.append(self.reserve[role].pop(0))
        missing = sizes[len(members) :]
        if missing:
            try:
                members += self._spawn(role, missing, [member.slot for member in leaving if member.slot])
            except BaseException:
                self.reserve[role] = members + self.reserve[role]
                raise
        return members

    def keep(self, members: Iterable[ReplicaHandle]) -> None:
        """Put idle replicas into the reserve."""
        for member in members:
            self.reserve[member.role].append(member)

    def kill(self, members: Sequence[ReplicaHandle]) -> None:
        """End replicas and remove their control groups."""
        self._nodes.ask("lift", _by_node(members))
        self._end(members)
        self.free_slots(members)
        self._nodes.ask("remove", _by_node(members))
        self._members = [member for member in self._members if member not in members]

    def free_slots(self, members: Iterable[ReplicaHandle]) -> None:
        """Free the cluster resources of replicas that end or have ended."""
        self._placement.give_back([member.slot for member in members if member.slot])

    def close(self) -> None:
        """End the idle replicas and the agents on other machines."""
        self.kill([*self.reserve["ps"], *self.reserve["worker"]])
        self.reserve = {"ps": [], "worker": []}
        self._nodes.close()

    def get(self, refs: Sequence[Any]) -> list[Any]:
        """Return the results of calls in order, and translate Ray's errors into SizewrightErrors."""
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
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise EngineDiedError(f"Ray failed: {lines[0]}", AGAIN) from None

    def end_silent(self, member: ReplicaHandle | StoreProcess) -> None:
        """End the process of a replica that does not answer, so that pending calls to it fail."""
        self._hung.add(member)
        self._end([member])

    def answered(self, refs: Sequence[Any], timeout_s: float) -> list[Any]:
        """Wait at most `timeout_s` for calls, and return those that have ended, successfully or not.

        Return early if Ray has ended.
        """
        deadline = time.monotonic() + timeout_s
        while refs:
            remaining_s = deadline - time.monotonic()
            wait_s = max(0.0, min(remaining_s, _PATIENCE_S))
            done, pending = self.ray.wait(list(refs), num_returns=len(refs), timeout=wait_s)
            if not pending or remaining_s <= _PATIENCE_S or not self.engine.alive():
                return list(done)
        return []

    def get_all(self, refs: Sequence[Any], copied: Callable[[], Sequence[Any]] = tuple) -> list[Any]:
        """Return the results of calls as `get` does, but only after every call has ended.

        So no call is still running when a change is cancelled. The wait lasts as long as the number of bytes grows that
        the calls of `copied` return, and `timeout_s` beyond.
        """
        copied_bytes = 0
        last_progress = time.monotonic()
        wait_s = min(_PATIENCE_S, self.timeout_s)
        while len(self.ray.wait(list(refs), num_returns=len(refs), timeout=wait_s)[0]) < len(refs):
            total_bytes = 0
            with contextlib.suppress(SizewrightError):  # a replica has died: the other calls will notice soon
                total_bytes = sum(self.get(copied()))
            if total_bytes > copied_bytes:
                copied_bytes = total_bytes
                last_progress = time.monotonic()
            elif time.monotonic() - last_progress > self.timeout_s or not self.engine.alive():
                break
        return self.get(refs)

    def died(self, why: str) -> SizewrightError:
        """Return the error for a replica that has ended, which names memory if that was the cause."""
        for name in self._ended_for_memory(self._members):
            return ReplicaDiedError(
                f"{name} was ended for using more memory than it was given.", "Raise its memory.", oom=True
            )
        if not self.engine.alive():
            return engine_died()
        return ReplicaDiedError(f"A replica failed: {why.rstrip('.')}.")

    def cause(self, member: ReplicaHandle) -> str:
        """Return why a replica ended, if it can be determined."""
        if self._ended_for_memory([member]):
            return "oom"
        if member in self._hung:
            return "hung"
        return "killed" if member.node in self._nodes.alive() else "node lost"

    def _end(self, members: Iterable[ReplicaHandle | StoreProcess]) -> None:
        pids: dict[str, list[int]] = {}
        for member in members:
            self.engine.kill(member.actor)
            if member.pid:  # one that is stopped does not hear Ray
                pids.setdefault(member.node, []).append(member.pid)
        self._nodes.ask("end", pids)

    def _ended_for_memory(self, members: Iterable[ReplicaHandle]) -> list[str]:
        return [name for names in self._nodes.ask("ended_for_memory", _by_node(members)) for name in names]

    def _spawn(self, role: Role, sizes: Sequence[Resources], leaving: Sequence[Slot]) -> list[ReplicaHandle]:
        slots: list[Slot | None] = [None] * len(sizes)
        if not self.engine.local:
            slots = [*self._placement.take(role, sizes, leaving)]
        trees = {node: available.tree for node, available in self._nodes.node_resources.items()}
        members = []
        for size, slot in zip(sizes, slots, strict=True):
            index = self._next[role]
            self._next[role] += 1
            # On one host control groups limit the cores, so Ray must not count them as well.
            options = self._placement.options(slot) if slot else {"num_cpus": 0}
            actor_class = self.ray.remote(max_restarts=0, max_concurrency=_CONCURRENCY[role], **options)(_ACTORS[role])
            actor = actor_class.options(name=f"{self.name}-{role}-{index}", namespace=NAMESPACE).remote(trees, index)
            members.append(ReplicaHandle(role, index, actor, size, slot, slot.node if slot else ""))
        self._members += members
        return members

    def _wait_for(self, refs: list[Any]) -> list[Any]:
        """Call `ray.get` in short waits, since it may wait for ever if Ray has died."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                results: list[Any] = self.ray.get(refs, timeout=min(_PATIENCE_S, self.timeout_s))
                return results
            except self.ray.exceptions.GetTimeoutError:
                if not self.engine.alive():
                    raise engine_died() from None
                if time.monotonic() > deadline:
                    raise


def _by_node(members: Iterable[ReplicaHandle]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for member in members:
        names.setdefault(member.node, []).append(member.name)
    return names
