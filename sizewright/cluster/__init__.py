"""One capacity, many jobs: the allocation problem, and what simulations of it are told.

The allocators that solve it are in `sizewright.cluster.allocators`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.names import lazily

if TYPE_CHECKING:
    from sizewright.cluster.allotment import Allotment, chosen
    from sizewright.cluster.facts import Facts
    from sizewright.cluster.problem import Problem
    from sizewright.cluster.simulator.curves import Curve, Elasticity, power_law
    from sizewright.cluster.simulator.engine import Settings
    from sizewright.cluster.simulator.scenario import Loans

_HOMES = {
    "Allotment": "sizewright.cluster.allotment",
    "Curve": "sizewright.cluster.simulator.curves",
    "Elasticity": "sizewright.cluster.simulator.curves",
    "Facts": "sizewright.cluster.facts",
    "Loans": "sizewright.cluster.simulator.scenario",
    "Problem": "sizewright.cluster.problem",
    "Settings": "sizewright.cluster.simulator.engine",
    "chosen": "sizewright.cluster.allotment",
    "power_law": "sizewright.cluster.simulator.curves",
}

__all__ = [
    "Allotment",
    "Curve",
    "Elasticity",
    "Facts",
    "Loans",
    "Problem",
    "Settings",
    "chosen",
    "power_law",
]

if not TYPE_CHECKING:  # a type checker sees the imports above, and says what is not there
    __getattr__, __dir__ = lazily(__name__, _HOMES)
