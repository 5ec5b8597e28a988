"""Placement of replicas on a cluster: parameter servers are spread, workers are packed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from sizewright.errors import EngineError
from sizewright.formatting import format_count
from sizewright.spec import Resources, Role
from sizewright.training.ray.engine import Engine

_ROOM_S = 30.0


class FreeResources(NamedTuple):
    """The cores of a node that this session does not use, and its number of replicas of the same role."""

    cores: float
    same: int


@dataclass(eq=False)
class Slot:
    """The resources of a node that one replica holds, in its own placement group, which can be freed alone."""

    role: Role
    size: Resources
    node: str
    group: Any


class ReplicaPlacement:
    """Creates and frees placement groups, and knows what this session holds of each node."""

    def __init__(self, engine: Engine, *, timeout_s: float) -> None:
        self._engine, self._ray = engine, engine.ray
        self._timeout_s = min(timeout_s, _ROOM_S)
        self._slots: list[Slot] = []

    def take(self, role: Role, sizes: Sequence[Resources], leaving: Sequence[Slot] = ()) -> list[Slot]:
        """Take slots for these sizes, given that the slots in `leaving` will be freed soon.

        Raise EngineError, and take none, if the cluster has no room.
        """
        slots: list[Slot] = []
        try:
            for size in sizes:
                slots.append(self._ask(role, size, leaving))
            self._await(slots)
        except BaseException:
            self.give_back(slots)
            raise
        return slots

    def give_back(self, slots: Iterable[Slot]) -> None:
        """Free slots; Ray ends processes that still run there."""
        for slot in slots:
            if slot in self._slots:
                self._slots.remove(slot)
                with contextlib.suppress(Exception):
                    self._engine.ask_head(partial(self._ray.util.remove_placement_group, slot.group))

    def options(self, slot: Slot) -> dict[str, Any]:
        """Return the Ray options of the actor for a slot."""
        strategy = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(slot.group, 0)
        return {"scheduling_strategy": strategy, "num_cpus": slot.size.cpu, "num_gpus": _gpus(slot.size)}

    def _ask(self, role: Role, size: Resources, leaving: Sequence[Slot]) -> Slot:
        node = choose(role, size.cpu, self._free(role, leaving))
        bundle = {"CPU": size.cpu} | ({"GPU": _gpus(size)} if size.gpu else {})
        # This is a preference: if others use the node, Ray chooses another.
        make = partial(self._ray.util.placement_group, [bundle], strategy="STRICT_PACK", _soft_target_node_id=node)
        group = self._engine.ask_head(make)
        self._slots.append(Slot(role, size, node, group))
        return self._slots[-1]

    def _await(self, slots: Sequence[Slot]) -> None:
        deadline = time.monotonic() + self._timeout_s
        for slot in slots:
            remaining_s = max(0.1, deadline - time.monotonic())
            if not self._engine.ask_head(partial(slot.group.wait, timeout_seconds=remaining_s)):
                raise EngineError(
                    f"The cluster has no room for {len(slots)} {slot.role} of {format_count(slot.size.cpu, 'core')}.",
                    "Ask for fewer or smaller ones, or add a node.",
                )
            table = self._engine.ask_head(partial(self._ray.util.placement_group_table, slot.group))
            slot.node = table["bundles_to_node_id"][0]

    def _free(self, role: Role, leaving: Sequence[Slot]) -> dict[str, FreeResources]:
        free = {}
        for node in self._engine.ask_head(self._ray.nodes):
            if node["Alive"]:
                slots = [slot for slot in self._slots if slot.node == node["NodeID"]]
                cores = node["Resources"].get("CPU", 0.0) - sum(slot.size.cpu for slot in slots)
                free[node["NodeID"]] = FreeResources(cores, sum(s.role == role and s not in leaving for s in slots))
        return free


def choose(role: Role, cpu: float, free: Mapping[str, FreeResources]) -> str:
    """Return the node for a replica: for a server the one with the fewest servers, for a worker with the most workers.

    Nodes with enough free cores come first.
    """
    sign = 1 if role == "ps" else -1

    def rank(node: str) -> tuple[bool, int, float, str]:
        return free[node].cores < cpu - 1e-9, sign * free[node].same, -free[node].cores, node

    return min(free, key=rank)


def _gpus(size: Resources) -> int:
    return size.gpu.count if size.gpu else 0
