"""The launcher of a command's replicas on this host, without Ray."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sizewright.spec import Job, Resources, Role
from sizewright.training.command.rendezvous import ReplicaSlot
from sizewright.training.command.replica import CommandReplica, free_port
from sizewright.training.host.gpus import VISIBLE, gpu_ids
from sizewright.training.ray.node_agent import NodeAgent, NodeResources


class LocalLauncher:
    """Runs replicas on this host, in control groups if the host allows them."""

    def __init__(self, name: str) -> None:
        self._node_agent = NodeAgent(name)
        self._resources = self._node_agent.available()

    @property
    def node_resources(self) -> list[NodeResources]:
        """The resources of this host."""
        return [self._resources]

    def slot(self, role: Role, index: int, size: Resources) -> ReplicaSlot:
        """Return a slot for a replica, with a port that is free now."""
        return ReplicaSlot(role, index, size, "127.0.0.1", free_port())

    def device_env(self, slots: Sequence[ReplicaSlot], me: ReplicaSlot) -> dict[str, str]:
        """Return the variables that give a replica GPUs of its own; empty if it asks for none."""
        if not me.size.gpu:
            return {}
        before = slots[: slots.index(me)]
        first = sum(slot.size.gpu.count for slot in before if slot.size.gpu)
        own = gpu_ids()[first : first + me.size.gpu.count]
        return {VISIBLE: ",".join(own), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # the order in which NVML counts

    def replica(self, job: Job, slot: ReplicaSlot, batch_size: int, logs: Path) -> CommandReplica:
        """Create a replica that is not started yet."""
        return CommandReplica(job, slot, batch_size, self._resources.tree, logs)

    def close(self) -> None:
        """Remove all control groups."""
        self._node_agent.close()
