"""Executors apply plans and render them as manifests; one file each::

    from sizewright.executors import get_executor
    local = get_executor("local")
    handle = local.launch(plan)

`ChangeCosts` learns how long changes take; an executor of your own can use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sizewright.executors.change_costs import PODS_PRIORS, SESSION_PRIORS, ChangeCosts
    from sizewright.executors.registry import executor_names, get_executor

_HOMES = {
    "PODS_PRIORS": "sizewright.executors.change_costs",
    "SESSION_PRIORS": "sizewright.executors.change_costs",
    "ChangeCosts": "sizewright.executors.change_costs",
    "executor_names": "sizewright.executors.registry",
    "get_executor": "sizewright.executors.registry",
}

__all__ = [
    "PODS_PRIORS",
    "SESSION_PRIORS",
    "ChangeCosts",
    "executor_names",
    "get_executor",
]

if not TYPE_CHECKING:  # a type checker sees the imports above, and says what is not there
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)
