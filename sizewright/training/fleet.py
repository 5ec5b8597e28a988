"""The processes of a session: started, placed, asked, kept in reserve, ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sizewright.errors import EngineDiedError, EngineError, ReplicaDiedError, SizewrightError, TrialTimeoutError
from sizewright.spec import Resources, Role
from sizewright.training.engine import NAMESPACE, Engine
from sizewright.training.machine import Machine, Offer
from sizewright.training.ps_actor import PsActor
from sizewright.training.routing import Address, Server
from sizewright.training.worker_actor import WorkerActor

_PATIENCE_S = 5.0
_AGAIN = "Run the same command again; it goes on with the rest."
_ACTORS: dict[Role, type[Any]] = {"ps": PsActor, "worker": WorkerActor}
# Training, control, snapshots and moves run side by side in a replica.
_CONCURRENCY = 16
_STRATEGIES = {"ps": "SPREAD", "worker": "PACK"}


@dataclass(eq=False)
class Member:
    """One replica: a process that is never given another's name."""

    role: Role
    index: int
    actor: Any
    placement: Any = None
    node: str = ""
    resources: Resources | None = None
    address: Address | None = None
    joined: int = 0
    """The number under which a worker joined last."""

    @property
    def name(self) -> str:
        """Such as `ps-1`."""
        return f"{self.role}-{self.index}"

    @property
    def server(self) -> Server:
        """A parameter server as the routing knows it; 0 is the keeper's number."""
        assert self.address is not None
        return Server(self.index + 1, self.address)


