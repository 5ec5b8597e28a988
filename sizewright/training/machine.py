"""One machine of a session: its control groups and what it has to offer. On a cluster it is an actor there."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import NamedTuple

import psutil

from sizewright.training.cgroups import CgroupTree, find_cgroups
from sizewright.training.host import available_memory_bytes, host_cores
from sizewright.training.leftovers import group_name, remove_leftovers


class Offer(NamedTuple):
    """What a machine has."""

    hostname: str
    cores: float
    memory_bytes: int
    tree: CgroupTree | None


class Machine:
    """Makes the control groups of a session and removes them, since a replica cannot outlive its own.

    What killed sessions have left here goes first.
    """

    def __init__(self, name: str) -> None:
        remove_leftovers()
        self.tree = find_cgroups(group_name(name))

    def offer(self) -> Offer:
        """What can be used here."""
        return Offer(socket.gethostname(), host_cores(), available_memory_bytes(), self.tree)

    def lift(self, names: list[str]) -> None:
        """Let replicas go that are to end: a throttled process takes seconds to."""
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
        """Those of these replicas of which memory has ended a process."""
        tree = self.tree
        return [name for name in names if self._exists(name) and tree.below(name).oom_kills()] if tree else []

    def end(self, pids: list[int]) -> None:
        """End replicas, also stopped ones. A number that another process has by now is left alone."""
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

    def pid(self) -> int:
        """The process that this runs in."""
        return os.getpid()

    def _exists(self, name: str) -> bool:
        assert self.tree is not None
        return all(folder.exists() for folder in self.tree.below(name).folders.values())
