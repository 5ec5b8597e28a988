"""The machines of a session: this host alone, or every node of a Ray cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from sizewright.errors import EngineDiedError, EngineError
from sizewright.training.ray.engine import Engine
from sizewright.training.ray.node_agent import NodeAgent, NodeResources

_START_S = 60.0
_ANSWER_S = 10.0


class Nodes:
    """Calls the node agents of all machines; on a cluster each is an actor.

    Machines are known by their Ray node id; this host alone has the id "".
    """

    def __init__(self, engine: Engine, name: str, own_agent: NodeAgent) -> None:
        self.node_resources: dict[str, NodeResources] = {}
        """The resources of each machine by node id."""
        self._engine = engine
        self._ray = engine.ray
        self._name = name
        self._own_agent = own_agent
        self._actors: dict[str, Any] = {}

    def find(self) -> set[str]:
        """Update the list of machines, and return those that have gone.

        Raise EngineError if a machine cannot be used.
        """
        if self._engine.local:
            self.node_resources = self.node_resources or {"": self._own_agent.available()}
            return set()
        alive = self.alive()
        gone = self._actors.keys() - alive
        for node in gone:
            del self._actors[node]
            self.node_resources.pop(node, None)
        remote = self._ray.remote(num_cpus=0)(NodeAgent)
        calls = {}
        for node in alive - self._actors.keys():
            affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
            self._actors[node] = remote.options(scheduling_strategy=affinity).remote(f"{self._name}-{node[:8]}")
            calls[node] = self._actors[node].available.remote()
        unusable = None
        gpus = self._gpus() if calls else {}
        for node, ref in calls.items():
            try:
                available: NodeResources = self._ray.get(ref, timeout=_START_S)
                self.node_resources[node] = available._replace(gpus=gpus.get(node, 0))
            except self._ray.exceptions.RayError as error:
                del self._actors[node]
                if node in self.alive():  # otherwise it was lost just now
                    unusable = _cannot_use(node, error)
        if unusable:
            raise unusable
        return gone

    def alive(self) -> set[str]:
        """Return the ids of the machines that are alive now."""
        if self._engine.local:
            return {""}
        return {node["NodeID"] for node in self._engine.ask_head(self._ray.nodes) if node["Alive"]}

    def _gpus(self) -> dict[str, int]:
        """Return the GPUs that Ray gives to replicas; it hides them from the agents, which ask for none."""
        nodes = self._engine.ask_head(self._ray.nodes)
        return {node["NodeID"]: int((node.get("Resources") or {}).get("GPU", 0)) for node in nodes}

    def ask(self, method: str, names: Mapping[str, list[Any]]) -> list[Any]:
        """Call a method of each machine's NodeAgent with its items; machines that have gone or hang are skipped."""
        if self._engine.local:
            return [getattr(self._own_agent, method)(names.get("", []))]
        try:
            alive = self.alive()
        except EngineDiedError:
            alive = set(self._actors)  # they answer even without the head
        nodes = names.keys() & self._actors.keys() & alive
        return self._results([getattr(self._actors[node], method).remote(names[node]) for node in nodes])

    def close(self) -> None:
        """Remove the session's control groups from all machines, and end the agents."""
        actors, self._actors = list(self._actors.values()), {}
        with contextlib.suppress(Exception):
            self._results([actor.close.remote() for actor in actors])
        for actor in actors:
            self._engine.kill(actor)

    def _results(self, refs: list[Any]) -> list[Any]:
        """Return the results of the calls that succeed in time."""
        results = []
        for ref in self._ray.wait(refs, num_returns=len(refs), timeout=_ANSWER_S)[0] if refs else ():
            with contextlib.suppress(self._ray.exceptions.RayError):
                results.append(self._ray.get(ref))
        return results


def _cannot_use(node: str, error: Exception) -> EngineError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
    return EngineError(
        f"Machine {node[:8]} of the cluster cannot be used: {reason.rstrip('.')}.",
        "Check that the same version of sizewright is installed there.",
    )
