"""Where the replicas of a session go on a cluster: parameter servers apart, workers together."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from sizewright.errors import EngineError
from sizewright.spec import Resources, Role
from sizewright.spec.units import format_count
from sizewright.training.engine import Engine

_ROOM_S = 30.0


class Room(NamedTuple):
    """One node: cores that no replica of this session holds, and how many replicas of the role in question it has."""

    cores: float
    same: int


@dataclass(eq=False)
class Seat:
    """What one replica holds of a node. A group for each, since a group is given back as a whole only."""

    role: Role
    size: Resources
    node: str
    group: Any


class Placement:
    """Makes placement groups and gives them back; knows what this session holds of each node."""

    def __init__(self, engine: Engine, *, timeout_s: float) -> None:
        self._engine, self._ray = engine, engine.ray
        self._timeout_s = min(timeout_s, _ROOM_S)
        self._seats: list[Seat] = []

    def take(self, role: Role, sizes: Sequence[Resources], leaving: Sequence[Seat] = ()) -> list[Seat]:
        """Seats for these sizes, `leaving` being given back soon.

        Raises EngineError when the cluster has no room, and holds none of them then.
        """
        seats: list[Seat] = []
        try:
            for size in sizes:
                seats.append(self._ask(role, size, leaving))
            self._await(seats)
        except BaseException:
            self.give_back(seats)
            raise
        return seats

    def give_back(self, seats: Iterable[Seat]) -> None:
        """Free what seats hold; Ray ends what still runs there."""
        for seat in seats:
            if seat in self._seats:
                self._seats.remove(seat)
                with contextlib.suppress(Exception):
                    self._engine.ask_head(partial(self._ray.util.remove_placement_group, seat.group))

    def options(self, seat: Seat) -> dict[str, Any]:
        """Options of the actor that is to sit there."""
        there = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(seat.group, 0)
        return {"scheduling_strategy": there, "num_cpus": seat.size.cpu, "num_gpus": _gpus(seat.size)}

    def _ask(self, role: Role, size: Resources, leaving: Sequence[Seat]) -> Seat:
        node = choose(role, size.cpu, self._rooms(role, leaving))
        bundle = {"CPU": size.cpu} | ({"GPU": _gpus(size)} if size.gpu else {})
        # A wish only: others may use the node, and Ray goes elsewhere then.
        make = partial(self._ray.util.placement_group, [bundle], strategy="STRICT_PACK", _soft_target_node_id=node)
        group = self._engine.ask_head(make)
        self._seats.append(Seat(role, size, node, group))
        return self._seats[-1]

    def _await(self, seats: Sequence[Seat]) -> None:
        deadline = time.monotonic() + self._timeout_s
        for seat in seats:
            left_s = max(0.1, deadline - time.monotonic())
            if not self._engine.ask_head(partial(seat.group.wait, timeout_seconds=left_s)):
                raise EngineError(
                    f"The cluster has no room for {len(seats)} {seat.role} of {format_count(seat.size.cpu, 'core')}.",
                    "Ask for fewer or smaller ones, or add a node.",
                )
            told = self._engine.ask_head(partial(self._ray.util.placement_group_table, seat.group))
            seat.node = told["bundles_to_node_id"][0]

    def _rooms(self, role: Role, leaving: Sequence[Seat]) -> dict[str, Room]:
        rooms = {}
        for node in self._engine.ask_head(self._ray.nodes):
            if node["Alive"]:
                here = [seat for seat in self._seats if seat.node == node["NodeID"]]
                cores = node["Resources"].get("CPU", 0.0) - sum(seat.size.cpu for seat in here)
                rooms[node["NodeID"]] = Room(cores, sum(s.role == role and s not in leaving for s in here))
        return rooms


def choose(role: Role, cpu: float, rooms: Mapping[str, Room]) -> str:
    """The node for a replica: the one with the fewest servers for a server, with the most workers for a worker."""
    sign = 1 if role == "ps" else -1

    def rank(node: str) -> tuple[bool, int, float, str]:
        room = rooms[node]
        return room.cores < cpu - 1e-9, sign * room.same, -room.cores, node

    return min(rooms, key=rank)


def _gpus(size: Resources) -> int:
    return size.gpu.count if size.gpu else 0
