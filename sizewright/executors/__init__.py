"""Executors carry out plans, and render them as manifests; one file each::

    from sizewright.executors import get_executor
    local = get_executor("local")
    handle = local.launch(plan)

`ChangeCosts` learns what changes take, for an executor of your own; `MetricsLog` and `Ledger` read what `run` and
`apply` write down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.names import lazily

if TYPE_CHECKING:
    from sizewright.executors.change_costs import PODS_PRIORS, SESSION_PRIORS, ChangeCosts
    from sizewright.executors.ledger import Entry, Ledger
    from sizewright.executors.metrics_log import MetricsLog, Observed
    from sizewright.executors.registry import executor_names, get_executor
    from sizewright.executors.run import RunProgress
    from sizewright.executors.tuning import Tuning

_HOMES = {
    "PODS_PRIORS": "sizewright.executors.change_costs",
    "SESSION_PRIORS": "sizewright.executors.change_costs",
    "ChangeCosts": "sizewright.executors.change_costs",
    "Entry": "sizewright.executors.ledger",
    "Ledger": "sizewright.executors.ledger",
    "MetricsLog": "sizewright.executors.metrics_log",
    "Observed": "sizewright.executors.metrics_log",
    "RunProgress": "sizewright.executors.run",
    "Tuning": "sizewright.executors.tuning",
    "executor_names": "sizewright.executors.registry",
    "get_executor": "sizewright.executors.registry",
}

__all__ = [
    "PODS_PRIORS",
    "SESSION_PRIORS",
    "ChangeCosts",
    "Entry",
    "Ledger",
    "MetricsLog",
    "Observed",
    "RunProgress",
    "Tuning",
    "executor_names",
    "get_executor",
]

if not TYPE_CHECKING:  # a type checker sees the imports above, and says what is not there
    __getattr__, __dir__ = lazily(__name__, _HOMES)