class Fleet:
    """Replicas of one session on one machine or on all of a Ray cluster."""

    def __init__(self, engine: Engine, name: str, here: Machine, *, timeout_s: float) -> None:
        self.engine, self.ray = engine, engine.ray
        self.name = name
        self.timeout_s = timeout_s
        self.reserve: dict[Role, list[Member]] = {"ps": [], "worker": []}
        self.wanted_reserve: Mapping[str, int] = {}
        """How many idle, loaded replicas of each role are to be at hand."""
        self._here = here
        self._machines: dict[str, Any] = {}
        self._offers: dict[str, Offer] = {}
        self._next: dict[Role, int] = {"ps": 0, "worker": 0}
        self.find_machines()

    def find_machines(self) -> None:
        """Look which machines the cluster has now."""
        if self.engine.local:
            self._offers = {"": self._here.offer()}
            return
        alive = self.alive_nodes()
        for gone in self._machines.keys() - alive:
            del self._machines[gone]
            self._offers.pop(gone, None)
        remote = self.ray.remote(num_cpus=0)(Machine)
        for node in alive - self._machines.keys():
            there = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
            self._machines[node] = remote.options(scheduling_strategy=there).remote(f"{self.name}-{node[:8]}")
            self._offers[node] = self.get([self._machines[node].offer.remote()])[0]

    def alive_nodes(self) -> set[str]:
        """Nodes of the cluster by their Ray number; one without a number for this host alone."""
        if self.engine.local:
            return {""}
        return {node["NodeID"] for node in self.ray.nodes() if node["Alive"]}

    @property
    def offers(self) -> list[Offer]:
        """What the machines have."""
        return list(self._offers.values())

    def start(self, role: Role, sizes: Sequence[Resources], *, fresh: bool = False) -> list[Member]:
        """Replicas for these sizes, from the reserve first; cold ones load libraries while others go on."""
        found: list[Member] = []
        while not fresh and self.reserve[role] and len(found) < len(sizes):
            found.append(self.reserve[role].pop(0))
        missing = sizes[len(found) :]
        placements = self._place(role, missing) if missing and not self.engine.local else [{}] * len(missing)
        found += [self._spawn(role, size, options) for size, options in zip(missing, placements, strict=True)]
        return found

    def keep(self, members: Iterable[Member]) -> None:
        """Put idle replicas into the reserve."""
        for member in members:
            self.reserve[member.role].append(member)

    def kill(self, members: Sequence[Member]) -> None:
        """End replicas and remove their control groups."""
        for member in members:
            self._machine(member, "lift", [member.name])
        for member in members:
            with contextlib.suppress(Exception):
                self.ray.kill(member.actor, no_restart=True)
            if member.placement is not None:
                with contextlib.suppress(Exception):
                    self.ray.util.remove_placement_group(member.placement)
        for member in members:
            self._machine(member, "remove", [member.name])

    def close(self) -> None:
        """End the reserve and what watches over other machines."""
        self.kill([*self.reserve["ps"], *self.reserve["worker"]])
        self.reserve = {"ps": [], "worker": []}
        for machine in self._machines.values():
            with contextlib.suppress(Exception):
                self.ray.get(machine.close.remote(), timeout=_PATIENCE_S)
                self.ray.kill(machine, no_restart=True)
        self._machines = {}

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
            raise EngineDiedError(f"Ray failed: {told[0]}", _AGAIN) from None

    def died(self, why: str, members: Iterable[Member] = ()) -> SizewrightError:
        """The error for a replica that has ended, which names memory where that was the cause."""
        for member in members:
            if self.was_oom(member):
                return ReplicaDiedError(
                    f"{member.name} was ended for using more memory than it was given.", "Raise its memory.", oom=True
                )
        if not self.engine.alive():
            return EngineDiedError("Ray's own processes have ended.", _AGAIN)
        return ReplicaDiedError(f"A replica failed: {why.rstrip('.')}.", "The other trials go on.")

    def was_oom(self, member: Member) -> bool:
        """Whether memory has ended a process of this replica."""
        return bool(self._machine(member, "oom_kills", member.name))

    def cause(self, member: Member) -> str:
        """Why a replica ended, as far as can be told."""
        if self.was_oom(member):
            return "oom"
        return "killed" if member.node in self.alive_nodes() else "node lost"

    def _spawn(self, role: Role, size: Resources, options: dict[str, Any]) -> Member:
        index = self._next[role]
        self._next[role] += 1
        trees = {node: offer.tree for node, offer in self._offers.items()}
        # On one host cores are held by the control group, so Ray's own count of them must not stand in the way.
        remote = self.ray.remote(num_cpus=0, max_restarts=0, max_concurrency=_CONCURRENCY)(_ACTORS[role])
        named = {"name": f"{self.name}-{role}-{index}", "namespace": NAMESPACE}
        strategy = {key: value for key, value in options.items() if key != "placement"}
        actor = remote.options(**named, **strategy).remote(trees, index)
        return Member(role, index, actor, options.get("placement"), resources=size)

    def _place(self, role: Role, sizes: Sequence[Resources]) -> list[dict[str, Any]]:
        """A placement group for an increment: one is fixed once it is made."""
        group = self.ray.util.placement_group([{"CPU": size.cpu} for size in sizes], strategy=_STRATEGIES[role])
        if not group.wait(timeout_seconds=self.timeout_s):
            self.ray.util.remove_placement_group(group)
            raise EngineError(
                f"The cluster has no room for {len(sizes)} {role} of {sizes[0].cpu:g} cores.",
                "Ask for fewer or smaller ones, or add a node.",
            )
        made = self.ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
        only = group if len(sizes) == 1 else None  # one that others live in must outlast its first leaver
        return [
            {"scheduling_strategy": made(group, i), "num_cpus": size.cpu, "placement": only}
            for i, size in enumerate(sizes)
        ]

    def _machine(self, member: Member, method: str, *arguments: Any) -> Any:
        """Ask the machine of a replica; None when it has gone."""
        if self.engine.local:
            return getattr(self._here, method)(*arguments)
        machine = self._machines.get(member.node)
        if machine is None:
            return None
        try:
            return self.ray.get(getattr(machine, method).remote(*arguments), timeout=_PATIENCE_S * 2)
        except Exception:
            return None

    def _wait_for(self, refs: list[Any]) -> list[Any]:
        """`ray.get` in short waits, since it may wait for ever on a Ray that has died."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                found: list[Any] = self.ray.get(refs, timeout=min(_PATIENCE_S, self.timeout_s))
                return found
            except self.ray.exceptions.GetTimeoutError:
                if not self.engine.alive():
                    raise EngineDiedError("Ray's own processes have ended.", _AGAIN) from None
                if time.monotonic() > deadline:
                    raise
