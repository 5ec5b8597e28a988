"""The allocation problem of one capacity and many jobs, and the settings of simulations of it.

The allocators that solve it are in `sizewright.cluster.allocators`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sizewright.cluster.problem.problem import Problem
    from sizewright.cluster.problem.scheduler_state import SchedulerState
    from sizewright.cluster.problem.solution import Solution, chosen
    from sizewright.cluster.simulator.curves import Curve, Elasticity, power_law
    from sizewright.cluster.simulator.engine import Settings
    from sizewright.cluster.simulator.scenario import Loans

_HOMES = {
    "Solution": "sizewright.cluster.problem.solution",
    "Curve": "sizewright.cluster.simulator.curves",
    "Elasticity": "sizewright.cluster.simulator.curves",
    "SchedulerState": "sizewright.cluster.problem.scheduler_state",
    "Loans": "sizewright.cluster.simulator.scenario",
    "Problem": "sizewright.cluster.problem.problem",
    "Settings": "sizewright.cluster.simulator.engine",
    "chosen": "sizewright.cluster.problem.solution",
    "power_law": "sizewright.cluster.simulator.curves",
}

__all__ = [
    "Curve",
    "Elasticity",
    "Loans",
    "Problem",
    "SchedulerState",
    "Settings",
    "Solution",
    "chosen",
    "power_law",
]

if not TYPE_CHECKING:  # a type checker sees the imports above, and says what is not there
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)
