"""The agent on one machine of a session, which manages its control groups. On a cluster it is an actor."""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

import psutil

from sizewright.training.host.capacity import available_memory_bytes, host_cores
from sizewright.training.host.cgroups import CgroupTree, find_cgroups
from sizewright.training.host.gpus import gpu_ids
from sizewright.training.host.leftovers import group_name, hold, remove_leftovers


class NodeResources(NamedTuple):
    """The resources of a machine, and its control groups, if it has any."""

    cores: float
    memory_bytes: int
    tree: CgroupTree | None
    gpus: int = 0


class NodeAgent:
    """Creates and removes the control groups of a session.

    Leftovers of killed sessions are removed first.
    """

    def __init__(self, name: str) -> None:
        remove_leftovers()
        self.tree = find_cgroups(group_name(name))
        self._held = hold(self.tree.folders.values() if self.tree else ())

    def available(self) -> NodeResources:
        """Return the resources that can be used on this machine."""
        return NodeResources(host_cores(), available_memory_bytes(), self.tree, len(gpu_ids()))

    def lift(self, names: list[str]) -> None:
        """Lift the CPU limits of replicas that are about to end, since a throttled process takes seconds to end."""
        for name in names if self.tree else ():
            assert self.tree is not None
            with contextlib.suppress(OSError):
                if self._exists(name):
                    self.tree.below(name).set_cpu(None)

    def remove(self, names: list[str]) -> None:
        """Remove the groups of replicas that have ended."""
        for name in names if self.tree else ():
            assert self.tree is not None
            self.tree.below(name).remove()

    def ended_for_memory(self, names: list[str]) -> list[str]:
        """Return those of the replicas that the kernel has ended for memory."""
        tree = self.tree
        return [name for name in names if self._exists(name) and tree.below(name).oom_kills()] if tree else []

    def end(self, pids: list[int]) -> None:
        """Kill replicas, even stopped ones. A process id that another program has by now is ignored."""
        for pid in pids:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                if process.name().startswith("ray::"):
                    process.kill()

    def close(self) -> None:
        """Remove everything."""
        if self.tree:
            self.tree.remove()
            self.tree = None
        self._held.close()

    def pid(self) -> int:
        """Return the agent's process id."""
        return os.getpid()

    def _exists(self, name: str) -> bool:
        assert self.tree is not None
        return all(folder.exists() for folder in self.tree.below(name).folders.values())
