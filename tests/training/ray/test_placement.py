"""Replicas are placed on nodes and reserve their resources."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sizewright.errors import EngineError
from sizewright.spec import Resources
from sizewright.training.ray.placement import FreeResources, ReplicaPlacement, choose


def size(cpu: float) -> Resources:
    return Resources(cpu=cpu, memory_bytes=0)


def engine(ray: FakeRay) -> Any:
    return SimpleNamespace(ray=ray, ask_head=lambda call: call())


def test_servers_are_spread_and_workers_packed() -> None:
    rooms = {"a": FreeResources(4.0, 1), "b": FreeResources(3.0, 0), "c": FreeResources(2.0, 0)}
    assert choose("ps", 1.0, rooms) == "b"
    assert choose("worker", 1.0, rooms) == "a"


@pytest.mark.parametrize("role", ["ps", "worker"])
def test_full_node_is_skipped(role: Any) -> None:
    assert (
        choose(role, 1.0, {"full": FreeResources(0.5, 0 if role == "ps" else 3), "free": FreeResources(1.0, 2)})
        == "free"
    )
    assert choose(role, 1.0, {"full": FreeResources(0.5, 1)}) == "full"  # others may go yet


class FakeGroup:
    def __init__(self, ready: bool) -> None:
        self.ready = ready

    def wait(self, timeout_seconds: float) -> bool:
        return self.ready


class FakeRay:
    """Nodes of two cores, and groups that come to be where they were wished for."""

    def __init__(self, nodes: str) -> None:
        self.util = self
        self.ready = True
        self.groups: dict[FakeGroup, str] = {}
        self._nodes = nodes

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": name, "Alive": name.islower(), "Resources": {"CPU": 2.0}} for name in self._nodes]

    def placement_group(self, bundles: list[dict[str, float]], *, strategy: str, _soft_target_node_id: str) -> Any:
        group = FakeGroup(self.ready)
        self.groups[group] = _soft_target_node_id
        return group

    def placement_group_table(self, group: FakeGroup) -> dict[str, Any]:
        return {"bundles_to_node_id": {0: self.groups[group]}}

    def remove_placement_group(self, group: FakeGroup) -> None:
        del self.groups[group]


def test_each_replica_reserves_and_releases_a_group() -> None:
    ray = FakeRay("abX")
    placement = ReplicaPlacement(engine(ray), timeout_s=1.0)
    servers = placement.take("ps", [size(0.5)] * 3)
    assert [slot.node for slot in servers] == ["a", "b", "a"]
    workers = placement.take("worker", [size(0.5)] * 3)
    assert [slot.node for slot in workers] == ["b", "b", "b"]
    placement.give_back([servers[1], servers[1], workers[0]])
    assert sorted(ray.groups.values()) == ["a", "a", "b", "b"]


def test_replacement_is_placed_as_if_the_old_replica_were_gone() -> None:
    placement = ReplicaPlacement(engine(FakeRay("abc")), timeout_s=1.0)
    servers = placement.take("ps", [size(0.5), size(0.5), size(0.5)])
    assert [slot.node for slot in placement.take("ps", [size(0.5)], leaving=[servers[1]])] == ["b"]


def test_missing_capacity_is_one_error_and_reserves_nothing() -> None:
    ray = FakeRay("a")
    placement = ReplicaPlacement(engine(ray), timeout_s=0.1)
    reserved = placement.take("ps", [size(1.0)])
    ray.ready = False
    with pytest.raises(EngineError, match=r"no room for 2 worker of 4 cores"):
        placement.take("worker", [size(4.0)] * 2)
    assert list(ray.groups) == [reserved[0].group]
