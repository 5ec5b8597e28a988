"""The base of both roles of replicas: resource limits, and metrics of the process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from sizewright.datasets.malloc import keep_freed_memory
from sizewright.spec import ReplicaMetrics, Role
from sizewright.training.host.cgroups import CgroupTree
from sizewright.training.host.limits import ReplicaLimits
from sizewright.training.host.private_folders import check_import_folder

Trees = Mapping[str, CgroupTree | None]
"""The control groups of each machine by Ray node id; the id "" stands for this host alone."""


class Health(NamedTuple):
    """The error that stopped a replica, if any, and its broken connections since it joined.

    `cuts` is the number of connections that broke and were opened again, `cut_s` the total seconds for which they were
    broken.
    """

    fault: str | None
    cuts: int = 0
    cut_s: float = 0.0


class Replica:
    """One process of a session. It has low CPU priority while it loads, and its CPU limit once it trains."""

    role: Role

    def __init__(self, trees: Trees, index: int) -> None:
        check_import_folder()
        self.limits = ReplicaLimits(trees.get(self.node(), trees.get("")), f"{self.role}-{index}")
        self.index = index
        keep_freed_memory()

    def node(self) -> str:
        """Return the id of the Ray node that the replica runs on."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def ip(self) -> str:
        """Return the address under which other machines reach this one."""
        import ray

        return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]

    def pid(self) -> int:
        """Return the process id."""
        return os.getpid()

    def set_cpu(self, cores: float | None, first_core: int = 0) -> None:
        """Limit the replica to `cores`, or lift the limit."""
        self.limits.set_cpu(cores, first_core)

    def set_memory(self, limit_bytes: int) -> None:
        """Limit the replica's memory; 0 lifts the limit."""
        self.limits.set_memory(limit_bytes)

    def fault(self) -> str | None:
        """Return the error that stopped the replica, if any."""
        raise NotImplementedError

    def health(self) -> Health:
        """Return the replica's fault, and its broken connections."""
        return Health(self.fault())

    def observe(self) -> ReplicaMetrics:
        """Return the replica's metrics since it began."""
        usage = self.limits.usage()
        return ReplicaMetrics(
            role=self.role,
            index=self.index,
            **asdict(usage),
            limited_by=self.limits.limited_by,
            cfs_period_ms=self.limits.period_ms,
            **self._counters(),
        )

    def _counters(self) -> dict[str, Any]:
        raise NotImplementedError
