"""Which trials to run, and how to run them::

    from sizewright.profiler import TrialPlanner
    planner = TrialPlanner(candidates, objective="balanced")
    while (allocation := planner.ask()) is not None:
        planner.tell(allocation, throughput=measure(allocation))
    planner.best()

`SeriesStep` and `BankStep` are what `sizewright.profile` and `sizewright.measure_bank` tell as they go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sizewright.names import lazily

if TYPE_CHECKING:
    from sizewright.profiler.bank_series import BankStep
    from sizewright.profiler.candidates import AllocationRow
    from sizewright.profiler.planner import TrialPlanner
    from sizewright.profiler.series import SeriesStep

_HOMES = {
    "AllocationRow": "sizewright.profiler.candidates",
    "BankStep": "sizewright.profiler.bank_series",
    "SeriesStep": "sizewright.profiler.series",
    "TrialPlanner": "sizewright.profiler.planner",
}

__all__ = [
    "AllocationRow",
    "BankStep",
    "SeriesStep",
    "TrialPlanner",
]

if not TYPE_CHECKING:  # a type checker sees the imports above, and says what is not there
    __getattr__, __dir__ = lazily(__name__, _HOMES)
