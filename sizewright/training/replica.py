"""What both roles share: limits, and the metrics that come from outside the training."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from sizewright.datasets.allocator import keep_freed_memory
from sizewright.spec import ReplicaMetrics, Role
from sizewright.training.cgroups import CgroupTree
from sizewright.training.limits import ReplicaLimits

Trees = Mapping[str, CgroupTree | None]
"""The control groups of each machine by its Ray node; the one without a number is for this host alone."""


class Health(NamedTuple):
    """Why a replica stopped doing its part, if it did; connections that broke and were opened again since it joined,
    and for how long they were not open in all."""

    fault: str | None
    cuts: int = 0
    cut_s: float = 0.0


class Replica:
    """One process of a session. It stands back while it loads and is held to its cores once it trains."""

    role: Role

    def __init__(self, trees: Trees, index: int) -> None:
        self.limits = ReplicaLimits(trees.get(self.node(), trees.get("")), f"{self.role}-{index}")
        self.index = index
        keep_freed_memory()

    def node(self) -> str:
        """The Ray node that it runs on."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def ip(self) -> str:
        """The address under which other machines reach this one."""
        import ray

        return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]

    def pid(self) -> int:
        """Its process."""
        return os.getpid()

    def set_cpu(self, cores: float | None, first_core: int = 0) -> None:
        """Hold to `cores`, or let go."""
        self.limits.set_cpu(cores, first_core)

    def set_memory(self, limit_bytes: int) -> None:
        """Hold to so much memory; 0 lifts the limit."""
        self.limits.set_memory(limit_bytes)

    def fault(self) -> str | None:
        """Why it stopped doing its part, if it did by itself."""
        raise NotImplementedError

    def health(self) -> Health:
        """Its fault, and what became of its connections."""
        return Health(self.fault())

    def observe(self) -> ReplicaMetrics:
        """Its sums so far."""
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
