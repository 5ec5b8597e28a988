"""Plan and run trials::

    from sizewright.profiler import TrialPlanner
    planner = TrialPlanner(candidates, objective="balanced")
    while (allocation := planner.ask()) is not None:
        planner.tell(allocation, throughput=measure(allocation))
    planner.best()

`sizewright.profile` reports its progress as `SeriesStep`, and `sizewright.measure_bank` as `BankStep`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sizewright.profiler.planner.candidates import AllocationRow
    from sizewright.profiler.planner.trial_planner import TrialPlanner
    from sizewright.profiler.series.bank_series import BankStep
    from sizewright.profiler.series.series import SeriesStep

_HOMES = {
    "AllocationRow": "sizewright.profiler.planner.candidates",
    "BankStep": "sizewright.profiler.series.bank_series",
    "SeriesStep": "sizewright.profiler.series.series",
    "TrialPlanner": "sizewright.profiler.planner.trial_planner",
}

__all__ = [
    "AllocationRow",
    "BankStep",
    "SeriesStep",
    "TrialPlanner",
]

if not TYPE_CHECKING:  # a type checker sees the imports above, and reports unknown names
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)
