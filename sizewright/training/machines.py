"""The machines that a session runs on: this host alone, or every node of a Ray cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from sizewright.errors import EngineDiedError, EngineError
from sizewright.training.engine import Engine
from sizewright.training.machine import Machine, Offer

_START_S = 60.0
_ANSWER_S = 10.0


class Machines:
    """On a cluster there is an actor on each node. Nodes go by their Ray number; this host alone has none ("")."""

    def __init__(self, engine: Engine, name: str, here: Machine) -> None:
        self.offers: dict[str, Offer] = {}
        """What each machine has."""
        self._engine, self._ray, self._name, self._here = engine, engine.ray, name, here
        self._actors: dict[str, Any] = {}

    def find(self) -> set[str]:
        """Look which machines there are now; returns those that have gone. Raises EngineError for one of no use."""
        if self._engine.local:
            self.offers = self.offers or {"": self._here.offer()}
            return set()
        alive = self.alive()
        gone = self._actors.keys() - alive
        for node in gone:
            del self._actors[node]
            self.offers.pop(node, None)
        remote = self._ray.remote(num_cpus=0)(Machine)
        asked = {}
        for node in alive - self._actors.keys():
            there = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
            self._actors[node] = remote.options(scheduling_strategy=there).remote(f"{self._name}-{node[:8]}")
            asked[node] = self._actors[node].offer.remote()
        useless = None
        for node, ref in asked.items():
            try:
                self.offers[node] = self._ray.get(ref, timeout=_START_S)
            except self._ray.exceptions.RayError as error:
                del self._actors[node]
                if node in self.alive():  # else it was lost just now
                    useless = _cannot_use(node, error)
        if useless:
            raise useless
        return gone

    def alive(self) -> set[str]:
        """Machines that are there now."""
        if self._engine.local:
            return {""}
        return {node["NodeID"] for node in self._engine.ask_head(self._ray.nodes) if node["Alive"]}

    def ask(self, method: str, names: Mapping[str, list[Any]]) -> list[Any]:
        """Call a method of Machine with what concerns each machine; one that has gone or hangs is passed over."""
        if self._engine.local:
            return [getattr(self._here, method)(names.get("", []))]
        try:
            alive = self.alive()
        except EngineDiedError:
            alive = set(self._actors)  # they answer without the head, too
        there = names.keys() & self._actors.keys() & alive
        return self._settle([getattr(self._actors[node], method).remote(names[node]) for node in there])

    def close(self) -> None:
        """Remove what is left on the machines and end what watches over them."""
        actors, self._actors = list(self._actors.values()), {}
        with contextlib.suppress(Exception):
            self._settle([actor.close.remote() for actor in actors])
        for actor in actors:
            self._engine.kill(actor)

    def _settle(self, refs: list[Any]) -> list[Any]:
        found = []
        for ref in self._ray.wait(refs, num_returns=len(refs), timeout=_ANSWER_S)[0] if refs else ():
            with contextlib.suppress(self._ray.exceptions.RayError):
                found.append(self._ray.get(ref))
        return found


def _cannot_use(node: str, error: Exception) -> EngineError:
    told = (str(error).strip().splitlines() or [type(error).__name__])[-1]
    return EngineError(
        f"Machine {node[:8]} of the cluster cannot be used: {told.rstrip('.')}.",
        "Check that sizewright is installed there as it is here.",
    )
